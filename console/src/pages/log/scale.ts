/** Where things lie in the picture of a log: pure arithmetic, no drawing. */

/** One segment, as the picture needs it. */
export interface Piece {
  base: bigint;
  /** End of the segment, exclusive. */
  next: bigint;
  bytes: number;
  /** Time of the first record, epoch ms; -1 if no record has a time. */
  from: number;
  /** Largest time in the segment; -1 if no record has a time. */
  to: number;
  isActive: boolean;
}

export type Axis = "time" | "bytes";

/** A place of the picture that a piece takes, in pixels from the left. */
export interface Box {
  left: number;
  width: number;
}

const LEAST_WIDTH = 3;
const SECOND = 1000;
const DAY = 86_400_000;

/** Lay the pieces out between 0 and `width`; on the time axis the log reaches from its first record to `now`. */
export class Scale {
  readonly start: number;
  readonly end: number;
  readonly #edges: number[];

  constructor(
    readonly pieces: Piece[],
    readonly axis: Axis,
    readonly width: number,
    now: number,
    /** Show only this many ms before the end; 0: everything. */
    span = 0,
  ) {
    this.#edges = [0];
    for (const piece of pieces) this.#edges.push((this.#edges.at(-1) ?? 0) + piece.bytes);
    if (axis === "bytes") {
      this.start = 0;
      this.end = Math.max(1, this.#edges.at(-1) ?? 0);
      return;
    }
    const timed = pieces.filter((piece) => piece.to >= 0);
    const last = Math.max(...timed.map((piece) => piece.to), timed.length ? -Infinity : now);
    const first = Math.min(...timed.map((piece) => piece.from), timed.length ? Infinity : now - SECOND);
    this.end = Math.max(last, now);
    this.start = span ? this.end - span : first;
    if (this.end - this.start < SECOND) this.start = this.end - SECOND;
  }

  /** The pixel of a time, or of a byte of the log. */
  x(value: number): number {
    return (this.width * (value - this.start)) / (this.end - this.start);
  }

  /** The time or the byte under a pixel. */
  valueAt(pixel: number): number {
    return this.start + ((this.end - this.start) * pixel) / this.width;
  }

  box(index: number): Box {
    const [from, to] = this.#ends(index);
    const left = Math.min(this.x(from), this.width - LEAST_WIDTH);
    return { left, width: Math.max(LEAST_WIDTH, this.x(to) - left) };
  }

  #ends(index: number): [number, number] {
    const piece = this.pieces[index];
    if (!piece) return [this.start, this.start];
    if (this.axis === "bytes") return [this.#edges[index] ?? 0, this.#edges[index + 1] ?? 0];
    if (piece.to < 0) return [this.end, this.end];
    return [piece.from, piece.to];
  }

  /** The pixel of an offset: within its segment, offsets are spread evenly. */
  offset(offset: bigint): number {
    const index = pieceOf(this.pieces, offset);
    const piece = this.pieces[index];
    if (!piece) return 0;
    const { left, width } = this.box(index);
    const length = Number(piece.next - piece.base);
    const share = length > 0 ? Math.min(1, Number(offset - piece.base) / length) : 0;
    return left + width * Math.max(0, share);
  }
}

/** The index of the piece that holds an offset; offsets beyond either end belong to the piece there. */
export function pieceOf(pieces: Piece[], offset: bigint): number {
  let low = 0;
  let high = pieces.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((pieces[middle]?.base ?? 0n) <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** How fast each piece was written, from 0 (the slowest of the log) to 1 (the fastest); on a logarithmic scale. */
export function heats(pieces: Piece[]): number[] {
  const rates = pieces.map((piece) => (piece.to > piece.from ? piece.bytes / (piece.to - piece.from) : 0));
  const known = rates.filter((rate) => rate > 0);
  const least = Math.min(...known);
  const reach = Math.log(Math.max(...known) / least);
  return rates.map((rate) => (rate <= 0 || !(reach > 0) ? 0.5 : Math.log(rate / least) / reach));
}

export interface Tick {
  at: number;
  label: string;
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600,
  2592000, 7776000, 31536000,
];

/** Round local times for an axis, at least `apart` pixels from each other. */
export function timeTicks(scale: Scale, apart = 90): Tick[] {
  const seconds = (scale.end - scale.start) / SECOND;
  const most = Math.max(1, Math.floor(scale.width / apart));
  const step = (STEPS.find((one) => seconds / one <= most) ?? Math.ceil(seconds / most / 31536000) * 31536000) * SECOND;
  const shift = new Date(scale.end).getTimezoneOffset() * 60_000;
  const ticks: Tick[] = [];
  for (let at = Math.ceil((scale.start - shift) / step) * step + shift; at <= scale.end; at += step) {
    ticks.push({ at, label: timeLabel(at, step) });
  }
  return ticks;
}

const two = (value: number): string => String(value).padStart(2, "0");

function timeLabel(at: number, step: number): string {
  const time = new Date(at);
  const date = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const isMidnight = time.getHours() === 0 && time.getMinutes() === 0 && time.getSeconds() === 0;
  if (step >= DAY || isMidnight) return date;
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}`;
  return step < 60 * SECOND ? `${clock}:${two(time.getSeconds())}` : clock;
}

/** Round numbers of bytes for an axis, in binary units. */
export function byteTicks(scale: Scale, apart = 90): number[] {
  const most = Math.max(1, Math.floor(scale.width / apart));
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, (scale.end - scale.start) / most)));
  const ticks: number[] = [];
  for (let at = scale.start; at <= scale.end; at += step) ticks.push(at);
  return ticks;
}

export interface Mark {
  name: string;
  offset: bigint;
}

export interface PlacedMark {
  names: string[];
  offset: bigint;
  x: number;
  /** The row of its label: 0 is nearest to the picture. */
  row: number;
  /** Whether the label stands left of the line: there is no room on the right. */
  isLeft: boolean;
}

/** Give each mark a label that covers no other; marks at one offset share theirs. */
export function placeMarks(
  marks: Mark[],
  scale: Scale,
  widthOf: (names: string[], offset: bigint) => number,
): PlacedMark[] {
  const byOffset = new Map<bigint, string[]>();
  for (const { name, offset } of marks) byOffset.set(offset, [...(byOffset.get(offset) ?? []), name]);
  const taken: [number, number][][] = [];
  return [...byOffset]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([offset, names]) => {
      const x = Math.min(scale.width, Math.max(0, scale.offset(offset)));
      const width = widthOf(names, offset);
      const isLeft = x + width > scale.width && x > scale.width / 2;
      const [from, to] = isLeft ? [x - width, x] : [x, x + width];
      let row = 0;
      while (taken[row]?.some(([left, right]) => from < right && to > left)) row += 1;
      (taken[row] ??= []).push([from, to]);
      return { names, offset, x, row, isLeft };
    });
}
