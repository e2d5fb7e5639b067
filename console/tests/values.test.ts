/** Avro and protobuf as other programs wrote them (fastavro, protoc), and what is neither. */
import { expect, test } from "vitest";
import { treeOf } from "../src/api/json_tree";
import { matcher, parsed } from "../src/pages/messages/filter";
import { bytesOf, type Wire } from "../src/pages/messages/message";
import { pushedOf } from "../src/pages/messages/pushed";
import { changedBy, hiddenIn, messageOf, PLAIN, type Reading } from "../src/pages/messages/reading";
import { avroReader } from "../src/pages/messages/values/avro";
import { decoderOf } from "../src/pages/messages/values/decoder";

const AVSC = `{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}, {"name": "paid", "type": "boolean"}, {"name": "rate", "type": "float"}, {"name": "price", "type": "double"}, {"name": "raw", "type": "bytes"}, {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}}, {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}}, {"name": "tags", "type": {"type": "array", "items": "string"}}, {"name": "counts", "type": {"type": "map", "values": "int"}}, {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}, {"name": "day", "type": {"type": "int", "logicalType": "date"}}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}, {"name": "last", "type": ["null", "State"]}, {"name": "parent", "type": ["null", "Order"]}]}`;
const AVRO =
  "goCAgICAgIAgAgpLw7ZsbgEAAAA/nHUAiDzkN/4EAP8CAQIEAmECIgACAngFAATP7+LEAoD5963E17AGAAKCgICAgICAgCAAAQAAAD+cdQCIPOQ3/gQA/wIBAgAAAgXixAIBAgAA";
const DESCRIPTORS =
  "Cv8BCh9nb29nbGUvcHJvdG9idWYvdGltZXN0YW1wLnByb3RvEg9nb29nbGUucHJvdG9idWYiOwoJVGltZXN0YW1wEhgKB3NlY29uZHMYASABKANSB3NlY29uZHMSFAoFbmFub3MYAiABKAVSBW5hbm9zQoUBChNjb20uZ29vZ2xlLnByb3RvYnVmQg5UaW1lc3RhbXBQcm90b1ABWjJnb29nbGUuZ29sYW5nLm9yZy9wcm90b2J1Zi90eXBlcy9rbm93bi90aW1lc3RhbXBwYvgBAaICA0dQQqoCHkdvb2dsZS5Qcm90b2J1Zi5XZWxsS25vd25UeXBlc2IGcHJvdG8zCocDCgpzaG9wLnByb3RvEgdzaG9wLnYxGh9nb29nbGUvcHJvdG9idWYvdGltZXN0YW1wLnByb3RvIqYCCgVPcmRlchIOCgJpZBgBIAEoA1ICaWQSEgoEY2l0eRgCIAEoCVIEY2l0eRIpCgVsaW5lcxgDIAMoCzITLnNob3AudjEuT3JkZXIuTGluZVIFbGluZXMSKgoCYXQYBCABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wUgJhdBIqCgljYXJkX2RhdGEYBSABKAsyDS5zaG9wLnYxLkNhcmRSCGNhcmREYXRhEioKBXN0YXRlGAYgASgOMhQuc2hvcC52MS5PcmRlci5TdGF0ZVIFc3RhdGUaLgoETGluZRIQCgNza3UYASABKAlSA3NrdRIUCgVwcmljZRgCIAEoAVIFcHJpY2UiGgoFU3RhdGUSBwoDTkVXEAASCAoEUEFJRBABIh4KBENhcmQSFgoGbnVtYmVyGAEgASgJUgZudW1iZXJiBnByb3RvMw==";
const PROTOBUF = "CIGAgICAgICAEBIFS8O2bG4aDAoBYREAAAAAAAD4PxoDCgFiIgsI8Lmt2AYQwKnTOioGCgQ0MTExMAE=";

const ORDER = { format: "protobuf", definition: DESCRIPTORS, message_type: "shop.v1.Order", framing: "none" } as const;

