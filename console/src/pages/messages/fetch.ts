/** Ranges of several partitions in one request. */
import { call, type Schemas } from "../../api/client";
import type { Scope } from "./reader";

export type Entry = Schemas["FetchedPartitionWithStringOffsets"] | Schemas["FailedPartition"];

export const MOST_BYTES = 4 * 1024 * 1024;

export interface Range {
  partition: number;
  offset: bigint;
  end: bigint;
}

type OfPartition = Partial<Pick<Schemas["PartitionFetch"], "isolation" | "on_out_of_range">>;
type OfRequest = Partial<Pick<Schemas["FetchRequest"], "max_bytes" | "max_records">>;

/** An entry for each range, in their order: whole records, as base64. */
export async function fetchRanges(
  { topic, pushed }: Scope,
  ranges: Range[],
  ofPartition: OfPartition,
  ofRequest: OfRequest,
  signal: AbortSignal,
): Promise<Entry[]> {
  const partitions = ranges.map(({ partition, offset, end }) => ({
    topic,
    partition,
    offset: String(offset),
    end_offset: end,
    ...ofPartition,
  }));
  const body = {
    partitions,
    ...ofRequest,
    encoding: "base64" as const,
    offsets: "string" as const,
    ...(pushed.filter ? { filter: pushed.filter } : {}),
  };
  const { data } = await call("post", "/v1/fetch", { body: body as never, signal });
  return data.partitions as unknown as Entry[];
}
