/** What the address says about the messages to show, and back. */
import { href } from "../../ui/router";
import type { Start } from "./reader";

export type From = "newest" | "earliest" | "offset" | "time" | "live";

export interface Asked {
  from: From;
  /** The offset or the time that `from` needs, as it was typed. */
  at: string;
  partition: number | undefined;
  filter: string;
}

const FROM: From[] = ["newest", "earliest", "offset", "time", "live"];

export function askedOf(query: URLSearchParams): Asked {
  const from = FROM.find((one) => one === query.get("from")) ?? "newest";
  const partition = query.get("partition");
  return {
    from,
    at: query.get("at") ?? "",
    partition: partition && /^\d+$/.test(partition) ? Number(partition) : undefined,
    filter: query.get("filter") ?? "",
  };
}

/** Where to start; a string says what is wrong with what was typed. */
export function startOf({ from, at }: Asked): Start | "live" | string {
  if (from === "live") return "live";
  if (from === "newest" || from === "earliest") return { from };
  if (from === "offset") return /^\d{1,19}$/.test(at) ? { from, offset: BigInt(at) } : "An offset is a whole number.";
  const ms = /^\d{10,}$/.test(at) ? Number(at) : new Date(at).getTime();
  return Number.isNaN(ms) ? "A time is like 2026-11-23T14:05, or milliseconds." : { from: "time", ms };
}

/** The address that shows one message, wherever it is opened. */
export function linkTo(topic: string, partition: number, offset: bigint): string {
  return href(["topics", topic, "messages"], { from: "offset", at: String(offset), partition: String(partition), open: `${partition}/${offset}` });
}
