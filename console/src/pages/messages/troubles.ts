/** What a plain read does not say: where reading goes on behind damage, and which records no transaction committed. */
import { get, Problem } from "../../api/client";
import type { Message } from "./message";
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

/** Those of some messages' offsets that readers of committed records get. */
export async function committedOffsets(
  { topic, pushed }: Scope,
  partition: number,
  messages: Message[],
  signal: AbortSignal,
): Promise<Set<bigint>> {
  const offsets = new Set<bigint>();
  const end = messages.at(-1)!.offset + 1n;
  for (let next = messages[0]!.offset; next < end;) {
    const page = await get(RECORDS, {
      path: { topic, partition },
      query: {
        offset: String(next),
        end_offset: end,
        isolation: "read_committed",
        encoding: "base64",
        offsets: "string",
        ...(pushed.filter ? { filter: pushed.filter } : {}),
      },
      signal,
    });
    for (const record of page.records) offsets.add(BigInt(record.offset));
    next = BigInt(page.next_offset) > next ? BigInt(page.next_offset) : end;
  }
  return offsets;
}
