/** Columns of the list: what is shown of keys, values and headers beside each message. */
import { treeOf, writtenAs, type Node } from "../../api/json_tree";
import { FilterError, fieldsOf, nodesOf, type Field } from "./filter";
import type { Message } from "./message";

export interface Column {
  /** As it was written: `value.dest`. */
  title: string;
  field: Field;
}

export interface Cell {
  kind: Node["kind"];
  text: string;
}

export const MOST_COLUMNS = 12;
const MOST_CHARACTERS = 300;
/** Messages that are looked at, and fields that are offered. */
const LOOKED_AT = 20;
const MOST_OFFERED = 30;

/** The columns that a text names, separated by spaces or commas; a string says what is wrong with it. */
export function columnsOf(text: string): Column[] | string {
  try {
    const columns = fieldsOf(text);
    return columns.length > MOST_COLUMNS ? `At most ${MOST_COLUMNS} columns are shown.` : columns;
  } catch (error) {
    if (error instanceof FilterError) return `${error.message} (at character ${error.position + 1})`;
    throw error;
  }
}

const known = new WeakMap<Message, Map<string, Cell | undefined>>();

/** What a message has in a column; undefined if it has nothing there. */
export function cellOf(message: Message, { title, field }: Column): Cell | undefined {
  const cells = known.get(message) ?? new Map<string, Cell | undefined>();
  known.set(message, cells);
  if (!cells.has(title)) cells.set(title, read(message, field));
  return cells.get(title);
}

function read(message: Message, field: Field): Cell | undefined {
  if (field.name === "time") return { kind: "number", text: String(message.timestamp) };
  if (field.name === "offset" || field.name === "partition" || field.name === "size")
    return { kind: "number", text: String(message[field.name]) };
  const nodes = nodesOf(message, field);
  const [first] = nodes;
  if (!first) return undefined;
  const text = nodes.map((node) => ("text" in node ? node.text : writtenAs(node))).join(", ");
  return { kind: nodes.length === 1 ? first.kind : "array", text: text.slice(0, MOST_CHARACTERS) };
}

/** Fields that some messages have, as columns are written: headers, and the members of JSON objects. */
export function offered(messages: Message[]): string[] {
  const found = new Set<string>();
  for (const message of messages.slice(0, LOOKED_AT)) {
    for (const { key } of message.headers)
      found.add(`header${/^[\w.-]+$/.test(key) ? `.${key}` : `["${escaped(key)}"]`}`);
    const text = message.valueText;
    const tree = text ? treeOf(text) : null;
    if (tree?.kind !== "object") continue;
    for (const [name] of tree.members)
      found.add(`value${/^[\p{L}\p{N}_$-]+$/u.test(name) ? `.${name}` : `["${escaped(name)}"]`}`);
  }
  return [...found].slice(0, MOST_OFFERED);
}

function escaped(text: string): string {
  return text.replace(/["\\]/g, "\\$&");
}
