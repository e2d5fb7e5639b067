/** Kafka's topic configuration keys that a person changes: what each means, and how its value reads. */
import { bytes, count, duration } from "../../ui/format";

export type Kind = "duration" | "bytes" | "count" | "ratio" | "boolean" | "text";
export interface ConfigKey {
  kind: Kind;
  meaning: string;
  choices?: string[];
}

export const CONFIG_KEYS: Record<string, ConfigKey> = {
  "cleanup.policy": { kind: "text", choices: ["delete", "compact", "compact,delete"], meaning: "delete removes old segments by time and size; compact keeps the last record of each key." },
  "retention.ms": { kind: "duration", meaning: "Segments whose newest record is older are removed. −1 keeps them for ever." },
  "retention.bytes": { kind: "bytes", meaning: "Oldest segments are removed while a partition is larger. −1 sets no limit." },
  "segment.bytes": { kind: "bytes", meaning: "A segment is rolled when it reaches this size. Retention removes whole segments." },
  "segment.ms": { kind: "duration", meaning: "A segment is rolled when its first record is older." },
  "max.message.bytes": { kind: "bytes", meaning: "The largest batch that is accepted." },
  "compression.type": { kind: "text", choices: ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"], meaning: "producer stores batches as they arrive; another value compresses them again." },
  "message.timestamp.type": { kind: "text", choices: ["CreateTime", "LogAppendTime"], meaning: "CreateTime keeps the producer's time; LogAppendTime stamps records when they are appended." },
  "message.timestamp.before.max.ms": { kind: "duration", meaning: "Records that are older than this when they arrive are refused." },
  "message.timestamp.after.max.ms": { kind: "duration", meaning: "Records from further in the future than this are refused." },
  "min.compaction.lag.ms": { kind: "duration", meaning: "A record stays uncompacted at least this long." },
  "max.compaction.lag.ms": { kind: "duration", meaning: "A record is compacted at the latest after this time." },
  "min.cleanable.dirty.ratio": { kind: "ratio", meaning: "Compaction starts when this share of the log is not compacted yet." },
  "delete.retention.ms": { kind: "duration", meaning: "Tombstones of a compacted topic stay this long, so that readers see them." },
  "index.interval.bytes": { kind: "bytes", meaning: "One index entry for each so many bytes of the log." },
  "segment.index.bytes": { kind: "bytes", meaning: "Size of an index file; a full one rolls the segment." },
  "segment.jitter.ms": { kind: "duration", meaning: "A random part of segment.ms, so that not all logs roll at once." },
  "flush.messages": { kind: "count", meaning: "Flush after so many records; acks=all flushes before it answers anyway." },
  "flush.ms": { kind: "duration", meaning: "Flush at the latest after this time." },
  "file.delete.delay.ms": { kind: "duration", meaning: "How long the files of removed segments stay on disk." },
  preallocate: { kind: "boolean", choices: ["false", "true"], meaning: "Reserve a segment's bytes when it is created." },
};

/** Offered when a topic is created; the others can be changed later. */
export const FIRST_KEYS = ["cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "compression.type", "max.message.bytes"];

/** A value as people read it; empty if its text says it already. */
export function readable(key: string, value: string): string {
  const kind = CONFIG_KEYS[key]?.kind;
  if (!/^-?\d+$/.test(value) || !kind) return "";
  const number = BigInt(value);
  if (kind === "duration") return duration(number);
  if (kind === "bytes") return number < 0n ? "no limit" : bytes(number);
  if (kind === "count") return number >= 9223372036854775807n ? "no limit" : count(number);
  return "";
}

const DURATION = /^(\d+(?:\.\d+)?)\s*(ms|s|min|h|d|w)$/i;
const BYTES = /^(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)$/i;
const MS: Record<string, number> = { ms: 1, s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const SIZES: Record<string, number> = { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };

/** What a person typed as the value Kafka takes: `7 d` is 604800000, `1 GiB` is 1073741824. */
export function parsed(key: string, typed: string): string {
  const text = typed.trim();
  const kind = CONFIG_KEYS[key]?.kind;
  if (kind === "duration" && /^(forever|∞)$/i.test(text)) return "-1";
  const [pattern, units] = kind === "duration" ? [DURATION, MS] : kind === "bytes" ? [BYTES, SIZES] : [null, {}];
  const match = pattern?.exec(text);
  const unit = match && (units as Record<string, number>)[(match[2] ?? "").toLowerCase()];
  return match && unit ? String(Math.round(Number(match[1]) * unit)) : text.replace(/^−/, "-");
}
