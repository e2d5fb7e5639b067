/** Messages as others take them: NDJSON that can be appended again, and the curl that reads the same. */
import { HOME } from "../../place";
import { toJson } from "../../api/json";
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
  return text === null ? { [name]: base64, [`${name}_encoding`]: "base64" } : { [name]: text, [`${name}_encoding`]: "utf8" };
}

function headerValue(base64: string | null): Record<string, unknown> {
  if (base64 === null) return { value: null };
  const text = textOf(bytesOf(base64));
  return text === null ? { value: base64, encoding: "base64" } : { value: text };
}

/** A record per line, also for readers that end a line at U+0085, U+2028 or U+2029. */
export function ndjsonOf(messages: Message[]): string {
  const lines = messages.map((message) => `${toJson(recordOf(message))}\n`).join("");
  return lines.replace(/[\u0085\u2028\u2029]/g, (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Have the browser save a text as a file. */
export function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Text as one word of a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function curlOf(path: string): string {
  return `curl ${quoted(`${HOME}${path}`)}`;
}
