/**
 * Filters of messages: a closed grammar, evaluated here, never code.
 *
 *     key = "AA17"   value.dest = MIA and value.delay_minutes >= 30   header.trace ~ 4bf9
 *     time > -1h     not (key ~ test or value.tags[0] = x)            "any text"
 */
import { at, treeOf, type Node } from "../../api/json_tree";
import { shownText, textOf, type Message } from "./message";

export type Filter = (message: Message) => boolean;

export class FilterError extends Error {
  constructor(
    message: string,
    readonly position: number,
  ) {
    super(message);
  }
}

type Operator = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~";
interface Token {
  kind: "word" | "text" | "operator" | "bracket";
  text: string;
  position: number;
}

const TOKEN = /\s*(?:("(?:[^"\\]|\\.)*")|(!=|<=|>=|!~|[=<>~])|([()])|([^\s()=<>~!"]+))/y;
const FIELD = /^(?:(key|value)((?:\.[\w$-]+|\[\d+\])*)|header\.(.+)|time|offset|partition|size)$/;
const AGO = /^-(\d+(?:\.\d+)?)(s|min|h|d)$/;
const MS: Record<string, number> = { s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000 };

function tokensOf(text: string): Token[] {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const start = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) throw new FilterError("a quotation mark is not closed, or a character has no meaning here", start);
    const [whole, quoted, operator, bracket, word] = match;
    const found = quoted ?? operator ?? bracket ?? word ?? "";
    const position = start + whole.length - found.length;
    if (quoted !== undefined) tokens.push({ kind: "text", text: quoted.slice(1, -1).replace(/\\(.)/g, "$1"), position });
    else tokens.push({ kind: operator ? "operator" : bracket ? "bracket" : "word", text: found, position });
  }
  return tokens;
}

/** Return the filter that a text means; an empty text lets everything pass. Throws FilterError. */
export function filterOf(text: string, now = Date.now()): Filter {
  const tokens = tokensOf(text);
  if (!tokens.length) return () => true;
  let next = 0;
  const isWord = (word: string): boolean => tokens[next]?.kind === "word" && tokens[next]?.text.toLowerCase() === word;
  const isBracket = (bracket: string): boolean => tokens[next]?.kind === "bracket" && tokens[next]?.text === bracket;
  const fail = (message: string): never => {
    throw new FilterError(message, tokens[next]?.position ?? text.length);
  };

  const either = (): Filter => {
    const parts = [both()];
    while (isWord("or")) {
      next += 1;
      parts.push(both());
    }
    return parts.length === 1 ? (parts[0] as Filter) : (message) => parts.some((part) => part(message));
  };
  const both = (): Filter => {
    const parts = [one()];
    while (next < tokens.length && !isWord("or") && !isBracket(")")) {
      if (isWord("and")) next += 1;
      parts.push(one());
    }
    return parts.length === 1 ? (parts[0] as Filter) : (message) => parts.every((part) => part(message));
  };
  const one = (): Filter => {
    const token = tokens[next] ?? fail("something to compare is missing");
    if (isWord("not")) {
      next += 1;
      const inner = one();
      return (message) => !inner(message);
    }
    if (isBracket("(")) {
      next += 1;
      const inner = either();
      if (!isBracket(")")) fail("a bracket is not closed");
      next += 1;
      return inner;
    }
    if (token.kind === "operator" || token.kind === "bracket") fail(`“${token.text}” cannot stand here`);
    next += 1;
    const operator = tokens[next];
    if (operator?.kind !== "operator") return anywhere(token.text);
    next += 1;
    const operand = tokens[next] ?? fail(`a value is missing after “${operator.text}”`);
    if (operand.kind === "operator" || operand.kind === "bracket") fail(`a value is missing after “${operator.text}”`);
    next += 1;
    return comparison(token, operator.text as Operator, operand, now);
  };

  const filter = either();
  if (next < tokens.length) fail("a bracket is closed that was not opened");
  return filter;
}

function anywhere(text: string): Filter {
  const wanted = text.toLowerCase();
  return (message) => (message.keyText?.toLowerCase().includes(wanted) ?? false) || valueText(message).toLowerCase().includes(wanted);
}

function valueText(message: Message): string {
  const bytes = message.valueBytes;
  return bytes === null ? "" : shownText(bytes);
}

