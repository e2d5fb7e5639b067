/** What of a filter the service evaluates, so that the rest of a log is not sent: where to read, and which records. */
import type { Field, Operand, Step, Test } from "./filter";

export interface Pushed {
  /** A filter in the service's grammar that every wanted record passes; empty if there is none. */
  filter: string;
  /** Whether the service's filter and bounds say all that the filter says. */
  isExact: boolean;
  partition: number | undefined;
  /** Bounds of the offsets; `end` is exclusive. */
  start: bigint | undefined;
  end: bigint | undefined;
  /** No record from before this time is wanted. */
  sinceMs: number | undefined;
}

/** The service takes filters up to this length. */
const LONGEST = 2000;
/** What a double holds exactly, and what every reader of JSON takes alike. */
const PLAIN_NUMBER = /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,6})?$/;
const INTEGER = /^-?(?:0|[1-9]\d{0,17})$/;
const COMPARISONS = /^(?:!?=|[<>]=?)$/;
/** Bytes that are no text are shown as this: it is compared in the page. */
const HEX = /^[0-9a-f]{2}(?: [0-9a-f]{2})*$/;

interface Part {
  text: string;
  isExact: boolean;
}

/** Return what the service evaluates; of the fields in `shown` the page shows something else than the log has. */
export function pushedOf(test: Test | undefined, shown: ReadonlySet<Field["name"]> = new Set()): Pushed {
  const pushed: Pushed = {
    filter: "",
    isExact: true,
    partition: undefined,
    start: undefined,
    end: undefined,
    sinceMs: undefined,
  };
  if (!test) return pushed;
  const parts: Part[] = [];
  for (const one of test.kind === "all" ? test.parts : [test]) {
    if (bounded(one, pushed)) continue;
    const part = translated(one, shown);
    if (part) parts.push(part);
    pushed.isExact &&= part?.isExact ?? false;
  }
  const filter = parts.map((part) => part.text).join(" and ");
  if (new TextEncoder().encode(filter).length <= LONGEST) return { ...pushed, filter };
  return { ...pushed, isExact: false };
}

/** Take a test into the bounds of the read; false if it is none of them. */
function bounded(test: Test, pushed: Pushed): boolean {
  if (test.kind !== "compare") return false;
  const { field, operator, operand } = test;
  if (field.name === "partition" && operator === "=") {
    pushed.isExact &&= pushed.partition === undefined;
    pushed.partition = Number(operand.text);
    return true;
  }
  if (field.name === "time" && (operator === ">" || operator === ">=" || operator === "=")) {
    const since = (operand.ms ?? 0) + (operator === ">" ? 1 : 0);
    pushed.sinceMs = Math.max(since, pushed.sinceMs ?? since);
    return false; // records before that offset are older, but not all behind it are newer
  }
  if (field.name !== "offset") return false;
  const offset = BigInt(operand.text);
  if (operator === ">" || operator === ">=" || operator === "=")
    pushed.start = highest(pushed.start, operator === ">" ? offset + 1n : offset);
  if (operator === "<" || operator === "<=" || operator === "=")
    pushed.end = lowest(pushed.end, operator === "<" ? offset : offset + 1n);
  return operator !== "!=";
}

const highest = (a: bigint | undefined, b: bigint): bigint => (a === undefined || b > a ? b : a);
const lowest = (a: bigint | undefined, b: bigint): bigint => (a === undefined || b < a ? b : a);

/** The test in the service's grammar, or one that more records pass; undefined if there is none. */
function translated(test: Test, shown: ReadonlySet<Field["name"]>): Part | undefined {
  switch (test.kind) {
    case "anywhere":
      return undefined;
    case "not": {
      const inner = translated(test.inner, shown);
      return inner?.isExact ? { text: `not (${inner.text})`, isExact: true } : undefined;
    }
    case "all": {
      const parts = test.parts.map((part) => translated(part, shown));
      const known = parts.filter((part) => part !== undefined);
      if (!known.length) return undefined;
      return {
        text: `(${known.map((part) => part.text).join(" and ")})`,
        isExact: parts.every((part) => part?.isExact),
      };
    }
    case "any": {
      const parts = test.parts.map((part) => translated(part, shown));
      if (!parts.every((part) => part !== undefined)) return undefined;
      return {
        text: `(${parts.map((part) => part.text).join(" or ")})`,
        isExact: parts.every((part) => part.isExact),
      };
    }
    case "exists": {
      const place = shown.has(test.field.name) ? undefined : placeOf(test.field);
      return place ? { text: `exists ${place}`, isExact: true } : undefined;
    }
    case "compare":
      return shown.has(test.field.name) ? undefined : compared(test);
  }
}

function compared({ field, operator, operand }: Extract<Test, { kind: "compare" }>): Part | undefined {
  const place = placeOf(field);
  if (!place) return undefined;
  if (field.name === "time" || field.name === "offset") {
    return COMPARISONS.test(operator)
      ? { text: `${place} ${operator} ${operand.ms ?? operand.text}`, isExact: true }
      : undefined;
  }
  const isJson = field.name !== "header" && "steps" in field && field.steps.length > 0;
  const isText = isJson || !HEX.test(operand.text);
  switch (operator) {
    case "=":
      return isText ? equals(place, operand, isJson, field) : undefined;
    case "!=": {
      const part = isText ? equals(place, operand, isJson, field) : undefined;
      return part?.isExact ? { text: `not (${part.text})`, isExact: true } : undefined;
    }
    case "starts_with":
      return isText
        ? {
            text: `${place} starts_with ${JSON.stringify(operand.text)}`,
            isExact: isJson || field.name === "key",
          }
        : undefined;
    case "<":
    case "<=":
    case ">":
    case ">=":
      return isJson && operand.isWord && (PLAIN_NUMBER.test(operand.text) || INTEGER.test(operand.text))
        ? { text: `${place} ${operator} ${operand.text}`, isExact: true }
        : undefined;
    default:
      return undefined;
  }
}

function equals(place: string, { text, isWord }: Operand, isJson: boolean, field: Field): Part | undefined {
  const quoted = `${place} = ${JSON.stringify(text)}`;
  if (isWord && text === "null") return { text: `${place} = null`, isExact: isJson };
  if (!isJson) return { text: quoted, isExact: field.name !== "value" };
  if (text === "true" || text === "false") return { text: `(${quoted} or ${place} = ${text})`, isExact: true };
  if (!/^-?\d/.test(text)) return { text: quoted, isExact: true };
  if (PLAIN_NUMBER.test(text) || INTEGER.test(text))
    return { text: `(${quoted} or ${place} = ${text})`, isExact: true };
  return /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text) ? undefined : { text: quoted, isExact: true };
}

function placeOf(field: Field): string | undefined {
  switch (field.name) {
    case "time":
      return "timestamp";
    case "offset":
      return "offset";
    case "partition":
    case "size":
      return undefined;
    case "header":
      return `header.${JSON.stringify(field.header)}`;
  }
  if (!field.steps.length) return field.name;
  if (field.steps.includes("any")) return undefined;
  const parts = (field.steps as Exclude<Step, "any">[]).map(({ part }) =>
    part.replaceAll("~", "~0").replaceAll("/", "~1"),
  );
  return `${field.name}${JSON.stringify(`/${parts.join("/")}`)}`;
}
