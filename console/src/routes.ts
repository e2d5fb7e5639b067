/**
 * Every address of the console, in one table: its links, how it is read, and how it changes.
 *
 *     messages.link(["orders"], { from: "offset", at: "17", partition: 3 })
 *     const { from, at } = messages.asked();      // of the current address
 *     messages.change({ filter: "key = a" }, "push");
 */
import { href, route, setQuery } from "./ui/router";

/** A parameter of an address: read from text that anybody may have typed, and left out when it says nothing. */
interface Parameter<T> {
  read: (text: string | null) => T;
  write: (value: T) => string | undefined;
}

const text: Parameter<string> = {
  read: (typed) => typed ?? "",
  write: (value) => value || undefined,
};
const flag: Parameter<boolean> = {
  read: (typed) => typed !== null,
  write: (value) => (value ? "1" : undefined),
};
const partition: Parameter<number | undefined> = {
  read: (typed) => (typed && /^\d{1,9}$/.test(typed) ? Number(typed) : undefined),
  write: (value) => value?.toString(),
};
const offset: Parameter<bigint | undefined> = {
  read: (typed) => (typed && /^\d{1,19}$/.test(typed) ? BigInt(typed) : undefined),
  write: (value) => value?.toString(),
};

/** One of a few words; the first is what an address without it means. */
function oneOf<const T extends string>(...words: [T, ...T[]]): Parameter<T> {
  return {
    read: (typed) => words.find((word) => word === typed) ?? words[0],
    write: (value) => (value === words[0] ? undefined : value),
  };
}

/** A page: the parts of its path that stay, those that vary, and its parameters. */
class Page<P extends string[], V> {
  constructor(
    readonly path: (...parts: P) => string[],
    readonly parameters: { [K in keyof V]: Parameter<V[K]> },
  ) {}

  /** The page's address. */
  link(parts: P, values: Partial<V> = {}): string {
    return href(this.path(...parts), this.#written(values));
  }

  /** What the current address asks of the page. */
  asked(query = route.value.query): V {
    const names = Object.keys(this.parameters) as (keyof V & string)[];
    return Object.fromEntries(names.map((name) => [name, this.parameters[name].read(query.get(name))])) as V;
  }

  /** Change some of what the current address asks. */
  change(values: Partial<V>, how?: "push" | "replace"): void {
    setQuery(this.#written(values), how);
  }

  #written(values: Partial<V>): Record<string, string | undefined> {
    const names = Object.keys(values) as (keyof V & string)[];
    return Object.fromEntries(names.map((name) => [name, this.parameters[name].write(values[name] as V[typeof name])]));
  }
}

const nothing = {};

export const overview = new Page(() => [], nothing);
export const topics = new Page(() => ["topics"], {
  q: text,
  sort: oneOf("name", "partitions", "rate", "size", "last"),
  create: flag,
});
export const messages = new Page((topic: string) => ["topics", topic, "messages"], {
  from: oneOf("newest", "earliest", "offset", "time", "live"),
  /** The offset or the time that `from` needs, as it was typed. */
  at: text,
  partition,
  isolation: oneOf("read_uncommitted", "read_committed"),
  filter: text,
  /** What is shown of each message beside its value: `value.dest header.type`. */
  columns: text,
  /** The message that is shown in full: `partition/offset`. */
  open: text,
});
export const log = new Page((topic: string) => ["topics", topic, "log"], {
  partition,
  axis: oneOf("time", "bytes"),
  /** Milliseconds up to now; nothing is all of the log. */
  span: text,
  /** The base offset of the segment that is shown. */
  segment: text,
  /** The offset whose read is explained. */
  offset,
});
export const groups = new Page(() => ["groups"], { q: text });
export const group = new Page((name: string) => ["groups", name], nothing);
export const subscriptions = new Page(() => ["subscriptions"], nothing);
export const subscription = new Page((name: string) => ["subscriptions", name], nothing);
export const service = new Page((tab: string) => (tab ? ["service", tab] : ["service"]), {
  q: text,
  set: flag,
});
/** A topic's other tabs, and the topic itself: `topic.link(["orders", ""])`. */
export const topic = new Page((name: string, tab: string) => (tab ? ["topics", name, tab] : ["topics", name]), nothing);

export type MessagesAsked = ReturnType<typeof messages.asked>;

/** The address that shows one message, wherever it is opened. */
export function toMessage(name: string, place: number, at: bigint): string {
  return messages.link([name], {
    from: "offset",
    at: String(at),
    partition: place,
    open: `${place}/${at}`,
  });
}

/** The messages of a partition from an offset on. */
export function toOffset(name: string, place: number, at: bigint | number): string {
  return messages.link([name], { from: "offset", at: String(at), partition: place });
}