function comparison(field: Token, operator: Operator, operand: Token, now: number): Filter {
  const match = FIELD.exec(field.text);
  if (!match) {
    throw new FilterError(`“${field.text}” is not a field: key, value, value.member, header.name, time, offset, partition, size`, field.position);
  }
  const [name, whole, path = "", header] = match;
  if (header !== undefined) {
    return (message) =>
      message.headers.some((one) => one.key === header && compared(one.value === null ? null : shownText(decoded(one.value)), operator, operand));
  }
  if (whole && path) {
    const parts = [...path.matchAll(/\.([\w$-]+)|\[(\d+)\]/g)].map(([, member, index]) => member ?? index ?? "");
    return (message) => {
      const bytes = whole === "key" ? message.keyBytes : message.valueBytes;
      const text = bytes && textOf(bytes);
      return comparedNode(text === null ? undefined : at(treeOf(text), parts), operator, operand);
    };
  }
  if (name === "key" && operator === "=" && operand.text !== "null") {
    const wanted = btoa(String.fromCharCode(...new TextEncoder().encode(operand.text)));
    return (message) => message.key64 === wanted; // millions of keys are not decoded
  }
  if (name === "key") return (message) => compared(message.keyText, operator, operand);
  if (name === "value") return (message) => compared(message.valueBytes === null ? null : valueText(message), operator, operand);
  if (name === "time") return time(operator, operand, now);
  return number(name as "offset" | "partition" | "size", operator, operand);
}

function decoded(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function time(operator: Operator, operand: Token, now: number): Filter {
  const ago = AGO.exec(operand.text);
  const ms = ago
    ? now - Number(ago[1]) * (MS[ago[2] ?? ""] ?? 0)
    : /^\d{10,}$/.test(operand.text)
      ? Number(operand.text)
      : new Date(operand.text.length === 10 ? `${operand.text}T00:00` : operand.text.replace(" ", "T")).getTime();
  if (Number.isNaN(ms)) {
    throw new FilterError("a time is like 2026-11-23, 2026-11-23T14:05, -1h or milliseconds", operand.position);
  }
  return (message) => ordered(Number(message.timestamp) - ms, operator);
}

function number(field: "offset" | "partition" | "size", operator: Operator, operand: Token): Filter {
  if (!/^\d+$/.test(operand.text)) throw new FilterError(`${field} is compared with a whole number`, operand.position);
  const wanted = BigInt(operand.text);
  return (message) => ordered(Number(BigInt(message[field]) - wanted), operator);
}

/** Compare text; an absent one equals the word `null` only, and no text does. Numbers on both sides are compared as numbers by < and >. */
function compared(text: string | null, operator: Operator, operand: Token): boolean {
  const wanted = operand.text;
  if (operand.kind === "word" && wanted === "null") return (text === null) === (operator === "=");
  if (text === null) return operator === "!=" || operator === "!~";
  if (operator === "=") return text === wanted;
  if (operator === "!=") return text !== wanted;
  if (operator === "~") return text.toLowerCase().includes(wanted.toLowerCase());
  if (operator === "!~") return !text.toLowerCase().includes(wanted.toLowerCase());
  return ordered(isNumber(text) && isNumber(wanted) ? difference(text, wanted) : text < wanted ? -1 : text > wanted ? 1 : 0, operator);
}

function comparedNode(node: Node | undefined, operator: Operator, operand: Token): boolean {
  if (!node) return operator === "!=" || operator === "!~";
  if (node.kind === "object" || node.kind === "array") {
    const text = JSON.stringify(node.kind === "array" ? node.items : node.members);
    return operator === "~" ? text.includes(operand.text) : operator === "!~" ? !text.includes(operand.text) : operator === "!=";
  }
  if (node.kind === "number" && isNumber(operand.text) && (operator === "=" || operator === "!=")) {
    return ordered(difference(node.text, operand.text), operator);
  }
  return compared(node.kind === "null" ? null : node.text, operator, operand);
}

function isNumber(text: string): boolean {
  return /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text);
}

/** The sign of a − b; integers of any size are compared exactly. */
function difference(a: string, b: string): number {
  const isExact = /^-?\d+$/.test(a) && /^-?\d+$/.test(b);
  const [first, second] = isExact ? [BigInt(a), BigInt(b)] : [Number(a), Number(b)];
  return first < second ? -1 : first > second ? 1 : 0;
}

function ordered(sign: number, operator: Operator): boolean {
  switch (operator) {
    case "=":
    case "~":
      return sign === 0;
    case "!=":
    case "!~":
      return sign !== 0;
    case "<":
      return sign < 0;
    case "<=":
      return sign <= 0;
    case ">":
      return sign > 0;
    case ">=":
      return sign >= 0;
  }
}