function joined(...parts: (number[] | Uint8Array)[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

test("Avro is decoded with every digit, every type, and a record within itself", () => {
  const rest = `"paid":true,"rate":0.5,"price":-1e+300,"raw":"AP8=","state":"PAID","hash":"AQI="`;
  const day = `"day":"2026-11-28"`;
  const parent =
    `{"id":1152921504606846977,"city":null,${rest},"tags":[],"counts":{},"amount":0.05,${day},` +
    `"at":"1969-12-31T23:59:59.999999Z","last":"NEW","parent":null}`;
  expect(avroReader(AVSC)(bytesOf(AVRO))).toBe(
    `{"id":1152921504606846977,"city":"Köln",${rest},"tags":["a","\\""],"counts":{"x":-3},"amount":-123.05,${day},` +
      `"at":"2026-11-28T23:00:00.123456Z","last":null,"parent":${parent}}`,
  );
});

test("each cut of an Avro value, and more than a value, is refused", () => {
  const read = avroReader(AVSC);
  const value = bytesOf(AVRO);
  for (let length = 0; length < value.length; length += 1)
    expect(() => read(value.subarray(0, length))).toThrow(/bytes are expected/);
  expect(() => read(joined(value, [0]))).toThrow("1 bytes are left behind the value");
});

test("a few bytes that say they are millions of items, or endlessly deep, are refused at once", () => {
  const nulls = avroReader(`{"type":"array","items":"null"}`);
  expect(nulls(joined([6, 0]))).toBe("[null,null,null]");
  expect(nulls(joined([5, 0, 0]))).toBe("[null,null,null]");
  expect(() => nulls(joined([0xfe, 0xff, 0xff, 0xff, 0x0f, 0]))).toThrow(/more than 1000000 items/);
  expect(() => nulls(joined([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]))).toThrow(/a length of/);
  expect(() => nulls(joined(Array<number>(11).fill(0xff)))).toThrow(/more than ten bytes/);
  const endless = avroReader(`{"type":"record","name":"A","fields":[{"name":"a","type":"A"}]}`);
  expect(() => endless(joined([]))).toThrow(/100 levels/);
  const list = avroReader(`{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}`);
  expect(() => list(joined(Array<number>(200).fill(2), [0]))).toThrow(/100 levels/);
  expect(() => list(joined([8]))).toThrow(/no branch 4/);
  expect(() => avroReader(`"string"`)(joined([2, 0xff]))).toThrow(/not UTF-8/);
});

test.each([
  [`{"type":"record","name":"R","fields":[{"name":"a","type":"Nowhere"}]}`, /type Nowhere is not defined/],
  [`{"type":"record","fields":[]}`, /has no name/],
  [`{"type":"record","name":"R"}`, /R has no fields/],
  [`{"type":"enum","name":"E"}`, /E has no symbols/],
  [`{"type":"fixed","name":"F"}`, /F has no size/],
  [`{"type":"array"}`, /is no type/],
  [`7`, /7 is no type/],
])("%s is no Avro schema", (definition, why) => {
  expect(() => avroReader(definition)).toThrow(why);
});

test("names are found in their namespaces, and by their aliases", () => {
  const read = avroReader(`{"type":"record","name":"a.R","fields":[
    {"name":"x","type":{"type":"enum","name":"E","aliases":["Old"],"symbols":["s"]}},
    {"name":"y","type":"a.E"},{"name":"z","type":"Old"}]}`);
  expect(read(joined([0, 0, 0]))).toBe(`{"x":"s","y":"s","z":"s"}`);
});

test("protobuf is decoded as protobuf's JSON, also behind a registry's header", () => {
  const read = decoderOf(ORDER);
  const value = bytesOf(PROTOBUF);
  const shown = {
    id: "1152921504606846977",
    city: "Köln",
    lines: [
      { sku: "a", price: 1.5 },
      { sku: "b", price: 0 },
    ],
    at: "2026-11-28T23:00:00.123Z",
    card_data: { number: "4111" },
    state: "PAID",
  };
  expect(JSON.parse(read(value))).toEqual(shown);
  const framed = decoderOf({ ...ORDER, framing: "confluent" });
  for (const indexes of [[0], [2, 0], [4, 2, 0]])
    expect(JSON.parse(framed(joined([0, 0, 0, 0, 7], indexes, value)))).toEqual(shown);
  expect(() => framed(value)).toThrow(/does not begin with a zero byte/);
  expect(() => framed(joined([0, 0, 0, 0, 7]))).toThrow(/ends before the message/);
  expect(() => read(joined([0xff]))).toThrow(/it is no shop.v1.Order/);
});

test("descriptors without the message say which they have", () => {
  expect(() => decoderOf({ ...ORDER, message_type: "shop.v1.Bill" })).toThrow(/they have .*shop\.v1\.Order/);
  expect(() => decoderOf({ ...ORDER, definition: "AAAA" })).toThrow(/descriptors cannot be read/);
});

const text = (value: string): string => btoa(String.fromCharCode(...new TextEncoder().encode(value)));

function wireOf(value: string | null, more: object = {}): Wire {
  return {
    offset: "7",
    timestamp: 0,
    timestamp_type: "create",
    leader_epoch: 0,
    key: null,
    value,
    headers: [],
    ...more,
  } as unknown as Wire;
}

test("a decoded value is searched and shown as its JSON; what is not decoded says why", () => {
  const reading: Reading = { hidden: [], decode: decoderOf(ORDER) };
  const message = messageOf(0, wireOf(PROTOBUF), reading);
  const passes = (filter: string): boolean => matcher(parsed(filter))(message);
  expect(passes(`value.city = "Köln" and value.lines[*].sku = b and state`)).toBe(true);
  expect(passes(`value.city = "Bonn"`)).toBe(false);
  expect(message.preview).toContain(`"number":"4111"`);
  const other = messageOf(0, wireOf(text("{}")), reading);
  expect([other.decoded, other.undecodable, other.preview]).toEqual([null, expect.stringMatching(/no shop/), "{}"]);
  expect(pushedOf(parsed(`value.city = a and key = b`), changedBy(reading)).filter).toBe(`key = "b"`);
});

const masked = (entries: string[], decode?: Reading["decode"]): Reading => ({
  hidden: hiddenIn("orders-eu", entries),
  decode,
});

test("hidden fields are in no view of a message: of JSON, headers, keys, decoded values, repeated members", () => {
  const secret = `{"card":{"number":4111,"x":1.50},"card":{"number":"5111"},"list":[{"pin":1},{"pin":2}]}`;
  const reading = masked(["orders*:value.card.number", "*:value.list[*].pin", "*:header.auth", "*:key", "web:value"]);
  const wire = wireOf(text(secret), {
    key: text("4111"),
    headers: [
      { key: "auth", value: text("4111") },
      { key: "auth", value: null },
      { key: "b", value: text("b") },
    ],
  });
  const message = messageOf(0, wire, reading);
  expect(message.hidden).toEqual(["value.card.number", "value.list[*].pin", "header.auth", "key"]);
  expect(message.valueText).toBe(
    `{"card":{"number":"•••","x":1.50},"card":{"number":"•••"},"list":[{"pin":"•••"},{"pin":"•••"}]}`,
  );
  expect(message.keyText).toBe("•••");
  expect(message.headers.map(({ value }) => value)).toEqual([text("•••"), null, text("b")]);
  expect(wire.headers[0]?.value).toBe(text("4111")); // the answer itself is not changed
  const decoded = messageOf(0, wireOf(PROTOBUF), masked(["*:value.card_data", "*:value.city"], decoderOf(ORDER)));
  expect(decoded.valueText).not.toMatch(/4111|Köln/);
  expect([decoded.decoded, decoded.hidden]).toEqual([null, ["value.card_data", "value.city"]]);
  expect(pushedOf(parsed("value.card.number = 4111 and key = 4111 and offset > 3"), changedBy(reading)).filter).toBe(
    "",
  );
});

test("where a hidden field cannot be looked for, all of the value is hidden", () => {
  const reading = masked(["*:value.card"], decoderOf(ORDER));
  for (const value of [text("card=4111"), text(`{"card":4111`), btoa("\u00ff")])
    expect(messageOf(0, wireOf(value), reading).valueText).toBe("•••");
  expect(messageOf(0, wireOf(text("card=4111")), masked(["*:value.card"])).valueText).toBe("•••");
});

test("what has no hidden field stays as it is, byte for byte", () => {
  const reading = masked(["*:value.card", "*:header.auth", "*:key.id", "other:key"]);
  const value = text(`{ "a" : 1.0 }`);
  const message = messageOf(0, wireOf(value), reading);
  expect([message.value64, message.hidden]).toEqual([value, []]);
  expect(messageOf(0, wireOf(null), reading).value64).toBeNull();
  expect(hiddenIn("orders", ["web-*:value"])).toEqual(PLAIN.hidden);
  expect(treeOf(message.valueText ?? "")).not.toBeNull();
});
