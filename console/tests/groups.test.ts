import { expect, test } from "vitest";
import { stepOf, stepWords, type Position } from "../src/pages/groups/reset_plan";
import { linePoints, slope, trendWords, withPoint, type Point } from "../src/pages/groups/trend";

const falling: Point[] = [0, 10, 20, 30].map((at) => ({ at, lag: 1000 - 10 * at }));

test("the slope is that of the last minute", () => {
  expect(slope(falling)).toBeCloseTo(-10);
  expect(slope([{ at: 0, lag: 99_999 }, ...falling.map(({ at, lag }) => ({ at: at + 500, lag }))])).toBeCloseTo(-10);
  expect(slope(falling.slice(0, 2))).toBeNull();
  expect(slope([])).toBeNull();
});

test("a trend says where the lag is going, and when it is over", () => {
  expect(trendWords(falling)).toBe("shrinks 10/s, caught up in 1 min 10 s");
  expect(trendWords(falling.map(({ at, lag }) => ({ at, lag: 2000 - lag })))).toBe("grows 10/s");
  expect(trendWords(falling.map(({ at }) => ({ at, lag: 7 })))).toBe("steady");
  expect(trendWords(falling.map(({ at }) => ({ at, lag: 0 })))).toBe("caught up");
  expect(trendWords([])).toBe("…");
});

test("points are kept for a quarter of an hour", () => {
  let points: Point[] = [];
  for (let at = 0; at < 2000; at += 3) points = withPoint(points, { at, lag: at });
  expect(points.length).toBe(300);
  expect(points[0]?.at).toBeGreaterThan(1998 - 900);
});

test("a sparkline ends at the right edge", () => {
  expect(linePoints(falling, 90, 12).split(" ")).toEqual(["0.0,1.0", "30.0,2.0", "60.0,3.0", "90.0,4.0"]);
  expect(linePoints([], 90, 12)).toBe("");
});

const position: Position = { topic: "t", partition: 0, offset: 50n, logStart: 10n, end: 2n ** 60n };

test("a reset goes to the nearest offset in the log, and says so", () => {
  expect(stepOf(position, { kind: "earliest" }).to).toBe(10n);
  expect(stepOf(position, { kind: "latest" }).to).toBe(2n ** 60n);
  expect(stepOf(position, { kind: "offset", offset: 5n })).toMatchObject({
    to: 10n,
    isMoved: true,
  });
  expect(stepOf(position, { kind: "offset", offset: 2n ** 61n })).toMatchObject({
    to: 2n ** 60n,
    isMoved: true,
  });
  expect(stepOf(position, { kind: "offset", offset: 60n })).toMatchObject({
    to: 60n,
    isMoved: false,
  });
  expect(stepOf(position, { kind: "time", ms: 1 }, 20n).to).toBe(20n);
  expect(stepOf(position, { kind: "time", ms: 1 }, null).to).toBe(2n ** 60n);
});

test("a preview says what is read again or skipped", () => {
  expect(stepWords(stepOf(position, { kind: "earliest" }))).toBe("reads 40 offsets again");
  expect(stepWords(stepOf(position, { kind: "offset", offset: 51n }))).toBe("skips 1 offset");
  expect(stepWords(stepOf({ ...position, end: 60n }, { kind: "latest" }))).toBe(
    "skips 10 offsets, nothing is left to read",
  );
  expect(stepWords(stepOf(position, { kind: "offset", offset: 50n }))).toBe("stays");
});
