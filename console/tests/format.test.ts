import { describe, expect, it } from "vitest";
import { bytes, count, duration, latency, percent, rate, relativeTime } from "../src/ui/format";

describe("numbers as people read them", () => {
  it("groups integers of any size exactly", () => {
    expect(count(9007199254740993n)).toBe("9,007,199,254,740,993");
    expect(count(0)).toBe("0");
  });
  it("shows bytes in binary units", () => {
    expect([0, 1023, 1024, 1536, 1048576, 2 ** 40].map(bytes)).toEqual([
      "0 B",
      "1023 B",
      "1 KiB",
      "1.5 KiB",
      "1 MiB",
      "1 TiB",
    ]);
    expect(bytes(9223372036854775807n)).toBe("8 EiB");
  });
  it("shortens no rate of records", () => {
    expect([0, 0.001, 0.5, 12.34, 999, 1234.5, 2_100_000, Infinity].map(rate)).toEqual([
      "0",
      "< 0.01",
      "0.5",
      "12.3",
      "999",
      "1,235",
      "2,100,000",
      "–",
    ]);
  });
  it("says durations in the two units that matter, and Kafka's for ever in words", () => {
    expect([0, 500, 1500, 60_000, 90_061_000, 604_800_000].map(duration)).toEqual([
      "0 ms",
      "500 ms",
      "1.5 s",
      "1 min",
      "1 d 1 h",
      "7 d",
    ]);
    expect(duration(-1)).toBe("forever");
    expect(duration(9223372036854775807n)).toBe("forever");
  });
  it("picks the unit of a latency", () => {
    expect([null, 0.00025, 0.0123, 2].map(latency)).toEqual(["–", "250 µs", "12.3 ms", "2 s"]);
  });
  it("does not pretend to precision", () => {
    expect([percent(1, 100_000), percent(1, 0), percent(1n, 3n), percent(5, 5)]).toEqual([
      "< 0.1 %",
      "0 %",
      "33.3 %",
      "100 %",
    ]);
  });
  it("tells how long ago in one unit", () => {
    expect(relativeTime(1000, 1500)).toBe("now");
    expect(relativeTime(0, 7_200_000)).toBe("2 h ago");
    expect(relativeTime(90_000, 0)).toBe("in 1 min");
    expect(relativeTime(0, 5074 * 86_400_000)).toBe("13 y ago");
  });
});
