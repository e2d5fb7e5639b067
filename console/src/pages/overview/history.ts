/** What was scraped from /metrics in the last 15 minutes, for the charts; it goes on while another page is shown. */
import { signal } from "@preact/signals";
import { send } from "../../api/client";
import { buckets, parseMetrics, quantile, total, type Metrics } from "../../api/metrics";
import { token } from "../../api/session";
import { asProblem } from "../../ui/load";

export const SPAN_SECONDS = 900;
const LEAST_WAIT_MS = 3000;
/** The second scrape comes soon, so that the charts begin. */
const FIRST_WAIT_MS = 1000;
/** A scrape may cost the service at most this share of its time. */
const COST_SHARE = 0.02;

const APPENDS = new Set(["appendRecords", "appendTopicRecords", "appendBatches", "ingest", "ingestOtlp", "kafkaRestProduceToTopic", "kafkaRestProduceToPartition"]);
const WANTED = new Set([
  "tidelog_requests_total", "tidelog_request_seconds_bucket", "tidelog_log_flush_seconds_bucket",
  "tidelog_records_in_total", "tidelog_bytes_in_total", "tidelog_bytes_out_total", "tidelog_problems_total",
  "tidelog_waiting_readers", "tidelog_tail_clients", "tidelog_topic_size_bytes", "tidelog_topic_partitions",
  "tidelog_offline_logs", "tidelog_log_directory_offline", "tidelog_partitions", "tidelog_partitions_with_late_transactions",
  "tidelog_unflushed_bytes", "tidelog_cleaner_uncleanable_partitions_count",
]);

export interface Scrape {
  seconds: number;
  metrics: Metrics;
}

/** One point of the charts: what happened since the scrape before it. */
export interface Point {
  seconds: number;
  appends: number;
  records: number;
  bytesIn: number;
  bytesOut: number;
  p50: number | null;
  p99: number | null;
  commit: number | null;
  readers: number;
}

export interface History {
  points: Point[];
  last: Scrape | undefined;
  /** Records and bytes a second by topic, between the last two scrapes. */
  topics: Map<string, { records: number; bytes: number }>;
}

const NOTHING: History = { points: [], last: undefined, topics: new Map() };

export const history = signal<History>(NOTHING);
/** 403 without the scope `metrics`: pages then show what they can without charts. */
export const isForbidden = signal(false);

const isProduce = (labels: Record<string, string>): boolean => labels["api"] === "produce";
const isAppend = (labels: Record<string, string>): boolean => APPENDS.has(labels["operation"] ?? "");

/** Return what happened between two scrapes; undefined if the service was restarted between them. */
export function pointBetween(before: Scrape, after: Scrape): Point | undefined {
  const seconds = after.seconds - before.seconds;
  const grown = (name: string, keep?: (labels: Record<string, string>) => boolean): number =>
    total(after.metrics, name, keep) - total(before.metrics, name, keep);
  const appends = grown("tidelog_requests_total", isAppend);
  const records = grown("tidelog_records_in_total");
  if (seconds <= 0 || appends < 0 || records < 0) return undefined;
  const within = (name: string, share: number, keep?: typeof isAppend): number | null =>
    quantile(buckets(before.metrics, name, keep), buckets(after.metrics, name, keep), share);
  return {
    seconds: after.seconds,
    appends: appends / seconds,
    records: records / seconds,
    bytesIn: Math.max(0, grown("tidelog_bytes_in_total")) / seconds,
    bytesOut: Math.max(0, grown("tidelog_bytes_out_total")) / seconds,
    p50: within("tidelog_request_seconds", 0.5, isAppend),
    p99: within("tidelog_request_seconds", 0.99, isAppend),
    commit: within("tidelog_log_flush_seconds", 0.99) ?? within("tidelog_kafka_request_seconds", 0.99, isProduce),
    readers: total(after.metrics, "tidelog_waiting_readers") + total(after.metrics, "tidelog_tail_clients"),
  };
}

function ratesBetween(before: Scrape, after: Scrape): History["topics"] {
  const seconds = after.seconds - before.seconds;
  const rates: History["topics"] = new Map();
  for (const [name, member] of [["tidelog_records_in_total", "records"], ["tidelog_bytes_in_total", "bytes"]] as const) {
    const old = new Map((before.metrics.get(name) ?? []).map(({ labels, value }) => [labels["topic"] ?? "", value]));
    for (const { labels, value } of after.metrics.get(name) ?? []) {
      const topic = labels["topic"] ?? "";
      const rate = rates.get(topic) ?? { records: 0, bytes: 0 };
      rate[member] = Math.max(0, value - (old.get(topic) ?? 0)) / seconds;
      rates.set(topic, rate);
    }
  }
  return rates;
}

/** Return the history with one more scrape, bounded by its span. */
export function extended(before: History, scrape: Scrape): History {
  const { last } = before;
  if (!last) return { ...before, last: scrape };
  const point = pointBetween(last, scrape);
  if (!point) return { ...NOTHING, last: scrape };
  const since = scrape.seconds - SPAN_SECONDS;
  const kept = before.points.filter((one) => one.seconds >= since);
  return { points: [...kept, point], last: scrape, topics: ratesBetween(last, scrape) };
}

let timer: ReturnType<typeof setTimeout> | undefined;
let isScraping = false;

async function scrape(): Promise<void> {
  clearTimeout(timer);
  if (isScraping) return;
  isScraping = true;
  const started = performance.now();
  try {
    const text = await (await send("/metrics")).text();
    history.value = extended(history.value, { seconds: Date.now() / 1000, metrics: parseMetrics(text, WANTED) });
    isForbidden.value = false;
  } catch (error) {
    isForbidden.value = [401, 403].includes(asProblem(error).status);
  } finally {
    isScraping = false;
  }
  const cost = performance.now() - started;
  const wait = history.value.points.length ? Math.max(LEAST_WAIT_MS, cost / COST_SHARE) : FIRST_WAIT_MS;
  if (!document.hidden && !isForbidden.value) timer = setTimeout(() => void scrape(), wait);
}

/** Begin to scrape; called once, at the start. */
export function startHistory(): void {
  document.addEventListener("visibilitychange", () => !document.hidden && void scrape());
  token.subscribe(() => {
    history.value = NOTHING;
    void scrape();
  });
}
