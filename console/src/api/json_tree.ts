/** JSON as it is stored: numbers keep every digit, repeated members stay, nothing is reformatted. */

export type Node =
  | { kind: "object"; members: [string, Node][] }
  | { kind: "array"; items: Node[] }
  | { kind: "string" | "number" | "boolean" | "null"; text: string };

const DEEPEST = 200;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;

class Reader {
  #at = 0;

  constructor(readonly text: string) {}

  all(): Node {
    const node = this.#value(0);
    this.#match(SPACE);
    if (this.#at !== this.text.length) throw new SyntaxError("more than one value");
    return node;
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  #take(character: string): boolean {
    this.#match(SPACE);
    if (this.text[this.#at] !== character) return false;
    this.#at += 1;
    return true;
  }

  #string(): string {
    this.#match(SPACE);
    const found = this.#match(STRING);
    if (found === undefined) throw new SyntaxError(`no string at ${this.#at}`);
    return JSON.parse(found) as string;
  }

  #value(depth: number): Node {
    if (depth > DEEPEST) throw new SyntaxError("nested too deeply");
    if (this.#take("{")) return this.#object(depth);
    if (this.#take("[")) return this.#array(depth);
    if (this.text[this.#at] === '"') return { kind: "string", text: this.#string() };
    const number = this.#match(NUMBER);
    if (number !== undefined) return { kind: "number", text: number };
    for (const word of ["true", "false", "null"]) {
      if (!this.text.startsWith(word, this.#at)) continue;
      this.#at += word.length;
      return { kind: word === "null" ? "null" : "boolean", text: word };
    }
    throw new SyntaxError(`no value at ${this.#at}`);
  }

  #object(depth: number): Node {
    const members: [string, Node][] = [];
    if (this.#take("}")) return { kind: "object", members };
    do {
      const name = this.#string();
      if (!this.#take(":")) throw new SyntaxError(`no colon at ${this.#at}`);
      members.push([name, this.#value(depth + 1)]);
    } while (this.#take(","));
    if (!this.#take("}")) throw new SyntaxError(`no end of an object at ${this.#at}`);
    return { kind: "object", members };
  }

  #array(depth: number): Node {
    const items: Node[] = [];
    if (this.#take("]")) return { kind: "array", items };
    do items.push(this.#value(depth + 1));
    while (this.#take(","));
    if (!this.#take("]")) throw new SyntaxError(`no end of an array at ${this.#at}`);
    return { kind: "array", items };
  }
}

/** Return the tree of a JSON text; null if it is none, or nested beyond use. */
export function treeOf(text: string): Node | null {
  try {
    return new Reader(text).all();
  } catch {
    return null;
  }
}

/** The node at a path, as `["aircraft", "tail"]`; of repeated members the last one, as JSON.parse. */
export function at(node: Node | null, path: string[]): Node | undefined {
  let here: Node | undefined = node ?? undefined;
  for (const part of path) {
    if (here?.kind === "object") here = here.members.findLast(([name]) => name === part)?.[1];
    else if (here?.kind === "array" && /^\d+$/.test(part)) here = here.items[Number(part)];
    else return undefined;
  }
  return here;
}

/** The tree as JSON text, numbers digit for digit, without spaces. */
export function writtenAs(node: Node): string {
  if (node.kind === "object")
    return `{${node.members.map(([name, member]) => `${JSON.stringify(name)}:${writtenAs(member)}`).join(",")}}`;
  if (node.kind === "array") return `[${node.items.map(writtenAs).join(",")}]`;
  return node.kind === "string" ? JSON.stringify(node.text) : node.text;
}
