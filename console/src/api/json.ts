/** JSON whose integers beyond 2^53 stay exact: they become BigInt. */

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

const LONG_DIGITS = /\d{16}/;
const INTEGER = /^-?\d+$/;

const exact: Reviver = (_key, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && INTEGER.test(context?.source ?? "")
    ? BigInt(context?.source ?? "")
    : value;

export function parseJson(text: string): unknown {
  return LONG_DIGITS.test(text) ? JSON.parse(text, exact as Parameters<typeof JSON.parse>[1]) : JSON.parse(text);
}

/** JSON text of a value; a BigInt is written as the integer that it is. */
export function toJson(value: unknown): string {
  const marked = JSON.stringify(value, (_key, one: unknown) => (typeof one === "bigint" ? `\u0000${one}\u0000` : one));
  return marked.replace(/"\\u0000(-?\d+)\\u0000"/g, "$1");
}
