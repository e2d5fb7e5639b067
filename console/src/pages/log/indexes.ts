/** Kafka's index files, as they lie on disk (docs/formats). */

/** One entry of an offset index: the batch at `position` holds `offset` or ends before it. */
export interface IndexEntry {
  offset: bigint;
  position: number;
}

const ENTRY_BYTES = 8;

/** Parse a `.index` file: pairs of relative offset and position, 32 bits each, big-endian. */
export function parseIndex(file: ArrayBuffer, base: bigint): IndexEntry[] {
  const view = new DataView(file);
  const entries: IndexEntry[] = [];
  for (let at = 0; at + ENTRY_BYTES <= view.byteLength; at += ENTRY_BYTES) {
    entries.push({
      offset: base + BigInt(view.getUint32(at)),
      position: view.getUint32(at + 4),
    });
  }
  return entries;
}

/** At most `most` of the entries, evenly chosen, the first and the last among them. */
export function thinned<T>(entries: T[], most: number): T[] {
  if (entries.length <= most) return entries;
  const step = (entries.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, at) => entries[Math.round(at * step)] as T);
}
