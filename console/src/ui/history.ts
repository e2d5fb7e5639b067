/** What the service did in the last 15 minutes, as it tells it: charts are whole as soon as a page opens. */
import { get, type Schemas } from "../api/client";
import { useLoad, type Loaded } from "./load";

export type History = Schemas["History"];
type Point = Schemas["HistoryPoint"];

const EVERY_MS = 2500;

/** The history, loaded again every few seconds; an error 403 without the scope `metrics`. */
export function useHistory(): Loaded<History> {
  return useLoad("history", (signal) => get("/v1/history", { signal }), EVERY_MS);
}

/** Whether the caller may not see it. */
export function isForbidden(history: Loaded<History>): boolean {
  return [401, 403].includes(history.error?.status ?? 0);
}

/** A count of each interval as a rate a second. */
export function perSecond(points: Point[], pick: (point: Point) => number | bigint): number[] {
  return points.map((point) => (1000 * Number(pick(point))) / Math.max(1, Number(point.duration_ms)));
}

/** Milliseconds as the seconds that charts show. */
export function seconds(ms: number | null): number | null {
  return ms === null ? null : ms / 1000;
}

export interface TopicRate {
  records: number;
  bytes: number;
}

/** Records and bytes a second of each topic in the last whole minute; undefined before there is one. */
export function ratesOf(history: History | undefined): Map<string, TopicRate> | undefined {
  if (!history?.minutes.length) return undefined;
  const last = (numbers: (number | bigint)[]): number => Number(numbers.at(-1) ?? 0) / 60;
  return new Map(
    history.topics.map((one) => [one.topic, { records: last(one.records_in), bytes: last(one.bytes_in) }]),
  );
}
