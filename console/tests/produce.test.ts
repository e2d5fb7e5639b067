import { describe, expect, it } from "vitest";
import { bodyOf, type Draft } from "../src/pages/produce/pasted";
import { choicesOf, parsed, readable } from "../src/pages/topics/config_keys";

const DRAFT: Draft = {
  format: "json",
  value: "",
  hasKey: false,
  key: "",
  headers: [],
  isTombstone: false,
};

describe("what a person typed", () => {
  it("is sent digit for digit", () => {
    const { text } = bodyOf({
      ...DRAFT,
      value: ' {"n": 1.10} ',
      hasKey: true,
      key: 'a"b',
      headers: [
        { key: "h", value: "v" },
        { key: "", value: "x" },
      ],
    });
    expect(text).toBe('{"records": [{"key": "a\\"b", "value": {"n": 1.10}, "headers": [{"key":"h","value":"v"}]}]}');
  });
  it("is text when it is said to be, and nothing for a tombstone", () => {
    expect(bodyOf({ ...DRAFT, format: "text", value: "5" }).text).toContain('"value": "5", "value_encoding": "utf8"');
    expect(bodyOf({ ...DRAFT, isTombstone: true, value: "5" }).text).toBe('{"records": [{"value": null}]}');
  });
  it("is a record a line, whole records as they are", () => {
    const body = bodyOf({
      ...DRAFT,
      format: "ndjson",
      value: '{"value": 1, "key": "k"}\n\n{"value": 1, "more": 2}\r\n"x"',
    });
    expect(body.records).toBe(3);
    expect(body.text).toBe('{"value": 1, "key": "k"}\n{"value": {"value": 1, "more": 2}}\n{"value": "x"}\n');
  });
  it("is refused with its line when it is not JSON", () => {
    expect(() => bodyOf({ ...DRAFT, format: "ndjson", value: "1\nx" })).toThrow(/^line 2/);
    expect(() => bodyOf({ ...DRAFT, value: "{" })).toThrow(SyntaxError);
    expect(() => bodyOf({ ...DRAFT, format: "ndjson", value: " \n" })).toThrow(SyntaxError);
  });
});

describe("configuration values", () => {
  it("are typed in human units", () => {
    expect(parsed("retention.ms", "2 d")).toBe("172800000");
    expect(parsed("retention.ms", "forever")).toBe("-1");
    expect(parsed("segment.bytes", "1.5 GiB")).toBe("1610612736");
    expect(parsed("retention.ms", "−1")).toBe("-1");
    expect(parsed("segment.bytes", "2 d")).toBe("2 d");
  });
  it("are read in human units", () => {
    expect([
      readable("retention.ms", "604800000"),
      readable("retention.bytes", "-1"),
      readable("segment.bytes", "1073741824"),
      readable("cleanup.policy", "delete"),
    ]).toEqual(["7 d", "no limit", "1 GiB", ""]);
  });
  it("are chosen where the service names all of them", () => {
    const key = (accepted: string) => ({ name: "x", default: "", accepted, description: "" });
    expect(choicesOf(key("true or false"))).toEqual(["false", "true"]);
    expect(choicesOf(key("one of a, b"))).toEqual(["a", "b"]);
    expect(choicesOf(key("a list of compact, delete"))).toEqual(["compact", "delete", "compact,delete"]);
    expect(choicesOf(key("an integer from 1 to 5"))).toEqual([]);
    expect(choicesOf(key("* or a list of partition:broker"))).toEqual([]);
  });
});
