import { describe, expect, test } from "vitest";
import { deletionEffect, truncationEffect, typedOffset } from "../src/pages/log/effects";
import { parseExplanation, steps } from "../src/pages/log/explain";
import { parseIndex, thinned } from "../src/pages/log/indexes";
import { retentionWords } from "../src/pages/log/retention";
import { byteTicks, heats, pieceOf, placeMarks, Scale, timeTicks, type Piece } from "../src/pages/log/scale";

const HOUR = 3_600_000;
const START = Date.UTC(2026, 10, 23, 6);

function piece(base: bigint, next: bigint, bytes: number, from: number, to: number, isActive = false): Piece {
  return { base, next, bytes, from: START + from, to: START + to, isActive };
}

const PIECES = [
  piece(0n, 100n, 1000, 0, HOUR),
  piece(100n, 300n, 3000, 2 * HOUR, 3 * HOUR),
  piece(300n, 310n, 1000, 3 * HOUR, 3 * HOUR, true),
];

describe("the scale", () => {
  test("draws segments where their times are, and gaps where nothing was written", () => {
    const scale = new Scale(PIECES, "time", 400, START + 4 * HOUR);
    expect(scale.box(0)).toEqual({ left: 0, width: 100 });
    expect(scale.box(1)).toEqual({ left: 200, width: 100 });
    expect(scale.box(2)).toEqual({ left: 300, width: 3 });
    expect(scale.valueAt(200)).toBe(START + 2 * HOUR);
  });

  test("draws bytes without gaps", () => {
    const scale = new Scale(PIECES, "bytes", 500, 0);
    expect(PIECES.map((_, index) => scale.box(index))).toEqual([
      { left: 0, width: 100 },
      { left: 100, width: 300 },
      { left: 400, width: 100 },
    ]);
  });

  test("spreads the offsets of a segment evenly, exactly beyond 2^53", () => {
    const scale = new Scale(PIECES, "bytes", 500, 0);
    expect([0n, 50n, 100n, 200n, 310n].map((offset) => scale.offset(offset))).toEqual([0, 50, 100, 250, 500]);
    const far = 2n ** 60n;
    const high = new Scale([piece(far, far + 4n, 100, 0, HOUR)], "bytes", 100, 0);
    expect([0n, 1n, 3n].map((step) => high.offset(far + step))).toEqual([0, 25, 75]);
  });

  test("shows only the end of a log if asked to", () => {
    const scale = new Scale(PIECES, "time", 100, START + 4 * HOUR, HOUR);
    expect(scale.start).toBe(START + 3 * HOUR);
    expect(scale.box(0).left).toBeLessThan(0);
  });

  test("has a place for logs without times, and without records", () => {
    const timeless: Piece = { base: 0n, next: 5n, bytes: 10, from: -1, to: -1, isActive: true };
    expect(new Scale([timeless], "time", 100, START).box(0)).toEqual({ left: 97, width: 3 });
    const empty: Piece = { ...timeless, next: 0n, bytes: 0 };
    expect(new Scale([empty], "bytes", 100, START).offset(0n)).toBe(0);
    expect(new Scale([], "time", 100, START).offset(7n)).toBe(0);
  });

  test("finds the segment of an offset", () => {
    expect([0n, 99n, 100n, 305n, 999n].map((offset) => pieceOf(PIECES, offset))).toEqual([0, 0, 1, 2, 2]);
  });
});

test("ticks are round, inside, and not too many", () => {
  const time = new Scale(PIECES, "time", 400, START + 4 * HOUR);
  const ticks = timeTicks(time);
  expect(ticks.length).toBeGreaterThanOrEqual(2);
  expect(ticks.length).toBeLessThanOrEqual(5);
  for (const { at, label } of ticks) {
    expect(at % (15 * 60_000)).toBe(0);
    expect(label).toMatch(/^\d\d:\d\d$|^\d{4}-\d\d-\d\d$/);
  }
  expect(byteTicks(new Scale(PIECES, "bytes", 400, 0))).toEqual([0, 2048, 4096]);
});

test("marks at one offset share a label, and labels never cover each other", () => {
  const scale = new Scale(PIECES, "bytes", 500, 0);
  const marks = placeMarks(
    [
      { name: "log start", offset: 0n },
      { name: "last stable", offset: 10n },
      { name: "high watermark", offset: 310n },
      { name: "log end", offset: 310n },
    ],
    scale,
    (names) => 80 * names.length,
  );
  expect(marks.map(({ names, row, isLeft }) => ({ names, row, isLeft }))).toEqual([
    { names: ["log start"], row: 0, isLeft: false },
    { names: ["last stable"], row: 1, isLeft: false },
    { names: ["high watermark", "log end"], row: 0, isLeft: true },
  ]);
});

