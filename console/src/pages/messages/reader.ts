/** Reading a topic in the order a person asked for, one request after the other, until enough is found. */
import { get, Problem, type Schemas } from "../../api/client";
import { fetchRanges, MOST_BYTES, type Entry } from "./fetch";
import type { Message } from "./message";
import type { Pushed } from "./pushed";
import { messageOf, type Reading } from "./reading";
import { hasTransactions, markAborted, nextReadable, type Part } from "./troubles";

type Listed = Schemas["Partition"];
export type Isolation = "read_uncommitted" | "read_committed";

export type Start = { from: "newest" | "earliest" } | { from: "offset"; offset: bigint } | { from: "time"; ms: number };

export interface Scope {
  topic: string;
  partition: number | undefined;
  start: Start;
  isolation: Isolation;
  pushed: Pushed;
  reading: Reading;
}

/** Something that was passed over, and why. */
export interface Gap {
  partition: number;
  start: bigint;
  end: bigint;
  problem: Problem;
}

const FIRST_RECORDS = 25;
const MOST_RECORDS = 5000;
/** As far as a window reaches where the service passes over most records. */
const MOST_FILTERED = 100_000;
const FIRST_BYTES = 256 * 1024;
/** Partitions of one request. */
const TOGETHER = 100;
/** Up to so many partitions are asked one by one whether they have transactions; of more, all is read again. */
const ONE_BY_ONE = 20;
/** What is passed over with these, one record or batch; with anything else, the rest of the partition. */
const PASSED_OVER = new Set(["stored_data_corrupt", "record_too_large"]);

/** A range of a partition that is being read backwards: the newest come last, so all of it is needed. */
interface Window {
  from: bigint;
  next: bigint;
  messages: Message[];
  isFirstAnswer: boolean;
}

/** One partition between two offsets; knows what was read of it and what is left. */
class Cursor {
  readonly total: bigint;
  /** In reverse order, so that the next one is popped. */
  buffer: Message[] = [];
  /** Messages that were handed out. */
  taken = 0;
  window: Window | undefined;
  records = FIRST_RECORDS;

  constructor(
    readonly partition: number,
    public start: bigint,
    public end: bigint,
    readonly isBackward: boolean,
    /** Stored bytes of an offset, as far as is known; a window is as long as this allows. */
    public offsetBytes: number,
    readonly mostRecords: number,
  ) {
    if (this.end < this.start) this.end = this.start;
    this.total = this.end - this.start;
  }

  get isRead(): boolean {
    return this.start >= this.end;
  }

  get isExhausted(): boolean {
    return this.isRead && this.buffer.length === 0;
  }

  /** Offsets that lie behind the cursor. */
  get scanned(): bigint {
    return this.total - (this.end - this.start) - BigInt(this.buffer.length);
  }

  /** What to read next. */
  ask(bytes: number): { offset: bigint; end: bigint } {
    if (!this.isBackward) return { offset: this.start, end: this.end };
    if (!this.window) {
      const fitting = Math.floor(bytes / Math.max(1, this.offsetBytes));
      this.#open(BigInt(Math.max(1, Math.min(this.records, fitting))));
    }
    return { offset: this.window!.next, end: this.end };
  }

  #open(offsets: bigint): void {
    const from = this.end - offsets > this.start ? this.end - offsets : this.start;
    this.window = { from, next: from, messages: [], isFirstAnswer: true };
  }

  /** Take what was read from the offset asked for up to `next`. */
  take(messages: Message[], next: bigint): void {
    this.records = Math.min(this.mostRecords, this.records * 2);
    if (messages.length) this.offsetBytes = messages.reduce((sum, one) => sum + one.storedBytes, 0) / messages.length;
    const { window } = this;
    if (!window) {
      this.buffer = messages.reverse();
      this.start = next < this.end ? next : this.end;
      return;
    }
    if (window.isFirstAnswer && next < this.end) {
      const covered = next - window.from;
      this.#open(covered); // the window was too long: only its end is wanted now
      this.window!.isFirstAnswer = false;
      return;
    }
    window.isFirstAnswer = false;
    window.next = next;
    window.messages.push(...messages);
    if (next < this.end) return;
    this.buffer = window.messages;
    this.end = window.from;
    this.window = undefined;
  }

  /** Pass over what could not be read, from the offset asked for up to `next`. */
  pass(next: bigint): void {
    if (!this.window) this.start = next < this.end ? next : this.end;
    else {
      this.window.isFirstAnswer = false;
      this.take([], next < this.end ? next : this.end);
    }
  }
}

