/** The path of a read, as the header `Log-Explain` tells it. */
import { bytes, count } from "../../ui/format";

export interface ReadPath {
  segment: bigint;
  indexOffset: bigint;
  indexPosition: number;
  /** Where the batch begins that the read returns. */
  position: number;
  scannedBytes: number;
  endedBy: string;
  /** The batch that was found. */
  batch: { first: bigint; next: bigint; bytes: number };
}

/** Parse `segment_base_offset=0; index_entry_offset=…`; null if the read met no batch. */
export function parseExplanation(header: string | null, batch: ReadPath["batch"]): ReadPath | null {
  const facts = new Map(
    (header ?? "").split(";").map((part) => {
      const [name = "", value = ""] = part.trim().split("=");
      return [name, value];
    }),
  );
  const segment = facts.get("segment_base_offset");
  if (segment === undefined) return null;
  return {
    segment: BigInt(segment),
    indexOffset: BigInt(facts.get("index_entry_offset") ?? segment),
    indexPosition: Number(facts.get("index_entry_position")),
    position: Number(facts.get("position")),
    scannedBytes: Number(facts.get("scanned_bytes")),
    endedBy: facts.get("ended_by") ?? "",
    batch,
  };
}

/** The path in sentences, one a step. */
export function steps(wanted: bigint, path: ReadPath): string[] {
  const hasEntry = path.indexPosition > 0 || path.indexOffset > path.segment;
  const { first, next } = path.batch;
  const records = next - first === 1n ? `offset ${count(first)}` : `offsets ${count(first)} to ${count(next - 1n)}`;
  return [
    `The segment with the greatest base offset at or below ${count(wanted)} begins at ${count(path.segment)}.`,
    hasEntry
      ? `Its offset index is searched by halves: the last entry at or below ${count(wanted)} is offset ${count(path.indexOffset)} at byte ${count(path.indexPosition)}.`
      : `Its offset index has no entry at or below ${count(wanted)}: the search begins at byte 0 of the file.`,
    path.position === path.indexPosition
      ? "That is where the batch begins: nothing has to be skipped."
      : `From there ${bytes(path.position - path.indexPosition)} of batches are skipped by their headers, up to byte ${count(path.position)}.`,
    `The batch there holds ${records} in ${bytes(path.batch.bytes)}; its checksum is verified, and it is returned.`,
  ];
}
