import { describe, expect, it } from "vitest";
import { filterOf, FilterError } from "../src/pages/messages/filter";
import { Message } from "../src/pages/messages/message";

const base64 = (text: string | null): string | null => (text === null ? null : Buffer.from(text).toString("base64"));

function message(value: string | null, key: string | null = null, more: object = {}): Message {
  const wire = { offset: "9007199254740993", timestamp: 1_700_000_000_000, timestamp_type: "create", key: base64(key), value: base64(value), key_encoding: "base64", value_encoding: "base64", headers: [{ key: "trace", value: base64("4bf9"), encoding: "base64" }], leader_epoch: 0, ...more };
  return new Message(3, wire as never);
}

const FLIGHT = message('{"dest":"MIA","delay":30,"id":9007199254740993,"tags":["x","y"],"crew":{"lead":null},"late":true}', "AA17");

describe("filters", () => {
  it.each([
    ["", true],
    ["MIA", true],
    ["aa1", true],
    ["LAX", false],
    ["key = AA17", true],
    ["key=AA17", true],
    ['key = "AA17"', true],
    ["key ~ 17", true],
    ["key !~ 17", false],
    ["key != AA17", false],
    ["key = null", false],
    ["value.dest = MIA and value.delay >= 30", true],
    ["value.dest = MIA value.delay > 30", false],
    ["value.dest = LAX or value.delay < 31", true],
    ["value.dest = LAX or value.delay < 31 and key = x", false],
    ["not (value.dest = LAX or value.delay < 30)", true],
    ["value.id = 9007199254740993", true],
    ["value.id = 9007199254740992", false],
    ["value.id > 9007199254740992", true],
    ["value.delay = 30.0", true],
    ["value.tags[1] = y", true],
    ["value.tags ~ y", true],
    ["value.crew.lead = null", true],
    ["value.late = true", true],
    ["value.absent = 1", false],
    ["value.absent != 1", true],
    ["header.trace = 4bf9", true],
    ["header.other = 4bf9", false],
    ["offset = 9007199254740993", true],
    ["offset > 9007199254740992", true],
    ["partition = 3 and size > 10", true],
    ["time >= 1700000000000", true],
    ["time < 2020-01-01", false],
    ["time > -1h", false],
  ])("%s", (text, expected) => {
    expect(filterOf(text)(FLIGHT)).toBe(expected);
  });
  it("know tombstones, missing keys and values that are not JSON", () => {
    expect(filterOf("value = null")(message(null))).toBe(true);
    expect(filterOf("value = null")(message("null"))).toBe(false);
    expect(filterOf("key = null")(message("x"))).toBe(true);
    expect(filterOf("value.a = 1")(message("no JSON"))).toBe(false);
  });
  it("compare times with now", () => {
    const recent = message("x", null, { timestamp: 1_000_000 });
    expect(filterOf("time > -10min", 1_500_000)(recent)).toBe(true);
    expect(filterOf("time > -5min", 1_500_000)(recent)).toBe(false);
  });
  it.each([
    ["(key = a", 8],
    ["key = a)", 7],
    ["key =", 5],
    ["= a", 0],
    ["valeu.id = 1", 0],
    ['key = "a', 5],
    ["time > yesterday", 7],
    ["offset = many", 9],
    ["not", 3],
  ])("say where %s is wrong", (text, position) => {
    try {
      filterOf(text);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(FilterError);
      expect((error as FilterError).position).toBe(position);
    }
  });
});
