/** The first page: is it healthy, what grows, who is behind, what arrived last. */
import type { JSX } from "preact";
import { isKafka } from "../../api/backend";
import { get, Problem, send, type Schemas } from "../../api/client";
import { parseJson } from "../../api/json";
import { may } from "../../api/rights";
import { group as groupPage, groups as groupsPage, topic as topicPage, topics as topicsPage } from "../../routes";
import { BINARY_STEPS, Chart } from "../../ui/chart";
import { bytes, rate, count, duration, latency } from "../../ui/format";
import { useLoad, type Loaded } from "../../ui/load";
import { Bytes, Failure, Figure, Meter, Time } from "../../ui/parts";
import { FirstRecord } from "../topics/first_record";
import { everyTopic } from "../topics/every_topic";
import { Health } from "./health";
import { isForbidden, perSecond, ratesOf, seconds, useHistory, type History } from "../../ui/history";

type Readiness = Schemas["Readiness"];
type Summary = Schemas["TopicSummary"];

/** What goes wrong is seen within three seconds. */
const SOON_MS = 2000;
const BUSIEST = 8;
const REFUSED = 5;
const NEWEST = 5;
const BEHIND = 3;

/** Readiness is told with 503 while it is not ready: that is an answer, not an error. */
async function readiness(signal: AbortSignal): Promise<Readiness> {
  try {
    return parseJson(await (await send("/readyz", { signal })).text()) as Readiness;
  } catch (error) {
    if (error instanceof Problem && error.status === 503 && error.document.status)
      return error.document as unknown as Readiness;
    throw error;
  }
}

export function Overview(): JSX.Element {
  const ready = useLoad("readiness", readiness, SOON_MS);
  const history = useHistory();
  const topics = useLoad("topics", everyTopic, 10_000);
  const disks = useLoad(
    `directories ${isKafka.value}`,
    async (signal) => (may("admin", "*") && isKafka.value === false ? get("/v1/directories", { signal }) : undefined),
    SOON_MS,
  );
  const directories = disks.data?.directories ?? [];
  const totals = history.data?.totals;
  const readers = history.data?.points.at(-1)?.readers;
  const size = totals ? totals.size_bytes : sizeOf(topics.data);
  const isPart = totals ? !totals.is_complete : false;
  return (
    <>
      <div class="page-head">
        <h1>Overview</h1>
      </div>
      <Health
        ready={ready.data}
        error={ready.error}
        totals={totals}
        offline={topics.data?.filter((one) => one.offline_partitions.length > 0)}
        directories={directories}
        isForbidden={isForbidden(history)}
      />
      <Failure problem={topics.error?.code === "unreachable" ? undefined : topics.error} />
      <dl class="figures">
        <Figure name="Topics">{topics.data ? count(topics.data.length) : "–"}</Figure>
        <Figure name="Partitions">
          {topics.data ? count(topics.data.reduce((sum, one) => sum + one.partitions, 0)) : "–"}
        </Figure>
        {!isKafka.value && (
          <Figure name="On disk" note={isPart ? <span class="bad">without what is offline</span> : undefined}>
            {size === null ? "–" : <Bytes of={size} />}
          </Figure>
        )}
        <Figure name="Readers" note="long polls and tails">
          {readers === undefined ? "–" : count(readers)}
        </Figure>
        {disks.data?.directories.map(({ path, status, free_bytes, total_bytes }) => (
          <Figure
            key={path}
            name="Disk, free"
            note={
              status === "offline" ? (
                <span class="bad">offline: {path}</span>
              ) : total_bytes !== null ? (
                `of ${bytes(total_bytes)} at ${path}`
              ) : (
                `at ${path}`
              )
            }
          >
            {status === "offline" || free_bytes === null ? "–" : <Bytes of={free_bytes} />}
          </Figure>
        ))}
      </dl>
      {topics.data?.length === 0 ? (
        <FirstRecord />
      ) : isForbidden(history) ? (
        <p class="note">
          The charts need a key with the scope <code>metrics</code>.
        </p>
      ) : (
        <Charts history={history.data} />
      )}
      <div class="grid columns">
        <Behind />
        <Newest topics={topics.data} />
        <Refused history={history.data} />
      </div>
      <Busiest history={history} />
    </>
  );
}

/** What all topics take on disk; null while one is not known. */
function sizeOf(topics: Summary[] | undefined): bigint | null {
  if (!topics || topics.some((one) => one.size_bytes === null)) return null;
  return topics.reduce((sum, one) => sum + BigInt(one.size_bytes ?? 0), 0n);
}

function Charts({ history }: { history: History | undefined }): JSX.Element {
  const points = history?.points ?? [];
  const at = points.map((point) => Number(point.timestamp) / 1000);
  return (
    <div class="grid charts">
      <Chart
        title="Appends a second"
        seconds={at}
        format={rate}
        least={10}
        lines={[
          { name: "records", values: perSecond(points, (one) => one.records_in) },
          { name: "requests", values: perSecond(points, (one) => one.append_requests) },
        ]}
      />
      <Chart
        title="Bytes a second"
        seconds={at}
        format={bytes}
        least={1024}
        steps={BINARY_STEPS}
        lines={[
          { name: "in", values: perSecond(points, (one) => one.bytes_in) },
          { name: "out", values: perSecond(points, (one) => one.bytes_out) },
        ]}
      />
      <Chart
        title="Append latency"
        seconds={at}
        format={latency}
        least={0.001}
        lines={[
          { name: "p99", values: points.map((one) => seconds(one.append_p99_ms)) },
          { name: "p50", values: points.map((one) => seconds(one.append_p50_ms)) },
        ]}
      />
      <Chart
        title={isKafka.value ? "Broker's answer, p99" : "Commit (fsync), p99"}
        seconds={at}
        format={latency}
        least={0.001}
        lines={[{ name: "commit", values: points.map((one) => seconds(one.commit_p99_ms)) }]}
      />
    </div>
  );
}

