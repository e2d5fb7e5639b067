/** Avro's binary encoding as JSON text (Apache Avro 1.12, "Binary Encoding"): numbers keep every digit. */
import { base64Of } from "../message";
import { ValueError } from "./value_error";

/** Writes one value of a type that begins at the reader's position. */
type Writer = (reader: Bytes) => string;

const DEEPEST = 100;
/** Items and members of one value: an array of nulls takes no bytes, however long it says it is. */
const MOST_ITEMS = 1_000_000;
const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** The bytes of one value, read from the front. */
class Bytes {
  #at = 0;
  #items = 0;
  #depth = 0;
  readonly #view: DataView;

  constructor(readonly bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get left(): number {
    return this.bytes.length - this.#at;
  }

  take(length: number): Uint8Array {
    if (length < 0 || length > this.left)
      throw new ValueError(`${length} bytes are expected at byte ${this.#at}, ${this.left} are left`);
    this.#at += length;
    return this.bytes.subarray(this.#at - length, this.#at);
  }

  /** A zigzag integer of up to 64 bits. */
  long(): bigint {
    let found = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.take(1)[0] ?? 0;
      found |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, (found >> 1n) ^ -(found & 1n));
    }
    throw new ValueError(`an integer of more than ten bytes ends at byte ${this.#at}`);
  }

  /** An integer that counts or chooses something. */
  count(): number {
    const found = this.long();
    if (found < -BigInt(MOST_ITEMS) || found > BigInt(Number.MAX_SAFE_INTEGER))
      throw new ValueError(`a length of ${found} stands before byte ${this.#at}`);
    return Number(found);
  }

  float(): string {
    this.take(4);
    return numeral(this.#view.getFloat32(this.#at - 4, true));
  }

  double(): string {
    this.take(8);
    return numeral(this.#view.getFloat64(this.#at - 8, true));
  }

  text(): string {
    const bytes = this.take(this.count());
    try {
      return UTF8.decode(bytes);
    } catch {
      throw new ValueError(`a string before byte ${this.#at} is not UTF-8`);
    }
  }

  /** The items of an array or map: blocks, each with its number of items, the last one empty. */
  blocks(item: () => string): string[] {
    const items: string[] = [];
    for (;;) {
      let length = this.count();
      if (length === 0) return items;
      if (length < 0) {
        this.long(); // the block's size in bytes, for readers that pass over it
        length = -length;
      }
      this.#items += length;
      if (this.#items > MOST_ITEMS) throw new ValueError(`the value has more than ${MOST_ITEMS} items`);
      for (let count = 0; count < length; count += 1) items.push(item());
    }
  }

  /** Write what lies one level deeper. */
  inner(writer: Writer): string {
    this.#depth += 1;
    if (this.#depth > DEEPEST) throw new ValueError(`the value is nested more than ${DEEPEST} levels deep`);
    const text = writer(this);
    this.#depth -= 1;
    return text;
  }
}

/** A number as JSON has it; what JSON has no number for, as a string. */
function numeral(value: number): string {
  return Number.isFinite(value) ? JSON.stringify(value) : JSON.stringify(String(value));
}

const base64 = (bytes: Uint8Array): string => JSON.stringify(base64Of(bytes));

const PRIMITIVES: Record<string, Writer> = {
  null: () => "null",
  boolean: (reader) => (reader.take(1)[0] ? "true" : "false"),
  int: (reader) => String(reader.long()),
  long: (reader) => String(reader.long()),
  float: (reader) => reader.float(),
  double: (reader) => reader.double(),
  string: (reader) => JSON.stringify(reader.text()),
  bytes: (reader) => base64(reader.take(reader.count())),
};

/** Return what writes values of a schema as JSON text; ValueError if it is none. */
export function avroReader(definition: string): (value: Uint8Array) => string {
  const writer = new Schema().writer(JSON.parse(definition), "");
  return (value) => {
    const reader = new Bytes(value);
    const text = writer(reader);
    if (reader.left) throw new ValueError(`${reader.left} bytes are left behind the value`);
    return text;
  };
}

/** A schema while it is read: the names that it has given so far. */
class Schema {
  readonly #named = new Map<string, Writer>();

  writer(type: unknown, space: string): Writer {
    if (typeof type === "string") return this.#reference(type, space);
    if (Array.isArray(type)) return this.#union(type, space);
    if (typeof type !== "object" || type === null) throw new ValueError(`${JSON.stringify(type)} is no type`);
    const schema = type as Record<string, unknown>;
    switch (schema.type) {
      case "record":
      case "error":
        return this.#record(schema, space);
      case "enum": {
        const symbols = listed(schema, "symbols").map((symbol) => JSON.stringify(symbol));
        return this.#name(schema, space, (reader) => chosen(symbols, reader.count(), "symbol"));
      }
      case "fixed": {
        const size = Number(schema.size);
        if (!(size >= 0)) throw new ValueError(`the fixed type ${String(schema.name)} has no size`);
        return this.#name(
          schema,
          space,
          logical(schema, (reader) => base64(reader.take(size)), size),
        );
      }
      case "array": {
        const items = this.writer(schema.items, space);
        return (reader) => `[${reader.blocks(() => reader.inner(items)).join(",")}]`;
      }
      case "map": {
        const values = this.writer(schema.values, space);
        return (reader) =>
          `{${reader.blocks(() => `${JSON.stringify(reader.text())}:${reader.inner(values)}`).join(",")}}`;
      }
      default:
        return logical(schema, this.writer(schema.type, space));
    }
  }

  #reference(name: string, space: string): Writer {
    const found = PRIMITIVES[name] ?? this.#named.get(qualified(name, space)) ?? this.#named.get(name);
    if (!found) throw new ValueError(`the type ${name} is not defined`);
    return found;
  }

  #union(types: unknown[], space: string): Writer {
    const writers = types.map((type) => this.writer(type, space));
    return (reader) => chosen(writers, reader.count(), "branch")(reader);
  }

  #record(schema: Record<string, unknown>, space: string): Writer {
    let write: Writer = () => "";
    // a record may contain itself: its name is known before its fields are
    const name = this.#name(schema, space, (reader) => reader.inner(write));
    const inner = spaceOf(schema, space);
    const fields = listed(schema, "fields").map((field) => {
      const { name: member, type } = field as { name?: unknown; type?: unknown };
      if (typeof member !== "string") throw new ValueError(`a field of ${String(schema.name)} has no name`);
      return { head: `${JSON.stringify(member)}:`, writer: this.writer(type, inner) };
    });
    write = (reader) => `{${fields.map(({ head, writer }) => head + writer(reader)).join(",")}}`;
    return name;
  }

