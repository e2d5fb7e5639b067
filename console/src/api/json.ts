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
      return INTEGER.test(node.text) && !Number.isSafeInteger(Number(node.text))
        ? BigInt(node.text)
        : Number(node.text);
    default:
      return JSON.parse(node.text);
  }
}

/** JSON text of a value; a BigInt is written as the integer that it is. */
export function toJson(value: unknown): string {
  const mark = String(Math.random()); // so that no text within the value is taken for a marked integer
  const marked = JSON.stringify(value, (_key, one: unknown) => (typeof one === "bigint" ? `${mark} ${one}` : one));
  return marked.replace(new RegExp(`"${mark} (-?\\d+)"`, "g"), "$1");
}
