/** How the messages of a topic are shown: which fields are hidden, and how values that are no text are decoded. */
import { get, type Schemas } from "../../api/client";
import { treeOf, writtenAs, type Node } from "../../api/json_tree";
import { matches } from "../../api/rights";
import { summaryOf } from "../../api/topics";
import { useLoad, type Loaded } from "../../ui/load";
import { fieldsOf, type Field, type Step } from "./filter";
import { base64OfText, bytesOf, Message, textOf, type Decode, type Wire } from "./message";

export interface Reading {
  hidden: { title: string; field: Field }[];
  decode: Decode | undefined;
}

/** Fields of which the page shows something else than the log has: the service cannot search them for it. */
export function changedBy({ hidden, decode }: Reading): Set<Field["name"]> {
  const names = new Set(hidden.map(({ field }) => field.name));
  return decode ? names.add("value") : names;
}

export const PLAIN: Reading = { hidden: [], decode: undefined };
/** Stands where something is hidden. */
const HIDDEN = "•••";

/** What the service's settings and the topic's schema say; nothing is shown before they are known. */
export function useReading(topic: string): Loaded<Reading> {
  return useLoad(`reading ${topic}`, async (signal) => {
    const [caller, summary] = await Promise.all([get("/v1/caller", { signal }), summaryOf(topic, signal)]);
    const schema = summary?.has_value_schema
      ? await get("/v1/topics/{topic}/value-schema", { path: { topic }, signal })
      : undefined;
    return {
      hidden: hiddenIn(topic, caller.masked_fields),
      decode: schema && (await decodeBy(schema)),
    };
  });
}

/** The fields of a topic that entries such as `orders*:value.card` hide. */
export function hiddenIn(topic: string, masked: string[]): Reading["hidden"] {
  return masked.flatMap((entry) => {
    const colon = entry.indexOf(":");
    return matches(entry.slice(0, colon), topic) ? fieldsOf(entry.slice(colon + 1)) : [];
  });
}

async function decodeBy(schema: Schemas["ValueSchema"]): Promise<Decode> {
  const { decoderOf } = await import("./values/decoder");
  try {
    return decoderOf(schema);
  } catch (error) {
    return () => {
      throw error; // each message says why it is not decoded
    };
  }
}

/** Return a record as it is shown. */
export function messageOf(partition: number, wire: Wire, { hidden, decode }: Reading): Message {
  if (!hidden.length) return new Message(partition, wire, decode);
  const found: string[] = [];
  let isDecoded = decode !== undefined; // once something of it is hidden, the value is JSON
  const shown = { ...wire, headers: wire.headers.map((one) => ({ ...one })) };
  for (const { title, field } of hidden) {
    if (field.name === "header") {
      const named = shown.headers.filter((one) => one.key === field.header && one.value !== null);
      for (const one of named) one.value = base64OfText(HIDDEN);
      if (named.length) found.push(title);
    } else if (field.name === "key" || field.name === "value") {
      const isValue = field.name === "value";
      const before = shown[field.name] as string | null;
      const after =
        before === null ? undefined : without(before, field.steps, isValue && isDecoded ? decode : undefined);
      if (after === undefined) continue;
      shown[field.name] = after;
      isDecoded &&= !isValue;
      found.push(title);
    }
  }
  return new Message(partition, shown, isDecoded ? decode : undefined, found);
}

/** What is left of a key or value, as base64; undefined if it does not have the field. */
function without(base64: string, steps: Step[], decode: Decode | undefined): string | undefined {
  if (!steps.length) return base64OfText(HIDDEN);
  let text: string | null;
  try {
    text = decode ? decode(bytesOf(base64)) : textOf(bytesOf(base64));
  } catch {
    text = null;
  }
  const tree = text === null ? null : treeOf(text);
  if (!tree) return base64OfText(HIDDEN); // where the field is cannot be seen: all of it is hidden
  const [left, isFound] = hide(tree, steps);
  return isFound ? base64OfText(writtenAs(left)) : undefined;
}

/** The tree with what lies at the path hidden, also where a member is repeated. */
function hide(node: Node, [step, ...rest]: Step[]): [Node, boolean] {
  if (step === undefined) return [{ kind: "string", text: HIDDEN }, true];
  let isFound = false;
  const inner = (child: Node, name: string): Node => {
    if (step !== "any" && step.part !== name) return child;
    const [left, isInside] = hide(child, rest);
    isFound ||= isInside;
    return left;
  };
  if (node.kind === "object") {
    const members = node.members.map(([name, member]): [string, Node] => [name, inner(member, name)]);
    return [{ kind: "object", members }, isFound];
  }
  if (node.kind !== "array") return [node, false];
  const items = node.items.map((item, index) => inner(item, String(index)));
  return [{ kind: "array", items }, isFound];
}
