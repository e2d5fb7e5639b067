/** Which records came as deliveries, and what was refused between two scrapes. */
import type { Schemas } from "../../api/client";
import type { Metrics } from "../../api/metrics";

export interface Shown {
  partition: number;
  offset: bigint;
  time: number;
  key: string;
  type: string;
  id: string;
  size: number;
}

type RecordOut = Schemas["RecordOut"] | Schemas["RecordOutWithStringOffset"];

/** Records with a `content-type` or a delivery id, which only deliveries have. */
export function deliveriesOf(partition: number, records: RecordOut[]): Shown[] {
  return records.flatMap((record) => {
    const headers = new Map(record.headers.map((one) => [one.key, String(one.value ?? "")]));
    const type = headers.get("content-type");
    const id = headers.get("tidelog-delivery-id");
    if (type === undefined && id === undefined) return [];
    const value = typeof record.value === "string" ? record.value : JSON.stringify(record.value ?? "");
    const size = record.value_encoding === "base64" ? Math.floor((3 * value.length) / 4) : new TextEncoder().encode(value).length;
    return [{ partition, offset: BigInt(record.offset), time: Number(record.timestamp), key: String(record.key ?? ""), type: type ?? "", id: id ?? "", size }];
  });
}

export interface Refusal {
  status: string;
  number: number;
}

/** Refused ingest requests between two scrapes, by status. */
export function refusals(before: Metrics, after: Metrics): Refusal[] {
  const sums = new Map<string, number>();
  for (const [metrics, sign] of [[before, -1], [after, 1]] as const) {
    for (const { labels, value } of metrics.get("tidelog_requests_total") ?? []) {
      const { operation = "", status = "" } = labels;
      if (/^ingest/.test(operation) && Number(status) >= 400) sums.set(status, (sums.get(status) ?? 0) + sign * value);
    }
  }
  return [...sums].filter(([, number]) => number > 0).map(([status, number]) => ({ status, number }));
}
