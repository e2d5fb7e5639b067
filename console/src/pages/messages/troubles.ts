/** What a plain read does not say: where reading goes on behind damage, and which records no transaction committed. */
import { get, Problem } from "../../api/client";
import type { Message } from "./message";
import { fetchRanges, MOST_BYTES } from "./fetch";
import type { Scope } from "./reader";

const RECORDS = "/v1/topics/{topic}/partitions/{partition}/records";

/** The first offset behind a damaged place from which the service can read; `end` if there is none. */
export async function nextReadable(
  topic: string,
  partition: number,
  offset: bigint,
  end: bigint,
  signal: AbortSignal,
): Promise<bigint> {
  const isReadable = async (at: bigint): Promise<boolean> => {
    try {
      await get(RECORDS, {
        path: { topic, partition },
        query: { offset: String(at), max_records: 1, max_bytes: 1, end_offset: at + 1n },
        signal,
      });
      return true;
    } catch (error) {
      if (error instanceof Problem && error.status >= 500) return false;
      throw error;
    }
  };
  let bad = offset;
  let step = 1n;
  while (bad + step < end && !(await isReadable(bad + step))) {
    bad += step;
    step *= 2n;
  }
  let good = bad + step < end ? bad + step : end;
  while (good - bad > 1n) {
    const middle = (bad + good) / 2n;
    if (await isReadable(middle)) good = middle;
    else bad = middle;
  }
  return good;
}

/** Whether a partition may hold records of aborted transactions. */
export async function hasTransactions(topic: string, partition: number, signal: AbortSignal): Promise<boolean> {
  try {
    const { segments } = await get("/v1/topics/{topic}/partitions/{partition}/segments", {
      path: { topic, partition },
      signal,
    });
    return segments.some((one) => one.files?.txnindex);
  } catch (error) {
    if (signal.aborted) throw error;
    return true; // a Kafka cluster has no files to look at
  }
}

/** Some messages of a partition, in the order of their offsets. */
export interface Part {
  partition: number;
  messages: Message[];
}

/** Say of messages of several partitions which ones their transactions aborted; a request for all, or a few. */
export async function markAborted(scope: Scope, parts: Part[], signal: AbortSignal): Promise<void> {
  let left = parts.map((part) => ({ ...part, next: part.messages[0]!.offset, end: part.messages.at(-1)!.offset + 1n }));
  while (left.length) {
    const ranges = left.map(({ partition, next, end }) => ({ partition, offset: next, end }));
    const entries = await fetchRanges(
      scope,
      ranges,
      { isolation: "read_committed" },
      { max_bytes: MOST_BYTES },
      signal,
    );
    const moved = left.filter((part, index) => {
      const entry = entries[index];
      if (entry?.outcome !== "read") {
        part.next = part.end; // what cannot be read is not called aborted
        return true;
      }
      const before = part.next;
      part.next = BigInt(entry.next_offset);
      const committed = new Set(entry.records.map((record) => BigInt(record.offset)));
      for (const one of part.messages)
        if (one.offset >= before && one.offset < part.next && !committed.has(one.offset)) one.transaction = "aborted";
      return part.next > before;
    });
    if (!moved.length) return;
    left = left.filter((part) => part.next < part.end);
  }
}
