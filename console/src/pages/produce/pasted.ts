/** What a person typed or pasted, as the body of an append. */
import { toJson } from "../../api/json";

export type Format = "json" | "text" | "ndjson";

export interface Draft {
  format: Format;
  value: string;
  hasKey: boolean;
  key: string;
  headers: { key: string; value: string }[];
  isTombstone: boolean;
}

/** A message that a person wants to change and append again, until the form has taken it. */
let handed: Draft | undefined;

export function handOver(draft: Draft): void {
  handed = draft;
}

export function takeOver(): Draft | undefined {
  const draft = handed;
  handed = undefined;
  return draft;
}

export interface Body {
  contentType: "application/json" | "application/x-ndjson";
  text: string;
  records: number;
}

const RECORD_MEMBERS = new Set(["key", "value", "headers", "timestamp", "key_encoding", "value_encoding"]);

/** Return the body; throws SyntaxError that says which line is wrong. JSON is sent as it was typed, digit for digit. */
export function bodyOf(draft: Draft): Body {
  if (draft.format === "ndjson") return linesOf(draft.value);
  const members = [`"value": ${valueOf(draft)}`];
  if (draft.hasKey) members.unshift(`"key": ${toJson(draft.key)}`);
  if (draft.format === "text" && !draft.isTombstone) members.push('"value_encoding": "utf8"');
  const headers = draft.headers.filter(({ key }) => key);
  if (headers.length) members.push(`"headers": ${toJson(headers)}`);
  return {
    contentType: "application/json",
    text: `{"records": [{${members.join(", ")}}]}`,
    records: 1,
  };
}

function valueOf({ format, value, isTombstone }: Draft): string {
  if (isTombstone) return "null";
  if (format === "text") return toJson(value);
  JSON.parse(value);
  return value.trim();
}

/** NDJSON: a line that looks like a record is one; any other JSON is a record's value. */
function linesOf(text: string): Body {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  if (!lines.length) throw new SyntaxError("there is no line");
  const records = lines.map((line, index) => {
    let parsed: unknown;
    try {
      parsed = JSON.parse(line);
    } catch (error) {
      throw new SyntaxError(`line ${index + 1}: ${(error as Error).message}`, {
        cause: error,
      });
    }
    return isRecord(parsed) ? line.trim() : `{"value": ${line.trim()}}`;
  });
  return {
    contentType: "application/x-ndjson",
    text: `${records.join("\n")}\n`,
    records: records.length,
  };
}

function isRecord(parsed: unknown): boolean {
  if (typeof parsed !== "object" || parsed === null || !("value" in parsed)) return false;
  return Object.keys(parsed).every((member) => RECORD_MEMBERS.has(member));
}
