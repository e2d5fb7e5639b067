/** What the address says about the messages to show: where to start, and the curl that reads the same. */
import { HOME } from "../../place";
import type { MessagesAsked } from "../../routes";
import { urlOf } from "../../api/client";
import { quoted } from "../../ui/curl";
import type { Pushed } from "./pushed";
import type { Start } from "./reader";

/** Records of a copied command. */
const COPIED = 100;

/** Where to start; a string other than `live` says what is wrong with what was typed. */
export function startOf({ from, at }: MessagesAsked): Start | string {
  if (from === "live") return "live";
  if (from === "newest" || from === "earliest") return { from };
  if (from === "offset") return /^\d{1,19}$/.test(at) ? { from, offset: BigInt(at) } : "An offset is a whole number.";
  const ms = /^\d{10,}$/.test(at) ? Number(at) : new Date(at).getTime();
  return Number.isNaN(ms) ? "A time is like 2026-11-23T14:05, or milliseconds." : { from: "time", ms };
}

/** The commands that read what is shown; what of a filter only the page can say stands beside them. */
export function curlsOf(topic: string, partitions: number, asked: MessagesAsked, pushed: Pushed): string {
  const chosen = asked.partition ?? pushed.partition ?? (partitions === 1 ? 0 : undefined);
  const also = {
    isolation: asked.isolation === "read_committed" ? asked.isolation : undefined,
    filter: pushed.filter,
  };
  const note = pushed.isExact
    ? ""
    : "# The console passes over more than this, by: " + asked.filter.replace(/\s+/g, " ") + "\n";
  const command = (path: string, query: object, options = ""): string =>
    `curl ${options}${quoted(HOME + urlOf(path, { topic, partition: chosen }, { ...query, ...also }))}`;
  if (asked.from === "live") {
    return (
      note +
      command(
        chosen === undefined ? "/v1/topics/{topic}/tail" : "/v1/topics/{topic}/partitions/{partition}/tail",
        { offset: "latest" },
        "-N ",
      )
    );
  }
  const start = startOf(asked);
  const from =
    typeof start === "string"
      ? "earliest"
      : start.from === "offset"
        ? String(start.offset)
        : start.from === "time"
          ? `ts:${start.ms}`
          : "earliest";
  const query = asked.from === "newest" ? { last: COPIED } : { offset: from, max_records: COPIED };
  if (chosen !== undefined) return note + command("/v1/topics/{topic}/partitions/{partition}/records", query);
  if (asked.from === "earliest" || asked.from === "time") return note + command("/v1/topics/{topic}/records", query);
  const each =
    HOME +
    urlOf(
      "/v1/topics/{topic}/partitions/{partition}/records",
      { topic, partition: "PARTITION" },
      { ...query, ...also },
    );
  return `${note}for p in $(seq 0 ${partitions - 1}); do curl ${quoted(each).replace("PARTITION", `'"$p"'`)}; done`;
}
