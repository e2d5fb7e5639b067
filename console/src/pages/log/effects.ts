/** What deleting records or truncating will do, before it is done. */
import type { Piece } from "./scale";

export interface Effect {
  /** Offsets that are given up. */
  offsets: bigint;
  /** Segments that go as a whole, and their bytes. */
  segments: number;
  bytes: number;
}

/** What a new log start gives up: the active segment stays, a segment that reaches beyond it too. */
export function deletionEffect(pieces: Piece[], logStart: bigint, before: bigint): Effect {
  const gone = pieces.filter((piece) => !piece.isActive && piece.next <= before);
  return {
    offsets: before > logStart ? before - logStart : 0n,
    segments: gone.length,
    bytes: gone.reduce((sum, piece) => sum + piece.bytes, 0),
  };
}

/** What a new log end gives up: segments that begin at or after it. */
export function truncationEffect(pieces: Piece[], logEnd: bigint, to: bigint): Effect {
  const gone = pieces.filter((piece) => piece.base >= to && piece.bytes > 0);
  return {
    offsets: to < logEnd ? logEnd - to : 0n,
    segments: gone.length,
    bytes: gone.reduce((sum, piece) => sum + piece.bytes, 0),
  };
}

/** Parse an offset that a person typed; undefined if it is none between the bounds. */
export function typedOffset(text: string, least: bigint, most: bigint): bigint | undefined {
  const digits = text.replace(/[\s,_.']/g, "");
  if (!/^\d{1,19}$/.test(digits)) return undefined;
  const offset = BigInt(digits);
  return offset >= least && offset <= most ? offset : undefined;
}
