/** The first page: what is unhealthy, how fast records come in, and what there is. */
import { PREFIX } from "../../place";
import type { JSX } from "preact";
import { isKafka } from "../../api/backend";
import { get, type Schemas } from "../../api/client";
import { parseJson } from "../../api/json";
import { may } from "../../api/rights";
import { total } from "../../api/metrics";
import { BINARY_STEPS, Chart } from "../../ui/chart";
import { bytes, rate, count, latency } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Bytes, Failure, Figure, Meter } from "../../ui/parts";
import { topic as topicPage } from "../../routes";
import { FirstRecord } from "../topics/first_record";
import { Health } from "./health";
import { history, isForbidden, type Point } from "./history";

type Readiness = Schemas["Readiness"];

/** Readiness is told with 503 while it is not ready: that is an answer, not an error. */
async function readiness(signal: AbortSignal): Promise<Readiness> {
  const response = await fetch(`${PREFIX}/readyz`, { signal });
  return parseJson(await response.text()) as Readiness;
}

export function Overview(): JSX.Element {
  const ready = useLoad("readiness", readiness, 5000);
  const topics = useLoad("topics", (signal) => get("/v1/topics", { query: { page_size: 1000 }, signal }), 5000);
  const disks = useLoad(`directories ${isKafka.value}`, async (signal) => (may("admin", "*") && isKafka.value === false ? get("/v1/directories", { signal }) : undefined), 15_000);
  const { points, last } = history.value;
  const latest = points.at(-1);
  const list = topics.data?.topics ?? [];
  return (
    <>
      <div class="page-head">
        <h1>Overview</h1>
      </div>
      <Health ready={ready.data} error={ready.error} metrics={last?.metrics} isForbidden={isForbidden.value} />
      <Failure problem={topics.error?.code === "unreachable" ? undefined : topics.error} />
      <dl class="figures">
        <Figure name="Topics">
          {topics.data ? count(list.length) : "–"}
          {topics.data?.next_page_token && "+"}
        </Figure>
        <Figure name="Partitions">{topics.data ? count(list.reduce((sum, one) => sum + one.partitions, 0)) : "–"}</Figure>
        {!isKafka.value && <Figure name="On disk">{last ? <Bytes of={total(last.metrics, "tidelog_topic_size_bytes")} /> : "–"}</Figure>}
        <Figure name="Readers" note="long polls and tails">
          {latest ? count(latest.readers) : "–"}
        </Figure>
        {disks.data?.directories.map(
          ({ path, free_bytes, total_bytes }) =>
            free_bytes !== null &&
            total_bytes !== null && (
              <Figure key={path} name="Disk, free" note={`of ${bytes(total_bytes)} at ${path}`}>
                <Bytes of={free_bytes} />
              </Figure>
            ),
        )}
      </dl>
      {topics.data && list.length === 0 ? (
        <FirstRecord />
      ) : isForbidden.value ? (
        <p class="note">
          The charts need a key with the scope <code>metrics</code>.
        </p>
      ) : (
        <Charts points={points} />
      )}
      <Busiest named={new Set(list.map((one) => one.topic))} />
    </>
  );
}

function Charts({ points }: { points: Point[] }): JSX.Element {
  const seconds = points.map((point) => point.seconds);
  const line = (name: string, pick: (point: Point) => number | null) => ({ name, values: points.map(pick) });
  return (
    <div class="grid charts">
      <Chart title="Appends a second" seconds={seconds} format={rate} least={10} lines={[line("records", (one) => one.records), line("requests", (one) => one.appends)]} />
      <Chart title="Bytes a second" seconds={seconds} format={bytes} least={1024} steps={BINARY_STEPS} lines={[line("in", (one) => one.bytesIn), line("out", (one) => one.bytesOut)]} />
      <Chart title="Append latency" seconds={seconds} format={latency} least={0.001} lines={[line("p99", (one) => one.p99), line("p50", (one) => one.p50)]} />
      <Chart title={isKafka.value ? "Broker's answer, p99" : "Commit (fsync), p99"} seconds={seconds} format={latency} least={0.001} lines={[line("commit", (one) => one.commit)]} />
    </div>
  );
}

/** The topics that take most bytes now, then those that hold most. */
function Busiest({ named }: { named: Set<string> }): JSX.Element | null {
  const { last, topics } = history.value;
  if (!last) return null;
  const sizes = (last.metrics.get("tidelog_topic_size_bytes") ?? []).map(({ labels, value }) => ({ topic: labels["topic"] ?? "", size: value }));
  const shown = sizes.filter(({ topic }) => named.has(topic)); // not the log of the groups' offsets
  const bytesIn = (topic: string): number => topics.get(topic)?.bytes ?? 0;
  const first = shown.sort((a, b) => bytesIn(b.topic) - bytesIn(a.topic) || b.size - a.size).slice(0, 8);
  if (!first.length) return null;
  const largest = Math.max(...first.map((one) => one.size));
  return (
    <section class="panel after">
      <h2>Busiest topics</h2>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Topic</th>
              <th class="number">Records/s</th>
              <th class="number">Bytes/s</th>
              <th class="number">Size</th>
              <th class="wide-only" aria-label="Size beside the largest" />
            </tr>
          </thead>
          <tbody>
            {first.map(({ topic, size }) => (
              <tr key={topic}>
                <td class="name">
                  <a href={topicPage.link([topic, ""])}>{topic}</a>
                </td>
                <td class="number">{rate(topics.get(topic)?.records ?? 0)}</td>
                <td class="number">{bytes(bytesIn(topic))}</td>
                <td class="number">
                  <Bytes of={size} />
                </td>
                <td class="wide-only">
                  <Meter part={size} whole={largest} label={`${bytes(size)} of ${bytes(largest)}`} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
