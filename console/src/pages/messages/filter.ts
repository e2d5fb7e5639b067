/**
 * Filters of messages: a closed grammar, never code. What the service's own filters say is said alike.
 *
 *     key = "AA17"   value.dest = MIA and value.delay_minutes >= 30   header.trace ~ 4bf9
 *     time > -1h     not (key ~ test or value.tags[*] = x)            "any text"
 *     exists value["a.b"]     value/aircraft/tail starts_with "N1"    key =~ "^AA[0-9]+$"
 *
 * `parsed` reads a text, `matcher` decides about a message, and `pushed` is the part that the service evaluates.
 */
import { treeOf, type Node } from "../../api/json_tree";
import { base64OfText, bytesOf, shownText, textOf, type Message } from "./message";

export class FilterError extends Error {
  constructor(
    message: string,
    readonly position: number,
  ) {
    super(message);
  }
}

export type Operator = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~" | "=~" | "starts_with";
/** A member's name, an item's number as text, or every item and member. */
export type Step = { part: string } | "any";
export type Field =
  | { name: "key" | "value"; steps: Step[] }
  | { name: "header"; header: string }
  | { name: "time" | "offset" | "partition" | "size" };
export type Test =
  | { kind: "all" | "any"; parts: Test[] }
  | { kind: "not"; inner: Test }
  | { kind: "compare"; field: Field; operator: Operator; operand: Operand }
  | { kind: "exists"; field: Field }
  | { kind: "anywhere"; text: string };

export interface Operand {
  text: string;
  /** Written without quotes: only then `null`, `true` and numbers are more than text. */
  isWord: boolean;
  /** Of a time: milliseconds. */
  ms?: number;
  pattern?: RegExp;
}

interface Token {
  kind: "word" | "text" | "operator" | "bracket";
  text: string;
  position: number;
}

const TOKEN =
  /\s*(?:("(?:[^"\\]|\\.)*")|(!=|<=|>=|!~|=~|[=<>~])|([()])|((?:\[(?:"(?:[^"\\]|\\.)*"|\d+|\*)\]|(?<=[/.]|key|value)"(?:[^"\\]|\\.)*"|[^\s()=<>~!"])+))/y;
