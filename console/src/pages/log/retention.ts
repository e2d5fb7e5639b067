/** What a topic's configuration keeps, in words. */
import { bytes, duration } from "../../ui/format";

type Config = Record<string, { value: string } | undefined>;

/** How long, and how much, is kept: `kept 7 d, at most 1 GiB`. */
export function retentionWords(config: Config): string {
  if (!(config["cleanup.policy"]?.value ?? "delete").includes("delete")) return "the newest of each key stays";
  const ms = BigInt(config["retention.ms"]?.value ?? -1);
  const size = BigInt(config["retention.bytes"]?.value ?? -1);
  const limits = [...(ms >= 0n ? [duration(ms)] : []), ...(size >= 0n ? [bytes(size)] : [])];
  return limits.length ? `kept ${limits.join(", at most ")}` : "kept forever";
}