test("the fastest segment is the darkest", () => {
  const [slow, fast, sudden] = heats(PIECES);
  expect([slow, fast, sudden]).toEqual([0, 1, 0.5]);
  expect(heats([PIECES[0]!])).toEqual([0.5]);
});

describe("index files", () => {
  test("are pairs of relative offset and position", () => {
    const file = new DataView(new ArrayBuffer(20));
    [5, 4096, 9, 8192].forEach((value, at) => file.setUint32(4 * at, value));
    const base = 2n ** 60n;
    expect(parseIndex(file.buffer, base)).toEqual([
      { offset: base + 5n, position: 4096 },
      { offset: base + 9n, position: 8192 },
    ]);
  });

  test("are thinned to what fits, ends included", () => {
    const thin = thinned(
      Array.from({ length: 1000 }, (_, at) => at),
      5,
    );
    expect(thin).toEqual([0, 250, 500, 749, 999]);
    expect(thinned([1, 2], 5)).toEqual([1, 2]);
  });
});

describe("explain", () => {
  const batch = { first: 8979n, next: 9020n, bytes: 12269 };

  test("reads the header", () => {
    const header =
      "segment_base_offset=7285; index_entry_offset=8979; index_entry_position=163923; position=176192; scanned_bytes=12345; ended_by=max_bytes";
    const path = parseExplanation(header, batch);
    expect(path).toMatchObject({
      segment: 7285n,
      indexPosition: 163923,
      position: 176192,
      endedBy: "max_bytes",
    });
    expect(path && steps(9000n, path)).toHaveLength(4);
    expect(path && steps(9000n, path)[2]).toContain("12 KiB");
  });

  test("says so if nothing was found, or nothing had to be skipped", () => {
    expect(parseExplanation("ended_by=log_bound", batch)).toBeNull();
    expect(parseExplanation(null, batch)).toBeNull();
    const path = parseExplanation(
      "segment_base_offset=0; index_entry_offset=0; index_entry_position=0; position=0; scanned_bytes=61; ended_by=max_bytes",
      { first: 0n, next: 1n, bytes: 70 },
    );
    expect(path && steps(0n, path).join(" ")).toMatch(/no entry.*nothing has to be skipped.*holds offset 0 in 70 B/);
  });
});

describe("what will be done", () => {
  test("deleting gives up whole sealed segments and the part of one", () => {
    expect(deletionEffect(PIECES, 0n, 150n)).toEqual({
      offsets: 150n,
      segments: 1,
      bytes: 1000,
    });
    expect(deletionEffect(PIECES, 0n, 310n)).toEqual({
      offsets: 310n,
      segments: 2,
      bytes: 4000,
    });
    expect(deletionEffect(PIECES, 20n, 10n).offsets).toBe(0n);
  });

  test("truncating gives up what begins at or after the new end", () => {
    expect(truncationEffect(PIECES, 310n, 100n)).toEqual({
      offsets: 210n,
      segments: 2,
      bytes: 4000,
    });
    expect(truncationEffect(PIECES, 310n, 310n)).toEqual({
      offsets: 0n,
      segments: 0,
      bytes: 0,
    });
  });

  test("an offset is typed in any grouping, between its bounds", () => {
    expect(typedOffset("9,007,199,254,740,993", 0n, 2n ** 62n)).toBe(9007199254740993n);
    expect(typedOffset(" 12 ", 0n, 20n)).toBe(12n);
    for (const text of ["", "-1", "21", "1e3", "x"]) expect(typedOffset(text, 0n, 20n)).toBeUndefined();
  });
});

test("retention is said in words", () => {
  const config = (values: Record<string, string>): Record<string, { value: string }> =>
    Object.fromEntries(Object.entries(values).map(([key, value]) => [key, { value }]));
  expect(retentionWords(config({ "retention.ms": "604800000", "retention.bytes": "1073741824" }))).toBe(
    "kept 7 d, at most 1 GiB",
  );
  expect(retentionWords(config({ "retention.ms": "-1", "retention.bytes": "-1" }))).toBe("kept forever");
  expect(retentionWords(config({ "cleanup.policy": "compact", "retention.ms": "1000" }))).toBe(
    "the newest of each key stays",
  );
});
