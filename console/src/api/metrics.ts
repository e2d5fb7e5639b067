/** Prometheus' text format: numbers by series. */

export interface Sample {
  labels: Record<string, string>;
  value: number;
}
export type Metrics = Map<string, Sample[]>;

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Parse a scrape; only families that `wanted` names are kept, the rest costs nothing. */
export function parseMetrics(text: string, wanted: ReadonlySet<string>): Metrics {
  const metrics: Metrics = new Map();
  for (const line of text.split("\n")) {
    if (line.startsWith("#") || !wanted.has(/^[\w:]*/.exec(line)?.[0] ?? "")) continue;
    const match = LINE.exec(line);
    if (!match) continue;
    const [, name = "", pairs = "", number = ""] = match;
    const labels: Record<string, string> = {};
    for (const [, key = "", value = ""] of pairs.matchAll(LABEL)) {
      labels[key] = value.replace(/\\(.)/g, (_, one: string) => (one === "n" ? "\n" : one));
    }
    const samples = metrics.get(name) ?? [];
    samples.push({ labels, value: number === "+Inf" ? Infinity : Number(number) });
    metrics.set(name, samples);
  }
  return metrics;
}

/** Sum a family; `keep` chooses series by their labels. */
export function total(metrics: Metrics, name: string, keep: (labels: Record<string, string>) => boolean = () => true): number {
  let sum = 0;
  for (const { labels, value } of metrics.get(name) ?? []) if (keep(labels)) sum += value;
  return sum;
}

/** Cumulative counts of a histogram by upper bound in seconds. */
export function buckets(
  metrics: Metrics,
  name: string,
  keep: (labels: Record<string, string>) => boolean = () => true,
): Map<number, number> {
  const counts = new Map<number, number>();
  for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
    if (!keep(labels)) continue;
    const bound = labels["le"] === "+Inf" ? Infinity : Number(labels["le"]);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  return counts;
}

/** The quantile between two scrapes, interpolated within its bucket as Prometheus does; null without observations. */
export function quantile(before: Map<number, number>, after: Map<number, number>, share: number): number | null {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  const counts = bounds.map((bound) => (after.get(bound) ?? 0) - (before.get(bound) ?? 0));
  const all = counts.at(-1) ?? 0;
  if (all <= 0) return null;
  const rank = share * all;
  const at = counts.findIndex((count) => count >= rank);
  const upper = bounds[at] ?? Infinity;
  const lower = at > 0 ? (bounds[at - 1] ?? 0) : 0;
  if (upper === Infinity) return lower;
  const below = at > 0 ? (counts[at - 1] ?? 0) : 0;
  const inside = (counts[at] ?? 0) - below;
  return lower + (upper - lower) * (inside > 0 ? (rank - below) / inside : 1);
}
