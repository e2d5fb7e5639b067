import { describe, expect, it } from "vitest";
import { buckets, parseMetrics, quantile, total } from "../src/api/metrics";
import { extended, type History } from "../src/pages/overview/history";

const NAMES = new Set(["tidelog_requests_total", "tidelog_records_in_total", "tidelog_request_seconds_bucket"]);

function scrape(seconds: number, appends: number, fast = appends): { seconds: number; metrics: ReturnType<typeof parseMetrics> } {
  const text = `# HELP tidelog_requests_total Answers
tidelog_requests_total{operation="appendRecords",status="201"} ${appends}.0
tidelog_requests_total{operation="getTopic",status="200"} 999.0
tidelog_records_in_total{topic="a\\"b"} ${appends * 10}
tidelog_request_seconds_bucket{le="0.001",operation="appendRecords"} ${fast}
tidelog_request_seconds_bucket{le="0.01",operation="appendRecords"} ${appends}
tidelog_request_seconds_bucket{le="+Inf",operation="appendRecords"} ${appends}
tidelog_other 1
`;
  return { seconds, metrics: parseMetrics(text, NAMES) };
}
const NOTHING: History = { points: [], last: undefined, topics: new Map() };

describe("charts from /metrics", () => {
  it("keep wanted families alone, with labels as they were before they were escaped", () => {
    const { metrics } = scrape(0, 5);
    expect([...metrics.keys()].sort()).toEqual([...NAMES].sort());
    expect(metrics.get("tidelog_records_in_total")?.[0]?.labels["topic"]).toBe('a"b');
    expect(total(metrics, "tidelog_requests_total")).toBe(1004);
  });
  it("show what happened between two scrapes", () => {
    const history = extended(extended(NOTHING, scrape(100, 10)), scrape(105, 60, 35));
    expect(history.points).toHaveLength(1);
    expect(history.points[0]).toMatchObject({ appends: 10, records: 100 });
    expect(history.points[0]?.p50).toBeCloseTo(0.001);
    expect(history.topics.get('a"b')?.records).toBe(100);
  });
  it("begin again after a restart, whose counters start at zero", () => {
    const history = extended(extended(NOTHING, scrape(100, 10)), scrape(105, 3));
    expect(history.points).toEqual([]);
    expect(extended(history, scrape(110, 4)).points).toHaveLength(1);
  });
  it("forget what is older than a quarter of an hour", () => {
    let history = NOTHING;
    for (let at = 0; at <= 4000; at += 100) history = extended(history, scrape(at, at));
    expect(history.points.length).toBeLessThanOrEqual(10);
  });
  it("interpolate a quantile as Prometheus does", () => {
    const after = buckets(scrape(0, 100, 50).metrics, "tidelog_request_seconds");
    expect(quantile(new Map(), after, 0.75)).toBeCloseTo(0.0055);
    expect(quantile(after, after, 0.5)).toBeNull();
  });
});
