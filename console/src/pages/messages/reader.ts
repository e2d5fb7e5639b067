/** Reading a topic in the order a person asked for, one page after the other, until enough is found. */
import { get, type Schemas } from "../../api/client";
import { Message } from "./message";

type Offsets = Schemas["PartitionOffsets"];

export type Start =
  | { from: "newest" | "earliest" }
  | { from: "offset"; offset: bigint }
  | { from: "time"; ms: number };

const FIRST_RECORDS = 100;
const MOST_RECORDS = 5000;

interface Part {
  messages: Message[];
  start: bigint;
  end: bigint;
}

/** One partition between two offsets; knows what was read of it and what is left. */
class Cursor {
  readonly #total: bigint;
  buffer: Message[] = [];
  /** Messages that were handed out. */
  taken = 0;
  #records = FIRST_RECORDS;
  #ahead: Promise<Part> | undefined;

  constructor(
    readonly topic: string,
    readonly partition: number,
    public start: bigint,
    public end: bigint,
    readonly isBackward: boolean,
  ) {
    if (this.end < this.start) this.end = this.start;
    this.#total = this.end - this.start;
  }

  get isExhausted(): boolean {
    return this.start >= this.end && this.buffer.length === 0;
  }

  get total(): bigint {
    return this.#total;
  }

  /** Offsets that lie behind the cursor. */
  get scanned(): bigint {
    return this.#total - (this.end - this.start) - BigInt(this.buffer.length);
  }

  async fill(signal: AbortSignal): Promise<void> {
    while (!this.buffer.length && this.start < this.end) {
      const ahead = this.#ahead?.catch(() => undefined); // stopped, or failed: ask again
      this.#ahead = undefined;
      const part = (await ahead) ?? (await this.#part(signal));
      this.start = part.start;
      this.end = part.end;
      this.buffer = part.messages;
      if (this.#records === MOST_RECORDS && this.start < this.end) {
        this.#ahead = this.#part(signal); // the service works while the page filters
        this.#ahead.catch(() => undefined);
      }
    }
  }

  /** Read the next part; its messages are in reverse order, so that the next one is popped. */
  async #part(signal: AbortSignal): Promise<Part> {
    const window = this.#records;
    this.#records = Math.min(MOST_RECORDS, window * 2);
    const { start, end } = this;
    if (!this.isBackward) {
      const page = await this.#page(start, end, window, signal);
      return { messages: page.messages.reverse(), start: page.next, end };
    }
    const from = end - BigInt(window) > start ? end - BigInt(window) : start;
    const messages: Message[] = [];
    for (let next = from; next < end; ) {
      const page = await this.#page(next, end, window, signal);
      messages.push(...page.messages);
      next = page.next;
    }
    return { messages, start, end: from };
  }

  async #page(offset: bigint, end: bigint, records: number, signal: AbortSignal): Promise<{ messages: Message[]; next: bigint }> {
    const page = await get("/v1/topics/{topic}/partitions/{partition}/records", {
      path: { topic: this.topic, partition: this.partition },
      query: {
        offset: String(offset),
        end_offset: end,
        max_records: records,
        encoding: "base64",
        offsets: "string",
        on_out_of_range: "earliest",
      },
      signal,
    });
    const next = BigInt(page.next_offset);
    return {
      messages: page.records.map((record) => new Message(this.partition, record)),
      next: next > offset ? next : end,
    };
  }
}

/** Several partitions merged by time; each keeps its own order. */
export class Reader {
  readonly #cursors: Cursor[];
  readonly #isBackward: boolean;

  constructor(topic: string, marks: { partition: number; start: bigint; end: bigint }[], isBackward: boolean) {
    this.#isBackward = isBackward;
    this.#cursors = marks.map(({ partition, start, end }) => new Cursor(topic, partition, start, end, isBackward));
  }

  get isExhausted(): boolean {
    return this.#cursors.every((cursor) => cursor.isExhausted);
  }

  get scanned(): number {
    return this.#cursors.reduce((sum, cursor) => sum + Number(cursor.scanned), 0);
  }

  get total(): number {
    return this.#cursors.reduce((sum, cursor) => sum + Number(cursor.total), 0);
  }

  /** Return the next messages in order, at least one unless all is read; as many as are at hand. */
  async next(signal: AbortSignal): Promise<Message[]> {
    const waiting = this.#cursors.filter((cursor) => !cursor.isExhausted);
    await Promise.all(waiting.map((cursor) => cursor.fill(signal)));
    const active = waiting.filter((cursor) => cursor.buffer.length);
    const merged: Message[] = [];
    while (active.length) {
      const first = active.reduce((best, cursor) => (this.#isBefore(cursor, best) ? cursor : best));
      merged.push(first.buffer.pop() as Message);
      first.taken += 1;
      if (!first.buffer.length && !first.isExhausted) break; // its next page may hold what comes next
      if (!first.buffer.length) active.splice(active.indexOf(first), 1);
    }
    return merged;
  }

  #isBefore(one: Cursor, other: Cursor): boolean {
    const a = Number(one.buffer.at(-1)?.timestamp ?? 0);
    const b = Number(other.buffer.at(-1)?.timestamp ?? 0);
    if (a === b) return one.taken < other.taken; // records of one instant: from each partition in turn
    return this.#isBackward ? a > b : a < b;
  }
}

/** Open a reader where the person wants to start; `partition` undefined is all of them. */
export async function openReader(topic: string, partition: number | undefined, start: Start, signal: AbortSignal): Promise<Reader> {
  const now = await get("/v1/topics/{topic}/offsets", { path: { topic }, signal });
  const chosen = now.partitions.filter((one) => partition === undefined || one.partition === partition);
  const begins = start.from === "time" ? await offsetsAt(topic, start.ms, signal) : new Map<number, bigint>();
  const marks = chosen.map((one) => ({ partition: one.partition, ...range(one, start, begins) }));
  return new Reader(topic, marks, start.from === "newest");
}

function range(one: Offsets, start: Start, begins: Map<number, bigint>): { start: bigint; end: bigint } {
  const first = BigInt(one.log_start_offset ?? 0);
  const end = BigInt(one.high_watermark ?? 0);
  if (start.from === "offset") return { start: start.offset > first ? start.offset : first, end };
  if (start.from === "time") return { start: begins.get(one.partition) ?? end, end };
  return { start: first, end };
}

async function offsetsAt(topic: string, ms: number, signal: AbortSignal): Promise<Map<number, bigint>> {
  const found = await get("/v1/topics/{topic}/offsets", { path: { topic }, query: { timestamp: String(ms) }, signal });
  const pairs = found.partitions.flatMap((one) => {
    const { offset } = one;
    return offset === null || offset === undefined ? [] : [[one.partition, BigInt(offset)] as const];
  });
  return new Map(pairs);
}
