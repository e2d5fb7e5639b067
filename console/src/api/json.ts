/** JSON whose integers beyond 2^53 stay exact: they become BigInt. */
import { treeOf, type Node } from "./json_tree";

const LONG_DIGITS = /\d{16}/;
const INTEGER = /^-?\d+$/;

export function parseJson(text: string): unknown {
  const tree = LONG_DIGITS.test(text) ? treeOf(text) : null;
  return tree ? valueOf(tree) : JSON.parse(text);
}

function valueOf(node: Node): unknown {
  switch (node.kind) {
    case "object":
      return Object.fromEntries(node.members.map(([name, member]) => [name, valueOf(member)]));
    case "array":
      return node.items.map(valueOf);
    case "string":
      return node.text;
    case "number":
      return INTEGER.test(node.text) && !Number.isSafeInteger(Number(node.text)) ? BigInt(node.text) : Number(node.text);
    default:
      return JSON.parse(node.text);
  }
}

/** JSON text of a value; a BigInt is written as the integer that it is. */
export function toJson(value: unknown): string {
  const marked = JSON.stringify(value, (_key, one: unknown) => (typeof one === "bigint" ? `\u0000${one}\u0000` : one));
  return marked.replace(/"\\u0000(-?\d+)\\u0000"/g, "$1");
}