const STEP = /\.([\p{L}\p{N}_$-]+)|\[(\d+)\]|\[(\*)\]|\[("(?:[^"\\]|\\.)*")\]/uy;
const AGO = /^-(\d+(?:\.\d+)?)(s|min|h|d)$/;
const MS: Record<string, number> = { s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000 };
const FIELDS = "key, value, value.member, header.name, time, offset, partition, size";
/** Repetition of what already repeats, or what was matched before: such patterns may take for ever. */
const SLOW_PATTERN = /\([^()]*[*+{][^()]*\)\s*[*+{]|\\[1-9]|\(\?[<=!]/;
const LONGEST_PATTERN = 200;

function unquoted(quoted: string): string {
  return quoted.slice(1, -1).replace(/\\(.)/g, "$1");
}

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
    if (quoted !== undefined) tokens.push({ kind: "text", text: unquoted(quoted), position });
    else if (word?.toLowerCase() === "starts_with") tokens.push({ kind: "operator", text: "starts_with", position });
    else
      tokens.push({
        kind: operator ? "operator" : bracket ? "bracket" : "word",
        text: found,
        position,
      });
  }
  return tokens;
}

/** Return what a text means; undefined if it is empty, and everything passes. Throws FilterError. */
export function parsed(text: string, now = Date.now()): Test | undefined {
  const tokens = tokensOf(text);
  if (!tokens.length) return undefined;
  let next = 0;
  const isWord = (word: string): boolean => tokens[next]?.kind === "word" && tokens[next]?.text.toLowerCase() === word;
  const isBracket = (bracket: string): boolean => tokens[next]?.kind === "bracket" && tokens[next]?.text === bracket;
  const fail = (message: string): never => {
    throw new FilterError(message, tokens[next]?.position ?? text.length);
  };
  const joined = (kind: "all" | "any", parts: Test[]): Test => (parts.length === 1 ? parts[0]! : { kind, parts });

  const either = (): Test => {
    const parts = [both()];
    while (isWord("or")) {
      next += 1;
      parts.push(both());
    }
    return joined("any", parts);
  };
  const both = (): Test => {
    const parts = [one()];
    while (next < tokens.length && !isWord("or") && !isBracket(")")) {
      if (isWord("and")) next += 1;
      parts.push(one());
    }
    return joined("all", parts);
  };
  const one = (): Test => {
    const token = tokens[next] ?? fail("something to compare is missing");
    if (isWord("not")) {
      next += 1;
      return { kind: "not", inner: one() };
    }
    if (isWord("exists") && tokens[next + 1]?.kind === "word") {
      next += 2;
      return { kind: "exists", field: fieldOf(tokens[next - 1]!) };
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
    if (operator?.kind !== "operator") return { kind: "anywhere", text: token.text };
    next += 1;
    const operand = tokens[next] ?? fail(`a value is missing after “${operator.text}”`);
    if (operand.kind === "operator" || operand.kind === "bracket") fail(`a value is missing after “${operator.text}”`);
    next += 1;
    return comparison(fieldOf(token), operator, operand, now);
  };

  const test = either();
  if (next < tokens.length) fail("a bracket is closed that was not opened");
  return test;
}

function fieldOf({ text, position }: Token): Field {
  if (text === "time" || text === "timestamp") return { name: "time" };
  if (text === "offset" || text === "partition" || text === "size") return { name: text };
  const header = /^header(?:\.(?:"((?:[^"\\]|\\.)*)"|(.+))|\["((?:[^"\\]|\\.)*)"\])$/.exec(text);
  if (header)
    return {
      name: "header",
      header: header[2] ?? (header[1] ?? header[3] ?? "").replace(/\\(.)/g, "$1"),
    };
  const [name] = /^(?:key|value)(?=$|[./["])/.exec(text) ?? [];
  if (name === "key" || name === "value") {
    const rest = text.slice(name.length);
    const steps = /^["/]/.test(rest) ? pointerSteps(rest) : stepsOf(rest);
    if (steps) return { name, steps };
  }
  throw new FilterError(`“${text}” is not a field: ${FIELDS}`, position);
}

function stepsOf(path: string): Step[] | undefined {
  const steps: Step[] = [];
  STEP.lastIndex = 0;
  while (STEP.lastIndex < path.length) {
    const match = STEP.exec(path);
    if (!match) return undefined;
    const [, member, index, any, quoted] = match;
    steps.push(any ? "any" : { part: member ?? index ?? unquoted(quoted ?? '""') });
  }
  return steps;
}

/** A JSON Pointer (RFC 6901), as the service's filters have it. */
function pointerSteps(pointer: string): Step[] | undefined {
  const plain = pointer.startsWith('"') ? unquoted(pointer) : pointer;
  if (!plain.startsWith("/")) return undefined;
  return plain
    .slice(1)
    .split("/")
    .map((part) => ({ part: part.replaceAll("~1", "/").replaceAll("~0", "~") }));
}

function comparison(field: Field, operator: Token, operand: Token, now: number): Test {
  const found: Operand = { text: operand.text, isWord: operand.kind === "word" };
  const sign = operator.text as Operator;
  if (field.name === "time") found.ms = timeOf(operand, now);
  else if (field.name === "offset" || field.name === "partition" || field.name === "size") {
    if (!/^\d+$/.test(operand.text))
      throw new FilterError(`${field.name} is compared with a whole number`, operand.position);
  }
  if (sign === "=~") found.pattern = patternOf(operand);
  if (
    (sign === "=~" || sign === "starts_with") &&
    !(field.name === "key" || field.name === "value" || field.name === "header")
  ) {
    throw new FilterError(`${field.name} is a number: compare it with = != < <= > >=`, operator.position);
  }
  return { kind: "compare", field, operator: sign, operand: found };
}

function timeOf({ text, position }: Token, now: number): number {
  const ago = AGO.exec(text);
  const ms = ago
    ? now - Number(ago[1]) * (MS[ago[2] ?? ""] ?? 0)
    : /^\d{10,}$/.test(text)
      ? Number(text)
      : new Date(text.length === 10 ? `${text}T00:00` : text.replace(" ", "T")).getTime();
  if (Number.isNaN(ms))
    throw new FilterError("a time is like 2026-11-23, 2026-11-23T14:05, -1h or milliseconds", position);
  return Math.floor(ms);
}

function patternOf({ text, position }: Token): RegExp {
  if (text.length > LONGEST_PATTERN)
    throw new FilterError(`a pattern has at most ${LONGEST_PATTERN} characters`, position);
  if (SLOW_PATTERN.test(text))
    throw new FilterError(
      "a pattern may not repeat what repeats, look around or refer back: it could run for ever",
      position,
    );
  try {
    return new RegExp(text, "u");
  } catch (error) {
    throw new FilterError(`the pattern cannot be read: ${String(error).replace(/^.*: /, "")}`, position);
  }
}

/** Return the decision about a message. */
export function matcher(test: Test | undefined): (message: Message) => boolean {
  if (!test) return () => true;
  switch (test.kind) {
    case "all": {
      const parts = test.parts.map(matcher);
      return (message) => parts.every((part) => part(message));
    }
    case "any": {
      const parts = test.parts.map(matcher);
      return (message) => parts.some((part) => part(message));
    }
    case "not": {
      const inner = matcher(test.inner);
      return (message) => !inner(message);
    }
    case "exists": {
      const { field } = test;
      if (field.name === "header") return (message) => message.headers.some((one) => one.key === field.header);
      return (message) => nodesOf(message, field).length > 0;
    }
    case "anywhere": {
      const wanted = test.text.toLowerCase();
      return (message) =>
        (message.keyText?.toLowerCase().includes(wanted) ?? false) || valueText(message).toLowerCase().includes(wanted);
    }
    case "compare":
      return comparing(test.field, test.operator, test.operand);
  }
}

function comparing(field: Field, operator: Operator, operand: Operand): (message: Message) => boolean {
  switch (field.name) {
    case "time":
      return (message) => ordered(Number(message.timestamp) - (operand.ms ?? 0), operator);
    case "offset":
    case "partition":
    case "size": {
      const { name } = field;
      const wanted = BigInt(operand.text);
      return (message) => ordered(Number(BigInt(message[name]) - wanted), operator);
    }
  }
  if (field.name === "key" && !field.steps.length && operator === "=" && !isNull(operand)) {
    const wanted = base64OfText(operand.text);
    return (message) => message.key64 === wanted; // millions of keys are not decoded
  }
  // `!=` and `!~` are the opposites of `=` and `~`, whatever is there.
  const isOpposite = operator === "!=" || operator === "!~";
  const sign = operator === "!=" ? "=" : operator === "!~" ? "~" : operator;
  const isInJson = field.name !== "header" && field.steps.length > 0;
  return (message) => {
    const nodes = nodesOf(message, field);
    const holds =
      isNull(operand) && sign === "="
        ? nodes.every((node) => node.kind === "null")
        : nodes.some((node) => holdsFor(node, sign, operand, isInJson));
    return holds !== isOpposite;
  };
}

const isNull = (operand: Operand): boolean => operand.isWord && operand.text === "null";

/** The fields that a text names, separated by spaces or commas, each as it was written. Throws FilterError. */
export function fieldsOf(text: string): { title: string; field: Field }[] {
  const apart = text.replace(/,(?![^[]*\])/g, " ");
  return tokensOf(apart).map((token) => {
    if (token.kind !== "word") throw new FilterError(`“${token.text}” is not a field: ${FIELDS}`, token.position);
    return { title: token.text, field: fieldOf(token) };
  });
}

/** What is in a field: of JSON its nodes, else text; nothing if it is absent. */
export function nodesOf(message: Message, field: Field): Node[] {
  if (field.name === "header") {
    const values = message.headers.filter((one) => one.key === field.header && one.value !== null);
    return values.map(({ value }) => ({
      kind: "string",
      text: shownText(bytesOf(value ?? "")),
    }));
  }
  if (field.name !== "key" && field.name !== "value") return [];
  const bytes = field.name === "key" ? message.keyBytes : message.valueBytes;
  if (bytes === null) return [];
  if (!field.steps.length)
    return [{ kind: "string", text: field.name === "key" ? shownText(bytes) : valueText(message) }];
  const text = field.name === "key" ? textOf(bytes) : message.valueText;
  const tree = text === null ? null : treeOf(text);
  return tree ? nodesAt(tree, field.steps) : [];
}

/** The nodes at a path; of repeated members the last one, as JSON.parse. */
function nodesAt(root: Node, steps: Step[]): Node[] {
  let here = [root];
  for (const step of steps) {
    here = here.flatMap((node) => {
      if (node.kind === "object") {
        if (step === "any") return node.members.map(([, member]) => member);
        const member = node.members.findLast(([name]) => name === step.part)?.[1];
        return member ? [member] : [];
      }
      if (node.kind !== "array") return [];
      if (step === "any") return node.items;
      const item = /^\d+$/.test(step.part) ? node.items[Number(step.part)] : undefined;
      return item ? [item] : [];
    });
  }
  return here;
}

function valueText(message: Message): string {
  const bytes = message.valueBytes;
  return message.decoded ?? (bytes === null ? "" : shownText(bytes));
}

function holdsFor(node: Node, operator: Operator, operand: Operand, isInJson: boolean): boolean {
  if (node.kind === "object" || node.kind === "array") {
    const text = JSON.stringify(node.kind === "array" ? node.items : node.members);
    return operator === "~" && text.includes(operand.text);
  }
  const { text } = node;
  const wanted = operand.text;
  switch (operator) {
    case "=":
      if (isNull(operand)) return node.kind === "null";
      if (node.kind === "null") return false;
      return node.kind === "number" && isNumber(wanted) ? difference(text, wanted) === 0 : text === wanted;
    case "~":
      return node.kind !== "null" && text.toLowerCase().includes(wanted.toLowerCase());
    case "=~":
      return node.kind !== "null" && (operand.pattern?.test(text) ?? false);
    case "starts_with":
      return node.kind === "string" && text.startsWith(wanted);
  }
  if (node.kind === "null" || node.kind === "boolean") return false;
  const areNumbers = isNumber(text) && isNumber(wanted);
  // In JSON a number without quotes is compared with numbers only, as the service does.
  if (isInJson && operand.isWord && isNumber(wanted) && node.kind !== "number") return false;
  return ordered(areNumbers ? difference(text, wanted) : text < wanted ? -1 : text > wanted ? 1 : 0, operator);
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
    default:
      return sign === 0;
  }
}
