/** Limits and settings as people read them: the name says the unit. */
import { bytes, count, duration } from "../../ui/format";

/** A number beside its reading: `16777216` is 16 MiB, `30000` ms are 30 s; empty where the number says it all. */
export function reading(name: string, text: string): string {
  if (!/^\d+$/.test(text)) return "";
  const value = BigInt(text);
  if (/_bytes(_per_second)?$/.test(name))
    return value >= 1024n ? bytes(value) + (name.endsWith("_per_second") ? "/s" : "") : "";
  if (name.endsWith("_ms")) return value >= 1000n ? duration(value) : "";
  if (name.endsWith("_percent")) return `${count(value)} %`;
  return value >= 10_000n ? count(value) : "";
}

export interface Line {
  name: string;
  value: string;
  source?: string;
  description?: string;
}

/** The lines that have every word in their name or description, those that somebody set first. */
export function shownLines(lines: Line[], search: string, onlySet: boolean): Line[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return lines
    .filter((line) => !onlySet || line.source !== "default")
    .filter(({ name, description = "", value }) =>
      words.every((word) => `${name} ${description} ${value}`.toLowerCase().includes(word)),
    )
    .sort((a, b) => Number(b.source !== "default") - Number(a.source !== "default") || (a.name < b.name ? -1 : 1));
}