/** Several partitions merged by time; each keeps its own order. */
export class Reader {
  readonly gaps: Gap[] = [];
  #bytes = FIRST_BYTES;
  #ahead: Promise<Entry[]> | undefined;
  readonly #transactions = new Map<number, Promise<boolean>>();

  constructor(
    readonly scope: Scope,
    readonly cursors: Cursor[],
  ) {}

  get isExhausted(): boolean {
    return this.cursors.every((cursor) => cursor.isExhausted);
  }

  get scanned(): number {
    return this.cursors.reduce((sum, cursor) => sum + Number(cursor.scanned), 0);
  }

  get total(): number {
    return this.cursors.reduce((sum, cursor) => sum + Number(cursor.total), 0);
  }

  /** The next messages, as many as are certain to come next. */
  async next(signal: AbortSignal): Promise<Message[]> {
    // What the service passes over is not waited for: the session puts in order what was found.
    const isSought = this.scope.pushed.filter !== "";
    while ((await this.#fill(signal)) && !isSought) continue;
    const active = this.cursors.filter((cursor) => cursor.buffer.length);
    const merged: Message[] = [];
    while (active.length) {
      const first = active.reduce((best, cursor) => (this.#isBefore(cursor, best) ? cursor : best));
      merged.push(first.buffer.pop()!);
      first.taken += 1;
      if (!first.buffer.length && !first.isRead) break; // its next page may hold what comes next
      if (!first.buffer.length) active.splice(active.indexOf(first), 1);
    }
    return merged;
  }

  #isBefore(one: Cursor, other: Cursor): boolean {
    const a = Number(one.buffer.at(-1)?.timestamp ?? 0);
    const b = Number(other.buffer.at(-1)?.timestamp ?? 0);
    if (a === b) return one.taken < other.taken; // records of one instant: from each partition in turn
    return this.scope.start.from === "newest" ? a > b : a < b;
  }

  /** One request for up to a hundred partitions that have nothing at hand; false if all have something. */
  async #fill(signal: AbortSignal): Promise<boolean> {
    const waiting = this.cursors.filter((cursor) => !cursor.buffer.length && !cursor.isRead).slice(0, TOGETHER);
    if (!waiting.length) return false;
    const ahead = this.#ahead?.catch(() => undefined); // stopped, or failed: ask again
    this.#ahead = undefined;
    const entries = (await ahead) ?? (await this.#request(waiting, signal));
    const moved = entries.map((entry, index) => this.#hasMoved(waiting[index]!, entry));
    const settled: Part[] = [];
    for (const [index, entry] of entries.entries()) {
      const cursor = waiting[index]!;
      // An entry that did not move had no room beside the others; alone, it shows that nothing is there.
      if (!moved[index] && moved.includes(true)) continue;
      const messages = await this.#take(cursor, entry, signal);
      if (messages.length) settled.push({ partition: cursor.partition, messages });
    }
    if (this.scope.isolation === "read_uncommitted") await this.#mark(settled, signal);
    this.#bytes = Math.min(MOST_BYTES, this.#bytes * 2);
    const [only] = this.cursors;
    if (only && this.cursors.length === 1 && this.#bytes === MOST_BYTES && !only.isRead) {
      this.#ahead = this.#request([only], signal); // the service works while the page filters
      this.#ahead.catch(() => undefined);
    }
    return true;
  }

  #request(cursors: Cursor[], signal: AbortSignal): Promise<Entry[]> {
    const share = this.#bytes / cursors.length;
    const ranges = cursors.map((cursor) => ({ partition: cursor.partition, ...cursor.ask(share) }));
    const { isolation } = this.scope;
    return fetchRanges(
      this.scope,
      ranges,
      { isolation, on_out_of_range: "earliest" },
      { max_bytes: this.#bytes, max_records: MOST_RECORDS },
      signal,
    );
  }

  #hasMoved(cursor: Cursor, entry: Entry): boolean {
    return entry.outcome !== "read" || BigInt(entry.next_offset) > cursor.ask(0).offset;
  }

  /** Take an answer over; return those of its messages whose transactions are over. */
  async #take(cursor: Cursor, entry: Entry, signal: AbortSignal): Promise<Message[]> {
    const { offset, end } = cursor.ask(0);
    if (entry.outcome === "failed") {
      const { problem } = entry;
      await this.#pass(
        cursor,
        offset,
        new Problem(problem.status, problem.code, problem.title, problem.detail, problem),
        signal,
      );
      return [];
    }
    const messages = entry.records.map((record) => messageOf(cursor.partition, record, this.scope.reading));
    const next = BigInt(entry.next_offset);
    const lastStable = BigInt(entry.last_stable_offset);
    for (const one of messages) if (one.offset >= lastStable) one.transaction = "open";
    const settled = messages.filter((one) => one.offset < lastStable);
    cursor.take(messages, next > offset && next < end ? next : end);
    return settled;
  }

  async #pass(cursor: Cursor, offset: bigint, problem: Problem, signal: AbortSignal): Promise<void> {
    if (this.cursors.length === 1 && !PASSED_OVER.has(problem.code)) throw problem;
    const end = PASSED_OVER.has(problem.code)
      ? await nextReadable(this.scope.topic, cursor.partition, offset, cursor.end, signal)
      : cursor.end;
    this.gaps.push({ partition: cursor.partition, start: offset, end, problem });
    if (PASSED_OVER.has(problem.code)) cursor.pass(end);
    else cursor.start = cursor.end;
  }

