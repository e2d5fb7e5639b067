import { describe, expect, it } from "vitest";
import { EventParser } from "../src/api/sse";

const STREAM =
  "retry: 1000\r\nevent: offsets\r\nid: 7\r\ndata: {}\r\n\r\n: a comment\nevent: records\nid: 8\ndata: one\ndata: two\n\ndata\n\nevent: nothing\n\n";
const EVENTS = [
  { event: "offsets", id: "7", data: "{}" },
  { event: "records", id: "8", data: "one\ntwo" },
  { event: "message", id: "8", data: "" },
];

describe("server-sent events", () => {
  it("are the same however the stream is cut", () => {
    for (let size = 1; size <= STREAM.length; size += 1) {
      const parser = new EventParser();
      const events = [];
      for (let at = 0; at < STREAM.length; at += size) events.push(...parser.push(STREAM.slice(at, at + size)));
      expect(events).toEqual(EVENTS);
    }
  });
  it("are not complete before the empty line", () => {
    const parser = new EventParser();
    expect(parser.push("data: x\n")).toEqual([]);
    expect(parser.push("\n")).toHaveLength(1);
  });
});
