/** A record as the page holds it: exact offset, exact bytes, decoded when they are looked at. */
import type { Int, Schemas } from "../../api/client";
import { whyOf } from "../../ui/format";

export type Wire = Schemas["RecordOut"] | Schemas["RecordOutWithStringOffset"];

/** Returns a value as JSON text, and throws if the value is not what its schema says. */
export type Decode = (value: Uint8Array) => string;

const STRICT = new TextDecoder("utf-8", { fatal: true });
const PREVIEW_CHARACTERS = 300;

export class Message {
  readonly offset: bigint;
  readonly timestamp: Int;
  readonly isAppendTime: boolean;
  readonly leaderEpoch: number;
  readonly headers: { key: string; value: string | null }[];
  /** Why readers of committed records do not get it: its transaction was aborted, or an earlier one is open. */
  transaction: "aborted" | "open" | undefined;
  #key: string | null;
  #value: string | null;
  #preview: string | undefined;
  #decoded: { text: string | null; why: string } | undefined;

  /** Takes a record that was read with `encoding=base64`. */
  constructor(
    readonly partition: number,
    wire: Wire,
    readonly decode?: Decode,
    /** Fields that are not in it any more, as they were named. */
    readonly hidden: readonly string[] = [],
  ) {
    this.offset = BigInt(wire.offset);
    this.timestamp = wire.timestamp;
    this.isAppendTime = wire.timestamp_type === "append";
    this.leaderEpoch = wire.leader_epoch;
    this.#key = wire.key as string | null;
    this.#value = wire.value as string | null;
    this.headers = wire.headers.map(({ key, value }) => ({
      key,
      value: value as string | null,
    }));
  }

  get id(): string {
    return `${this.partition}/${this.offset}`;
  }

  /** The key as base64; null if there is none. */
  get key64(): string | null {
    return this.#key;
  }

  /** The value as base64; null for a tombstone. */
  get value64(): string | null {
    return this.#value;
  }

  get keyBytes(): Uint8Array | null {
    return this.#key === null ? null : bytesOf(this.#key);
  }

  get valueBytes(): Uint8Array | null {
    return this.#value === null ? null : bytesOf(this.#value);
  }

  get keyText(): string | null {
    return this.#key === null ? null : shownText(bytesOf(this.#key));
  }

  /** The value as JSON by its schema; null without one, or if it is not what the schema says. */
  get decoded(): string | null {
    return this.#decode().text;
  }

  /** Why the value is not decoded; empty if it is, or if there is no schema. */
  get undecodable(): string {
    return this.#decode().why;
  }

  #decode(): { text: string | null; why: string } {
    if (!this.#decoded) {
      this.#decoded = { text: null, why: "" };
      if (this.decode && this.#value !== null)
        try {
          this.#decoded.text = this.decode(bytesOf(this.#value));
        } catch (error) {
          this.#decoded.why = whyOf(error);
        }
    }
    return this.#decoded;
  }

  /** The value as text, decoded or as it is; null if it is neither, and for a tombstone. */
  get valueText(): string | null {
    return this.decoded ?? (this.valueBytes && textOf(this.valueBytes));
  }

  /** One line that begins like the value. */
  get preview(): string {
    this.#preview ??= (this.decoded ?? this.#beginning()).slice(0, PREVIEW_CHARACTERS).replace(/\s+/g, " ");
    return this.#preview;
  }

  #beginning(): string {
    return shownText(bytesOf((this.#value ?? "").slice(0, 4 * Math.ceil(PREVIEW_CHARACTERS / 3) * 2)));
  }

  /** Bytes of the value. */
  get size(): number {
    return sizeOf(this.#value);
  }

  /** Bytes of the record in a log, about. */
  get storedBytes(): number {
    return (
      this.size + sizeOf(this.#key) + this.headers.reduce((sum, { key, value }) => sum + key.length + sizeOf(value), 8)
    );
  }
}

/** Bytes of what is written as base64. */
function sizeOf(base64: string | null): number {
  if (base64 === null) return 0;
  const padding = base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0;
  return (base64.length / 4) * 3 - padding;
}

export function bytesOf(base64: string): Uint8Array {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function base64Of(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** A text in UTF-8 as base64. */
export const base64OfText = (text: string): string => base64Of(new TextEncoder().encode(text));

/** The text that bytes are in UTF-8; null if they are no text. */
export function textOf(bytes: Uint8Array): string | null {
  try {
    return STRICT.decode(bytes);
  } catch {
    return null;
  }
}

const CONTROL = /[\u0000-\u0008\u000e-\u001f\u007f]/;

/** Text if the bytes are text a person can read, else hexadecimal; a character cut off at the end does not count. */
export function shownText(bytes: Uint8Array): string {
  for (let cut = 0; cut < Math.min(4, bytes.length + 1); cut += 1) {
    const text = textOf(cut ? bytes.subarray(0, bytes.length - cut) : bytes);
    if (text !== null) return CONTROL.test(text) ? hexOf(bytes) : text;
  }
  return hexOf(bytes);
}

export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** Lines of a hex dump: position, sixteen bytes, and what of them can be read. */
export function hexDump(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = bytes.subarray(at, at + 16);
    const readable = Array.from(part, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hexOf(part).padEnd(47)}  ${readable}`);
  }
  return lines.join("\n");
}

/** Whether a record with such a value is shown as text, for the line that says its encoding. */
export function kindOf(bytes: Uint8Array | null): "none" | "json" | "text" | "binary" {
  if (bytes === null) return "none";
  const text = textOf(bytes);
  if (text === null || CONTROL.test(text)) return "binary";
  try {
    JSON.parse(text);
    return "json";
  } catch {
    return "text";
  }
}
