import { describe, expect, it } from "vitest";
import { parseJson, toJson } from "../src/api/json";
import { at, treeOf } from "../src/api/json_tree";

describe("JSON without loss", () => {
  it("keeps integers beyond 2^53, in both directions", () => {
    const text = '{"offset":9223372036854775807,"small":5,"list":[-9007199254740993],"text":"12345678901234567890"}';
    const parsed = parseJson(text) as Record<string, unknown>;
    expect(parsed.offset).toBe(9223372036854775807n);
    expect(parsed.small).toBe(5);
    expect(parsed.text).toBe("12345678901234567890");
    expect(toJson(parsed)).toBe(text);
  });
  it("does not turn text that looks like a marked number into one", () => {
    expect(toJson({ a: "12", b: 12n })).toBe('{"a":"12","b":12}');
    expect(toJson({ a: "\u000012\u0000" })).toBe('{"a":"\\u000012\\u0000"}');
  });
  it("shows a stored value as it is: digits, repeated members, escapes", () => {
    const tree = treeOf(' {"n": 1.10, "n": 12345678901234567890, "s": "\\u00e9\\n", "a": [], "o": {}} ');
    expect(tree).toMatchObject({
      kind: "object",
      members: [
        ["n", { text: "1.10" }],
        ["n", { text: "12345678901234567890" }],
        ["s", { text: "é\n" }],
        ["a", { items: [] }],
        ["o", { members: [] }],
      ],
    });
  });
  it("finds a member by its path, the last of repeated ones", () => {
    const tree = treeOf('{"a": {"b": [1, {"c": "x"}]}, "a": {"b": [2, {"c": "y"}]}}');
    expect(at(tree, ["a", "b", "1", "c"])).toEqual({ kind: "string", text: "y" });
    expect(at(tree, ["a", "missing", "c"])).toBeUndefined();
  });
  it.each(["", "{", '{"a" 1}', "[1,]", "01", "1 2", "tru", '"\n"', "[".repeat(10_000), '{"a":1'])(
    "is no tree: %.20s",
    (text) => {
      expect(treeOf(text)).toBeNull();
    },
  );
});
