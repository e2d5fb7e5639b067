/** Messages as others take them: NDJSON that can be appended again, and the curl that reads the same. */
import type { Int } from "../../api/client";
import { toJson } from "../../api/json";
import { treeOf } from "../../api/json_tree";
import type { Draft } from "../produce/pasted";
import { cellOf, type Column } from "./columns";
import { bytesOf, textOf, type Message } from "./message";

/** A message as a record that an append takes: text where the bytes are text, else base64. */
export function recordOf(message: Message, keepsTime = true): Record<string, unknown> {
  return {
    ...field("key", message.key64),
    ...field("value", message.value64),
    headers: message.headers.map(({ key, value }) => ({ key, ...headerValue(value) })),
    ...(keepsTime && BigInt(message.timestamp) >= 0n ? { timestamp: message.timestamp } : {}),
  };
}

function field(name: "key" | "value", base64: string | null): Record<string, unknown> {
  if (base64 === null) return { [name]: null };
  const text = textOf(bytesOf(base64));
  return text === null
    ? { [name]: base64, [`${name}_encoding`]: "base64" }
    : { [name]: text, [`${name}_encoding`]: "utf8" };
}

function headerValue(base64: string | null): Record<string, unknown> {
  if (base64 === null) return { value: null };
  const text = textOf(bytesOf(base64));
  return text === null ? { value: base64, encoding: "base64" } : { value: text };
}

/** A message as a form takes it: key, value and headers apart, or the record as a line if they are no text. */
export function draftOf(message: Message): Draft {
  const record = recordOf(message, false);
  const headers = record.headers as { key: string; value: string | null; encoding?: string }[];
  const isText = record.key_encoding !== "base64" && record.value_encoding !== "base64";
  const isPlain = headers.every(({ value, encoding }) => value !== null && encoding === undefined);
  const empty = { hasKey: false, key: "", headers: [], isTombstone: false };
  if (!isText || !isPlain) return { ...empty, format: "ndjson", value: toJson(record) };
  const value = record.value as string | null;
  return {
    format: value === null || treeOf(value) ? "json" : "text",
    value: value ?? "",
    hasKey: record.key !== null,
    key: (record.key as string | null) ?? "",
    headers: headers.map(({ key, value: text }) => ({ key, value: text ?? "" })),
    isTombstone: value === null,
  };
}

/** A record per line, also for readers that end a line at U+0085, U+2028 or U+2029. */
export function ndjsonOf(messages: Message[]): string {
  return linesOf(messages, (message) => recordOf(message));
}

function linesOf(messages: Message[], written: (message: Message) => Record<string, unknown>): string {
  const lines = messages.map((message) => `${toJson(written(message))}\n`).join("");
  return lines.replace(/[\u0085\u2028\u2029]/g, (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export type FileFormat = "ndjson" | "places" | "csv";

interface Writer {
  label: string;
  hint: string;
  type: string;
  head: (columns: Column[]) => string;
  lines: (messages: Message[], columns: Column[]) => string;
}

export const FORMATS: Record<FileFormat, Writer> = {
  ndjson: {
    label: "NDJSON, to be appended again",
    hint: "A record a line: key, value, headers and time, as an append takes them.",
    type: "application/x-ndjson",
    head: () => "",
    lines: ndjsonOf,
  },
  places: {
    label: "NDJSON with partition and offset",
    hint: "For other programs; an append does not take partition and offset.",
    type: "application/x-ndjson",
    head: () => "",
    lines: (messages) => linesOf(messages, (one) => ({ ...placeOf(one), ...recordOf(one) })),
  },
  csv: {
    label: "CSV",
    hint: "Partition, offset, time, key, value, headers as JSON, and the columns that are shown. Bytes that are no text are in base64, and values with a schema are decoded, as key_encoding and value_encoding say.",
    type: "text/csv",
    head: (columns) => csvLine([...CSV_COLUMNS, ...columns.map((one) => one.title)]),
    lines: (messages, columns) => messages.map((one) => csvOf(one, columns)).join(""),
  },
};

const CSV_COLUMNS = [
  "partition",
  "offset",
  "timestamp",
  "key",
  "key_encoding",
  "value",
  "value_encoding",
  "headers",
] as const;

function placeOf(message: Message): Record<string, unknown> {
  return { partition: message.partition, offset: message.offset };
}

function csvOf(message: Message, columns: Column[]): string {
  const record: Record<string, unknown> = { ...placeOf(message), timestamp: message.timestamp, ...recordOf(message) };
  record.headers = toJson(record.headers);
  if (message.decoded !== null) Object.assign(record, { value: message.decoded, value_encoding: "decoded" });
  const own = columns.map((column) => cellOf(message, column)?.text);
  return csvLine([...CSV_COLUMNS.map((name) => record[name] as Int | string | null | undefined), ...own]);
}

/** A line of RFC 4180; what is not there is empty, an empty text has quotation marks. */
function csvLine(values: (Int | string | null | undefined)[]): string {
  const cells = values.map((value) => {
    if (value === null || value === undefined) return "";
    const text = String(value);
    return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  });
  return `${cells.join(",")}\r\n`;
}

/** Have the browser save a file. */
export function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
