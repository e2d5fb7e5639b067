import { describe, expect, it } from "vitest";
import { FilterError, matcher, parsed } from "../src/pages/messages/filter";
import { Message } from "../src/pages/messages/message";
import { pushedOf } from "../src/pages/messages/pushed";

const filterOf = (text: string, now?: number): ((message: Message) => boolean) => matcher(parsed(text, now));

const base64 = (text: string | null): string | null => (text === null ? null : Buffer.from(text).toString("base64"));

function message(value: string | null, key: string | null = null, more: object = {}): Message {
  const wire = {
    offset: "9007199254740993",
    timestamp: 1_700_000_000_000,
    timestamp_type: "create",
    key: base64(key),
    value: base64(value),
    key_encoding: "base64",
    value_encoding: "base64",
    headers: [{ key: "trace", value: base64("4bf9"), encoding: "base64" }],
    leader_epoch: 0,
    ...more,
  };
  return new Message(3, wire as never);
}

const FLIGHT = message(
  '{"dest":"MIA","delay":30,"id":9007199254740993,"tags":["x","y"],"crew":{"lead":null},"late":true,"größe":5,"a.b":"dot","legs":[{"to":"LAX"},{"to":"MIA"}],"code":"7"}',
  "AA17",
);

describe("filters", () => {
  it.each([
    ["", true],
    ["MIA", true],
    ["aa1", true],
    ["JFK", false],
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
    ["value.absent != null", false],
    ["value.absent = null", true],
    ["value.crew.lead != null", false],
    ["value.dest != null", true],
    ["exists value.crew.lead", true],
    ["exists value.absent", false],
    ["not exists header.trace", false],
    ["value.größe = 5", true],
    ['value["a.b"] = dot', true],
    ['value["a.b"] != dot', false],
    ["value.legs[*].to = MIA", true],
    ["value.legs[*].to = JFK", false],
    ["value.legs[*].to != JFK", true],
    ["value.tags[*] ~ Y", true],
    ["value/legs/1/to = MIA", true],
    ['value"/a.b" = dot', true],
    ['header."trace" = 4bf9', true],
    ["value.dest starts_with M", true],
    ["key starts_with A and timestamp > 0", true],
    ['key =~ "^AA[0-9]+$"', true],
    ["key =~ ^BB", false],
    ["value.code > 5", false],
    ["value.code = 7", true],
    ["value.delay > 5", true],
    ["header.other = null", true],
    ["header.trace = null", false],
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
    ['key =~ "(a+)+$"', 7],
    ['key =~ "("', 7],
    ["offset =~ 1", 7],
    ["value[x] = 1", 0],
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

describe("what the service evaluates", () => {
  it.each([
    ["key = AA17", 'key = "AA17"', true],
    ["key = AA17 and value ~ x", 'key = "AA17"', false],
    ["key ~ AA", "", false],
    ["AA17", "", false],
    ["value.a.b = x", 'value"/a/b" = "x"', true],
    ['value["a/b"].größe >= 2.5', 'value"/a~1b/größe" >= 2.5', true],
    ["value.id = 9007199254740993", '(value"/id" = "9007199254740993" or value"/id" = 9007199254740993)', true],
    ["value.late = true", '(value"/late" = "true" or value"/late" = true)', true],
    ["value.x != null", 'not (value"/x" = null)', true],
    ["value.x = null", 'value"/x" = null', true],
    ["value.x[*] = 1", "", false],
    ["value.x = 1e400", "", false],
    ["value.x > b", "", false],
    ["header.tenant = 7", 'header."tenant" = "7"', true],
    ['header.bytes = "00 ff"', "", false],
    ["value = hello", 'value = "hello"', false],
    ["key starts_with A or value.x starts_with B", '(key starts_with "A" or value"/x" starts_with "B")', true],
    ["key = A or value ~ B", "", false],
    ["not key = A", 'not (key = "A")', true],
    ["not value = A", "", false],
    ["exists value.x", 'exists value"/x"', true],
    ["time < 1700000000000", "timestamp < 1700000000000", true],
    ["size > 10", "", false],
  ])("%s", (text, filter, isExact) => {
    expect(pushedOf(parsed(text))).toMatchObject({ filter, isExact });
  });
  it("bounds the read", () => {
    expect(pushedOf(parsed("partition = 3 and offset >= 5 and offset < 9 and time > -10min", 1_500_000))).toEqual({
      filter: "timestamp > 900000",
      isExact: true,
      partition: 3,
      start: 5n,
      end: 9n,
      sinceMs: 900_001,
    });
    expect(pushedOf(parsed("offset = 7"))).toMatchObject({
      start: 7n,
      end: 8n,
      filter: "",
      isExact: true,
    });
    expect(pushedOf(parsed("offset > 7 or key = a"))).toMatchObject({
      start: undefined,
      filter: '(offset > 7 or key = "a")',
    });
    expect(pushedOf(parsed(`key = ${"x".repeat(2000)}`))).toMatchObject({
      filter: "",
      isExact: false,
    });
  });
});