  #name(schema: Record<string, unknown>, space: string, writer: Writer): Writer {
    if (typeof schema.name !== "string") throw new ValueError(`a type ${String(schema.type)} has no name`);
    const own = spaceOf(schema, space);
    this.#named.set(qualified(schema.name, own), writer);
    for (const alias of Array.isArray(schema.aliases) ? schema.aliases : [])
      this.#named.set(qualified(String(alias), own), writer);
    return writer;
  }
}

function listed(schema: Record<string, unknown>, member: string): unknown[] {
  const list = schema[member];
  if (!Array.isArray(list)) throw new ValueError(`${String(schema.name)} has no ${member}`);
  return list;
}

function chosen<T>(list: T[], index: number, what: string): T {
  const found = list[index];
  if (found === undefined) throw new ValueError(`there is no ${what} ${index}: the type has ${list.length}`);
  return found;
}

const qualified = (name: string, space: string): string => (name.includes(".") || !space ? name : `${space}.${name}`);

function spaceOf(schema: Record<string, unknown>, space: string): string {
  const name = String(schema.name);
  if (name.includes(".")) return name.slice(0, name.lastIndexOf("."));
  return typeof schema.namespace === "string" ? schema.namespace : space;
}

/** What a logical type means, where a person reads it more easily than the number below it. */
function logical(schema: Record<string, unknown>, plain: Writer, size?: number): Writer {
  const below = typeof schema.type === "string" ? schema.type : "";
  switch (schema.logicalType) {
    case "decimal": {
      const scale = Number(schema.scale ?? 0);
      if (below !== "bytes" && below !== "fixed") return plain;
      return (reader) => decimal(reader.take(size ?? reader.count()), scale);
    }
    case "date":
      return below === "int" ? (reader) => instant(reader.long() * 86_400_000n, 1n, 10) : plain;
    case "timestamp-millis":
      return below === "long" ? (reader) => instant(reader.long(), 1n) : plain;
    case "timestamp-micros":
      return below === "long" ? (reader) => instant(reader.long(), 1000n) : plain;
    case "timestamp-nanos":
      return below === "long" ? (reader) => instant(reader.long(), 1_000_000n) : plain;
    default:
      return plain;
  }
}

/** Two's complement, the most significant byte first, with so many digits behind the point. */
function decimal(bytes: Uint8Array, scale: number): string {
  const unsigned = bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  const value = BigInt.asIntN(8 * bytes.length, unsigned);
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  return `${value < 0n ? "-" : ""}${whole}${scale ? `.${digits.slice(-scale)}` : ""}`;
}

/** An instant in UTC as RFC 3339, with every digit that is stored; as the number where no date can say it. */
function instant(value: bigint, perMs: bigint, characters?: number): string {
  const ms = value / perMs - (value % perMs < 0n ? 1n : 0n);
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return String(value);
  const iso = date.toISOString();
  const rest = perMs > 1n ? String(value - ms * perMs).padStart(String(perMs).length - 1, "0") : "";
  return JSON.stringify(characters ? iso.slice(0, characters) : iso.replace("Z", `${rest}Z`));
}
