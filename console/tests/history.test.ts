import { expect, test } from "vitest";
import { perSecond, ratesOf, seconds } from "../src/ui/history";

const POINT = {
  timestamp: 1,
  duration_ms: 5000,
  requests: 10,
  append_requests: 5,
  records_in: 100,
  bytes_in: 9n,
  bytes_out: 0,
  append_p50_ms: null,
  append_p99_ms: 2,
  commit_p99_ms: null,
  readers: 0,
};

test("counts become rates, whatever the length of their interval", () => {
  expect(perSecond([POINT, { ...POINT, duration_ms: 0 }], (one) => one.records_in)).toEqual([20, 100_000]);
  expect([seconds(null), seconds(2)]).toEqual([null, 0.002]);
});

test("a topic's rate is that of the last whole minute", () => {
  const topics = [
    { topic: "a", records_in: [600, 60], bytes_in: [0, 120n], size_bytes: 1 },
    { topic: "b", records_in: [], bytes_in: [], size_bytes: null },
  ];
  const rates = ratesOf({ topics, minutes: [1] } as never);
  expect(rates?.get("a")).toEqual({ records: 1, bytes: 2 });
  expect(rates?.get("b")).toEqual({ records: 0, bytes: 0 });
  expect(ratesOf({ topics, minutes: [] } as never)).toBeUndefined(); // no whole minute yet
});
