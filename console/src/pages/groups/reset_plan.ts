/** What a reset will do to each offset, before it is done. */

export interface Position {
  topic: string;
  partition: number;
  offset: bigint;
  logStart: bigint;
  end: bigint;
}

export type Target =
  { kind: "earliest" } | { kind: "latest" } | { kind: "offset"; offset: bigint } | { kind: "time"; ms: number };

export interface Step extends Position {
  to: bigint;
  /** Whether the target lies outside the log, and the nearest offset is taken. */
  isMoved: boolean;
}

/** The step of one position; `found` is the offset of the target's time, null if no record is that late. */
export function stepOf(position: Position, target: Target, found: bigint | null = null): Step {
  const { logStart, end } = position;
  if (target.kind === "earliest") return { ...position, to: logStart, isMoved: false };
  if (target.kind === "latest") return { ...position, to: end, isMoved: false };
  if (target.kind === "time") return { ...position, to: found ?? end, isMoved: false };
  const { offset } = target;
  const to = offset < logStart ? logStart : offset > end ? end : offset;
  return { ...position, to, isMoved: to !== offset };
}

/** The step in words. */
export function stepWords({ offset, to, end }: Step): string {
  if (to === offset) return "stays";
  const distance = to > offset ? to - offset : offset - to;
  const records = distance === 1n ? "1 offset" : `${distance.toLocaleString("en")} offsets`;
  return to > offset ? `skips ${records}${to === end ? ", nothing is left to read" : ""}` : `reads ${records} again`;
}