/** The groups that are most behind. */
function Behind(): JSX.Element {
  const list = useLoad("behind", (signal) => get("/v1/group-lags", { query: { limit: BEHIND }, signal }), SOON_MS);
  return (
    <section class="panel" aria-label="Groups behind">
      <h2>
        <a href={groupsPage.link([])}>Groups behind</a>
      </h2>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} />
      {list.data?.groups.length === 0 && <p class="quiet">No group has stored an offset.</p>}
      {list.data && list.data.groups.length > 0 && (
        <div class="scroll" role="region" aria-label="The groups that are most behind" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>Group</th>
                <th class="number">Lag</th>
                <th class="number">Oldest unread</th>
              </tr>
            </thead>
            <tbody>
              {list.data.groups.map((one) => (
                <tr key={one.group}>
                  <td class="name">
                    <a href={groupPage.link([one.group])}>{one.group}</a>
                  </td>
                  <td class="number">{count(one.total_lag)}</td>
                  <td class="number">{one.max_lag_ms === null ? "–" : duration(one.max_lag_ms)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** The topics whose newest record is the most recent. */
function Newest({ topics }: { topics: Summary[] | undefined }): JSX.Element | null {
  if (isKafka.value || !topics?.length) return null;
  const known = topics.filter((one) => one.newest_timestamp !== null);
  const newest = known.sort((a, b) => Number(b.newest_timestamp) - Number(a.newest_timestamp)).slice(0, NEWEST);
  return (
    <section class="panel" aria-label="Arrived last">
      <h2>Arrived last</h2>
      {newest.length === 0 && <p class="quiet">No topic holds a record.</p>}
      {newest.length > 0 && (
        <div class="scroll" role="region" aria-label="The topics with the newest records" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>Topic</th>
                <th>Newest record</th>
              </tr>
            </thead>
            <tbody>
              {newest.map((one) => (
                <tr key={one.topic}>
                  <td class="name">
                    <a href={topicPage.link([one.topic, ""])}>{one.topic}</a>
                  </td>
                  <td class="nowrap">
                    <Time ms={one.newest_timestamp ?? -1} relative />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Why something did not arrive. */
function Refused({ history }: { history: History | undefined }): JSX.Element | null {
  const last = history?.refusals.slice(0, REFUSED) ?? [];
  if (!last.length) return null;
  return (
    <section class="panel" aria-label="Refused last">
      <h2>Deliveries refused last</h2>
      <div class="scroll" role="region" aria-label="The last deliveries that were refused" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>Topic</th>
              <th>Why</th>
              <th>When</th>
            </tr>
          </thead>
          <tbody>
            {last.map((one, index) => (
              <tr key={`${one.timestamp}/${index}`}>
                <td class="name">
                  <a href={topicPage.link([one.topic, "ingest"])}>{one.topic}</a>
                </td>
                <td class="nowrap">
                  {one.reason.replaceAll("_", " ")} <span class="quiet">{one.status}</span>
                </td>
                <td class="nowrap">
                  <Time ms={one.timestamp} relative />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** The topics that take most bytes now, then those that hold most. */
function Busiest({ history }: { history: Loaded<History> }): JSX.Element | null {
  const first = history.data?.topics.slice(0, BUSIEST) ?? [];
  if (!first.length) return null;
  const rates = ratesOf(history.data);
  const largest = Math.max(1, ...first.map((one) => Number(one.size_bytes ?? 0)));
  return (
    <section class="panel after" aria-label="Busiest topics">
      <h2>
        <a href={topicsPage.link([], { sort: "size" })}>Busiest topics</a>
      </h2>
      <div class="scroll" role="region" aria-label="Topics by their bytes" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>Topic</th>
              <th class="number">Records/s</th>
              <th class="number">Bytes/s</th>
              <th>15 minutes</th>
              <th class="number">Size</th>
              <th class="wide-only" aria-label="Size beside the largest" />
            </tr>
          </thead>
          <tbody>
            {first.map((one) => (
              <tr key={one.topic}>
                <td class="name">
                  <a href={topicPage.link([one.topic, ""])}>{one.topic}</a>
                </td>
                <td class="number">{rates ? rate(rates.get(one.topic)?.records ?? 0) : "–"}</td>
                <td class="number">{rates ? bytes(rates.get(one.topic)?.bytes ?? 0) : "–"}</td>
                <td class="nowrap">
                  <Spark values={one.bytes_in.map(Number)} />
                </td>
                <td class="number">{one.size_bytes === null ? "–" : <Bytes of={one.size_bytes} />}</td>
                <td class="wide-only">
                  {one.size_bytes !== null && (
                    <Meter
                      part={one.size_bytes}
                      whole={largest}
                      label={`${bytes(one.size_bytes)} of ${bytes(largest)}`}
                    />
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** Bytes by the minute, the oldest first. */
function Spark({ values }: { values: number[] }): JSX.Element {
  const most = Math.max(1, ...values);
  const bars = values.map((value, index) => ({
    x: 6 * (index + 15 - values.length),
    height: (18 * value) / most,
  }));
  return (
    <svg
      class="spark"
      width="90"
      height="18"
      role="img"
      aria-label={`Bytes by the minute: ${values.map((value) => bytes(value)).join(", ") || "none yet"}`}
    >
      {bars.map(({ x, height }) => (
        <rect key={x} x={x} y={18 - height} width="5" height={height} />
      ))}
    </svg>
  );
}
