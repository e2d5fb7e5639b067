import { expect, test } from "vitest";
import { reading, shownLines, type Line } from "../src/pages/service/values";

test("a number is read in the unit of its name", () => {
  expect(reading("max_request_bytes", "16777216")).toBe("16 MiB");
  expect(reading("scrub_bytes_per_second", "10485760")).toBe("10 MiB/s");
  expect(reading("body_timeout_ms", "30000")).toBe("30 s");
  expect(reading("max_share_percent", "50")).toBe("50 %");
  expect(reading("max_tails", "10000")).toBe("10,000");
  for (const [name, text] of [
    ["max_wait_ms", "50"],
    ["min_segment_bytes", "14"],
    ["data_directory", "data"],
    ["tls_cert", "null"],
  ]) {
    expect(reading(name ?? "", text ?? "")).toBe("");
  }
});

test("what somebody set comes first, and the search looks into names, values and meanings", () => {
  const lines: Line[] = [
    { name: "a", value: "1", source: "default", description: "Tails at a time" },
    { name: "b", value: "2", source: "environment", description: "" },
    { name: "c", value: "3", source: "command_line", description: "tails" },
  ];
  expect(shownLines(lines, "", false).map(({ name }) => name)).toEqual(["b", "c", "a"]);
  expect(shownLines(lines, "TAILS", false).map(({ name }) => name)).toEqual(["c", "a"]);
  expect(shownLines(lines, "", true).map(({ name }) => name)).toEqual(["b", "c"]);
});
