/** Which records came as deliveries. */
import type { Schemas } from "../../api/client";

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
    const headers = new Map(record.headers.map((one) => [one.key, textOf(one.value)]));
    const type = headers.get("content-type");
    const id = headers.get("tidelog-delivery-id");
    if (type === undefined && id === undefined) return [];
    const value = typeof record.value === "string" ? record.value : JSON.stringify(record.value ?? "");
    const size =
      record.value_encoding === "base64" ? Math.floor((3 * value.length) / 4) : new TextEncoder().encode(value).length;
    return [
      {
        partition,
        offset: BigInt(record.offset),
        time: Number(record.timestamp),
        key: textOf(record.key),
        type: type ?? "",
        id: id ?? "",
        size,
      },
    ];
  });
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : value == null ? "" : JSON.stringify(value);
}
