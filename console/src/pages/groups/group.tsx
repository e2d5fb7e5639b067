/** One group: its offsets, its lag in records and in time, where that is going, and resets. */
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { get, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { Chart } from "../../ui/chart";
import { count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { everyPage } from "../../ui/pages";
import { Failure, Figure, Time } from "../../ui/parts";
import { groups, topic as topicPage, toOffset } from "../../routes";
import { route } from "../../ui/router";
import { age } from "./table";
import { Reset } from "./reset";
import { linePoints, trendWords, withPoint, type Point } from "./trend";

const EVERY_MS = 5000;
const SPARK = { width: 96, height: 18 };

type Lag = Schemas["PartitionLag"];
type Stored = Schemas["GroupOffset"];
type Worker = Schemas["WorkerLease"];

interface Facts {
  lag: Schemas["GroupLag"];
  stored: Map<string, Stored>;
  workers: Worker[];
}

const keyOf = ({ topic, partition }: { topic: string; partition: number }): string => `${topic}/${partition}`;

async function load(group: string, signal: AbortSignal): Promise<Facts> {
  const path = { group };
  const lag = await get("/v1/groups/{group}/lag", { path, signal });
  const offsets = await everyPage(
    (query) => get("/v1/groups/{group}/offsets", { path, query, signal }),
    (page) => page.offsets,
  );
  const workers = await everyPage(
    (query) => get("/v1/groups/{group}/leases", { path, query, signal }),
    (page) => page.workers,
  );
  return { lag, stored: new Map(offsets.map((one) => [keyOf(one), one])), workers };
}

/** The points of every partition and of the sum, while the page is open. */
function useHistory(facts: Facts | undefined): Map<string, Point[]> {
  const points = useRef(new Map<string, Point[]>());
  const seen = useRef<Facts | undefined>(undefined);
  if (facts && facts !== seen.current) {
    seen.current = facts;
    const at = Date.now() / 1000;
    const add = (key: string, lag: number): void =>
      void points.current.set(key, withPoint(points.current.get(key) ?? [], { at, lag }));
    add("", Number(facts.lag.total_lag));
    for (const one of facts.lag.partitions) if (one.lag !== null) add(keyOf(one), Number(one.lag));
  }
  return points.current;
}

export function Group(): JSX.Element {
  const [, name = ""] = route.value.parts;
  const loaded = useLoad(name, (signal) => load(name, signal), EVERY_MS);
  const [reset, open] = useState<Lag[] | undefined>();
  const history = useHistory(loaded.data);
  const lag = loaded.data?.lag;
  const all = history.get("") ?? [];
  const topics = [...new Set(lag?.partitions.map((one) => one.topic))];
  const workers = loaded.data?.workers ?? [];
  return (
    <>
      <div class="page-head">
        <h1>
          <a class="crumb" href={groups.link([])}>
            Groups
          </a>
          <span class="quiet"> / </span>
          {name}
        </h1>
      </div>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} onRetry={loaded.again} />
      {lag && (
        <>
          <dl class="figures">
            <Figure name="Lag" note={trendWords(all)}>
              {count(lag.total_lag)}
            </Figure>
            <Figure name="Oldest unread record">{lag.max_lag_ms === null ? "–" : `${age(lag.max_lag_ms)} old`}</Figure>
            <Figure name="Partitions" note={`of ${count(topics.length)} ${topics.length === 1 ? "topic" : "topics"}`}>
              {count(lag.partitions.length)}
            </Figure>
            {workers.length > 0 && <Figure name="Workers">{count(workers.length)}</Figure>}
          </dl>
          <div class="grid charts">
            <Chart
              title="Lag"
              seconds={all.map(({ at }) => at)}
              lines={[{ name: "offsets", values: all.map((one) => one.lag) }]}
              least={10}
              format={count}
            />
          </div>
          {workers.length > 0 && <Workers workers={workers} />}
          {topics.map((topic) => (
            <section key={topic} class="after" aria-label={topic}>
              <div class="bar">
                <h2>
                  <a href={topicPage.link([topic, ""])}>{topic}</a>
                </h2>
                {may("read", topic) && (
                  <button
                    type="button"
                    class="small"
                    onClick={() => open(lag.partitions.filter((one) => one.topic === topic))}
                  >
                    Reset…
                  </button>
                )}
              </div>
              <Table
                rows={lag.partitions.filter((one) => one.topic === topic)}
                stored={loaded.data?.stored ?? new Map()}
                history={history}
                holders={holdersOf(workers)}
              />
            </section>
          ))}
        </>
      )}
      {reset && <Reset group={name} lags={reset} onClose={() => open(undefined)} onDone={loaded.again} />}
    </>
  );
}

/** The worker that holds each partition. */
function holdersOf(workers: Worker[]): Map<string, string> {
  return new Map(workers.flatMap((one) => one.partitions.map((held) => [keyOf(held), one.worker] as const)));
}

/** Who shares the partitions: by leases, which end by themselves. */
function Workers({ workers }: { workers: Worker[] }): JSX.Element {
  return (
    <section class="after" aria-label="Workers">
      <h2>Workers</h2>
      <div class="scroll" role="region" aria-label="Workers" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>Worker</th>
              <th class="number">Holds</th>
              <th class="number">To move</th>
              <th class="number">Waits for</th>
              <th>Lease ends</th>
            </tr>
          </thead>
          <tbody>
            {workers.map((one) => (
              <tr key={one.worker}>
                <td class="clip" title={one.worker}>
                  {one.worker}
                </td>
                <td class="number">{count(one.partitions.length)}</td>
                <td class="number">{count(one.partitions.filter((held) => held.revoking).length)}</td>
                <td class="number">{count(one.waiting)}</td>
                <td class="nowrap">
                  <Time ms={one.expires_at} relative />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

interface TableProps {
  rows: Lag[];
  stored: Map<string, Stored>;
  history: Map<string, Point[]>;
  holders: Map<string, string>;
}

function Table({ rows, stored, history, holders }: TableProps): JSX.Element {
  return (
    <div class="scroll" role="region" aria-label="Offsets" tabIndex={0}>
      <table class="cursors">
        <thead>
          <tr>
            <th class="number">Partition</th>
            <th class="number">Next offset</th>
            <th class="number">Log end</th>
            <th class="number">Lag</th>
            <th class="number">Oldest unread</th>
            <th>Trend</th>
            {holders.size > 0 && <th>Worker</th>}
            <th>Stored</th>
            <th>Metadata</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Line
              key={keyOf(row)}
              row={row}
              stored={stored.get(keyOf(row))}
              points={history.get(keyOf(row)) ?? []}
              holder={holders.size > 0 ? (holders.get(keyOf(row)) ?? "–") : undefined}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface LineProps {
  row: Lag;
  stored: Stored | undefined;
  points: Point[];
  /** Undefined if the group has no workers. */
  holder: string | undefined;
}

function Line({ row, stored, points, holder }: LineProps): JSX.Element {
  const messages = toOffset(row.topic, row.partition, BigInt(row.offset));
  return (
    <tr>
      <td class="number">{row.partition}</td>
      <td class="number">
        <a href={messages} aria-label={`Read partition ${row.partition} from offset ${row.offset}`}>
          {count(row.offset)}
        </a>
      </td>
      {row.lag === null || row.end_offset === null ? (
        <td colSpan={4} class="warn">
          The partition does not exist, or its log is not open.
        </td>
      ) : (
        <>
          <td class="number">{count(row.end_offset)}</td>
          <td class="number">
            <b>{count(row.lag)}</b>
            {row.missed !== null && row.missed > 0 && (
              <span class="tag bad" title="Removed before they were read">
                {count(row.missed)} missed
              </span>
            )}
          </td>
          <td class="number">{age(row.lag_ms)}</td>
          <td class="nowrap">
            <svg class="spark" width={SPARK.width} height={SPARK.height} aria-hidden="true">
              <polyline points={linePoints(points, SPARK.width, SPARK.height)} />
            </svg>{" "}
            <span class="quiet small">{trendWords(points)}</span>
          </td>
        </>
      )}
      {holder !== undefined && (
        <td class="clip" title={holder}>
          {holder}
        </td>
      )}
      <td class="nowrap">{stored?.commit_timestamp != null && <Time ms={stored.commit_timestamp} relative />}</td>
      <td class="clip metadata" title={stored?.metadata}>
        {stored?.metadata}
      </td>
    </tr>
  );
}
