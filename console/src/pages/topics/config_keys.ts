/** Topic configuration keys as the service describes them, and their values as people read and write them. */
import { get, type Schemas } from "../../api/client";
import { bytes, count, duration } from "../../ui/format";
import { useLoad } from "../../ui/load";

export type ConfigKey = Schemas["TopicConfig"];
export type ConfigKeys = Map<string, ConfigKey>;

/** Offered when a topic is created; the others can be changed later. */
export const FIRST_KEYS = [
  "cleanup.policy",
  "retention.ms",
  "retention.bytes",
  "segment.bytes",
  "compression.type",
  "max.message.bytes",
];

export function useConfigKeys(): ConfigKeys | undefined {
  const { data } = useLoad("topic-configs", (signal) => get("/v1/topic-configs", { signal }));
  return data && new Map(data.configs.map((one) => [one.name, one]));
}

/** The values to choose from; none if any number or text will do. */
export function choicesOf({ accepted }: ConfigKey): string[] {
  if (accepted === "true or false") return ["false", "true"];
  const [, words] = /^(?:one|a list) of (.*)$/.exec(accepted) ?? [];
  if (!words || accepted.includes(":")) return [];
  const choices = words.split(", ");
  return accepted.startsWith("a list") ? [...choices, choices.join(",")] : choices;
}

/** Whether the key does nothing here and is accepted for Kafka's tools alone. */
export function isForTools({ description }: ConfigKey): boolean {
  return description.startsWith("accepted for Kafka's tools");
}

type Kind = "duration" | "bytes" | "count";

function kindOf(name: string): Kind {
  if (name.endsWith(".ms")) return "duration";
  return name.endsWith(".bytes") ? "bytes" : "count";
}

/** A value as people read it; empty if its text says it already. */
export function readable(name: string, value: string): string {
  if (!/^-?\d+$/.test(value)) return "";
  const number = BigInt(value);
  const kind = kindOf(name);
  if (kind === "duration") return number === -2n ? "" : duration(number);
  if (number < 0n || number >= 9223372036854775807n) return "no limit";
  return kind === "bytes" ? bytes(number) : number > 9999n ? count(number) : "";
}

const TYPED = /^(\d+(?:\.\d+)?)\s*([a-z]+)$/i;
const UNITS: Record<string, Record<string, number>> = {
  duration: { ms: 1, s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 },
  bytes: { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 },
};

/** What a person typed as the value Kafka takes: `7 d` is 604800000, `1 GiB` is 1073741824. */
export function parsed(name: string, typed: string): string {
  const text = typed.trim().replace(/^−/, "-");
  if (kindOf(name) === "duration" && /^forever$/i.test(text)) return "-1";
  const [, number, unit = ""] = TYPED.exec(text) ?? [];
  const size = UNITS[kindOf(name)]?.[unit.toLowerCase()];
  return number && size ? String(Math.round(Number(number) * size)) : text;
}
