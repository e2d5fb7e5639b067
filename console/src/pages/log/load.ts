/** What the picture of a log is made of: segments, marks, and the time of each segment's first record. */
import { call, get, type Int, type Schemas } from "../../api/client";
import type { Piece } from "./scale";

export interface LogFacts {
  pieces: Piece[];
  files: Map<bigint, Schemas["SegmentFiles"]>;
  logStart: bigint;
  lastStable: bigint;
  highWatermark: bigint;
  logEnd: bigint;
  leaderEpoch: number;
  recoveryPoint: bigint;
  /** The end of what the archive has; undefined without an archive. */
  archivedOffset: bigint | undefined;
  /** The first offset on the disk; undefined without an archive, which may have earlier ones. */
  localStart: bigint | undefined;
  logId: string;
  /** Places that are known to be damaged. */
  damage: Damaged[];
  /** The service's clock when this was loaded. */
  now: number;
}

export interface Damaged {
  /** The segment's base offset. */
  base: bigint;
  position: number;
  problem: string;
}

const MOST_LOOKS = 60;
const AT_ONCE = 6;

/** Times of first records; a segment's first record stays what it is while the log has this id. */
const firstTimes = new Map<string, number>();
/** Segments whose first record cannot be read: they are not asked for every two seconds. */
const unreadable = new Set<string>();

interface Where {
  topic: string;
  partition: number;
}

export async function loadLog(where: Where, mayRead: boolean, signal: AbortSignal): Promise<LogFacts> {
  const path = { topic: where.topic, partition: where.partition };
  const [list, facts] = await Promise.all([
    get("/v1/topics/{topic}/partitions/{partition}/segments", { path, signal }),
    get("/v1/topics/{topic}/partitions/{partition}", { path, signal }),
  ]);
  const logStart = BigInt(list.log_start_offset);
  const segments = list.segments.filter((one) => one.files !== null);
  const localStart = list.local_log_start_offset === undefined ? undefined : BigInt(list.local_log_start_offset);
  const onDisk = segments.filter((one) => BigInt(one.next_offset) > (localStart ?? 0n)); // the archive's megabytes are not worth it
  if (mayRead) await lookForFirstTimes(where, facts.log_id, onDisk, logStart, signal);
  let before = -1;
  const pieces = segments.map((one): Piece => {
    const isEmpty = BigInt(one.next_offset) === BigInt(one.base_offset); // its time would be that of the file
    const to = isEmpty ? -1 : Number(one.largest_timestamp);
    const first = firstTimes.get(keyOf(where, facts.log_id, BigInt(one.base_offset))) ?? before;
    const from = first >= 0 && first <= to ? first : to;
    before = Math.max(before, to);
    return {
      base: BigInt(one.base_offset),
      next: BigInt(one.next_offset),
      bytes: Number(one.size_bytes),
      from,
      to,
      isActive: one.is_active,
    };
  });
  return {
    pieces,
    files: new Map(segments.flatMap((one) => (one.files ? [[BigInt(one.base_offset), one.files]] : []))),
    logStart,
    lastStable: BigInt(list.last_stable_offset),
    highWatermark: BigInt(list.high_watermark),
    logEnd: BigInt(list.log_end_offset),
    leaderEpoch: facts.leader_epoch,
    recoveryPoint: BigInt(facts.recovery_point),
    archivedOffset: facts.archived_offset === undefined ? undefined : BigInt(facts.archived_offset),
    localStart,
    logId: facts.log_id,
    damage: list.damage.map((one) => ({
      base: BigInt(one.file.replace(/\..*$/, "")),
      position: Number(one.position),
      problem: one.problem,
    })),
    now: Date.now(),
  };
}

function keyOf(where: Where, logId: string, base: bigint): string {
  return `${where.topic}/${where.partition}/${logId}/${base}`;
}

interface Listed {
  base_offset: Int;
  next_offset: Int;
}

async function lookForFirstTimes(
  where: Where,
  logId: string,
  segments: Listed[],
  logStart: bigint,
  signal: AbortSignal,
): Promise<void> {
  const unknown = segments
    .filter((one) => {
      const key = keyOf(where, logId, BigInt(one.base_offset));
      return BigInt(one.next_offset) > BigInt(one.base_offset) && !firstTimes.has(key) && !unreadable.has(key);
    })
    .reverse()
    .slice(0, MOST_LOOKS);
  const look = async (): Promise<void> => {
    for (let one = unknown.pop(); one; one = unknown.pop()) {
      const base = BigInt(one.base_offset);
      const time = await firstTime(where, base > logStart ? base : logStart, signal);
      if (time !== undefined) firstTimes.set(keyOf(where, logId, base), time);
      else unreadable.add(keyOf(where, logId, base));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, look));
}

async function firstTime(where: Where, offset: bigint, signal: AbortSignal): Promise<number | undefined> {
  try {
    const page = await get("/v1/topics/{topic}/partitions/{partition}/records", {
      path: { topic: where.topic, partition: where.partition },
      query: { offset: String(offset), max_bytes: 1, max_records: 1 },
      signal,
    });
    const [record] = page.records;
    return record && Number(record.timestamp);
  } catch (error) {
    if (signal.aborted) throw error;
    return undefined; // damaged, or removed meanwhile: the segment is drawn from the one before
  }
}

/** The tag of the log end: a truncation is bound to it. */
export async function endTag(where: Where): Promise<string> {
  const path = { topic: where.topic, partition: where.partition };
  const { headers } = await call("get", "/v1/topics/{topic}/partitions/{partition}/offsets", {
    path,
  });
  return headers.get("etag") ?? "";
}