  /** Say of each message whether its transaction was aborted. */
  async #mark(parts: Part[], signal: AbortSignal): Promise<void> {
    if (this.cursors.length > ONE_BY_ONE) {
      await markAborted(this.scope, parts, signal);
      return;
    }
    const found = await Promise.all(parts.map(({ partition }) => this.#hasTransactions(partition, signal)));
    await markAborted(
      this.scope,
      parts.filter((_, index) => found[index]),
      signal,
    );
  }

  #hasTransactions(partition: number, signal: AbortSignal): Promise<boolean> {
    const asked = this.#transactions.get(partition) ?? hasTransactions(this.scope.topic, partition, signal);
    this.#transactions.set(partition, asked);
    asked.catch(() => this.#transactions.delete(partition));
    return asked;
  }
}

/** Open a reader where the person wants to start; `partition` undefined is all of them. */
export async function openReader(scope: Scope, signal: AbortSignal): Promise<Reader> {
  const { topic, start, pushed } = scope;
  const { partitions } = await get("/v1/topics/{topic}/partitions", { path: { topic }, signal });
  const wanted = [scope.partition, pushed.partition].filter((one) => one !== undefined);
  const chosen = partitions.filter((one) => wanted.every((number) => number === one.partition));
  const since = Math.max(start.from === "time" ? start.ms : -1, pushed.sinceMs ?? -1);
  const begins = since >= 0 ? await offsetsAt(topic, since, signal) : undefined;
  const cursors = chosen.map((one) => {
    const { first, end } = range(one, scope, begins);
    const held = Number(BigInt(one.log_end_offset) - BigInt(one.log_start_offset));
    return new Cursor(
      one.partition,
      first,
      end,
      start.from === "newest",
      held > 0 ? Number(one.size_bytes) / held : 0,
      pushed.filter ? MOST_FILTERED : MOST_RECORDS,
    );
  });
  return new Reader(scope, cursors);
}

function range(
  one: Listed,
  { start, isolation, pushed }: Scope,
  begins: Map<number, bigint> | undefined,
): { first: bigint; end: bigint } {
  const bound = BigInt(isolation === "read_committed" ? one.last_stable_offset : one.high_watermark);
  const firsts = [BigInt(one.log_start_offset)];
  if (start.from === "offset") firsts.push(start.offset);
  if (begins) firsts.push(begins.get(one.partition) ?? bound);
  if (pushed.start !== undefined) firsts.push(pushed.start);
  return {
    first: firsts.reduce((a, b) => (b > a ? b : a)),
    end: pushed.end !== undefined && pushed.end < bound ? pushed.end : bound,
  };
}

async function offsetsAt(topic: string, ms: number, signal: AbortSignal): Promise<Map<number, bigint>> {
  const found = await get("/v1/topics/{topic}/offsets", {
    path: { topic },
    query: { timestamp: String(ms) },
    signal,
  });
  const pairs = found.partitions.flatMap((one) => {
    const { offset } = one;
    return offset === null || offset === undefined ? [] : [[one.partition, BigInt(offset)] as const];
  });
  return new Map(pairs);
}
