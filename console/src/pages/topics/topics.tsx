/** The list of topics; a topic's own pages are below it. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { get, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { count, rate } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Bytes, Failure, Search } from "../../ui/parts";
import { topic as topicPage, topics as address } from "../../routes";
import { useRows } from "../../ui/virtual";
import { history } from "../overview/history";
import { readable, useConfigKeys, type ConfigKeys } from "./config_keys";
import { CreateTopic } from "./create_topic";
import { FirstRecord } from "./first_record";

type Summary = Schemas["TopicSummary"];
type Order = "name" | "partitions" | "rate" | "size";

interface Row extends Summary {
  /** Not known without the scope `metrics`, and of a topic whose logs are all offline. */
  size: number | undefined;
  rate: number | undefined;
  kept: string;
}

const ROW_PIXELS = 30;
const COLUMNS: { order: Order; name: string }[] = [
  { order: "partitions", name: "Partitions" },
  { order: "rate", name: "Records/s" },
  { order: "size", name: "Size" },
];

/** Return every page of the list. */
async function everyTopic(signal: AbortSignal): Promise<Summary[]> {
  const topics: Summary[] = [];
  let token: string | null | undefined;
  do {
    const page = await get("/v1/topics", { query: { page_size: 1000, ...(token ? { page_token: token } : {}) }, signal });
    topics.push(...page.topics);
    token = page.next_page_token;
  } while (token);
  return topics;
}

export function Topics(): JSX.Element {
  const { q: search, sort: order, create: isAsked } = address.asked();
  const [isCreating, create] = useState(isAsked);
  const list = useLoad("topics", everyTopic, 5000);
  const known = useConfigKeys();
  const rows = useShown(list.data, known, search, order);
  const isFresh = list.data?.length === 0;
  return (
    <>
      <div class="page-head">
        <h1>Topics</h1>
        {may("admin") && (
          <button type="button" class="primary" onClick={() => create(true)}>
            Create topic
          </button>
        )}
      </div>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} onRetry={list.again} />
      {isFresh && <FirstRecord />}
      {list.data && !isFresh && (
        <>
          <div class="bar">
            <Search class="search" label="Search topics" value={search} onInput={(q) => address.change({ q })} />
            <span class="quiet" role="status">
              {rows.length === list.data.length ? `${count(rows.length)} topics` : `${count(rows.length)} of ${count(list.data.length)} topics`}
            </span>
          </div>
          <List rows={rows} order={order} />
        </>
      )}
      {isCreating && <CreateTopic onClose={() => create(false)} />}
    </>
  );
}

function useShown(topics: Summary[] | undefined, known: ConfigKeys | undefined, search: string, order: Order): Row[] {
  const { last, topics: rates } = history.value;
  return useMemo(() => {
    const sizes = new Map((last?.metrics.get("tidelog_topic_size_bytes") ?? []).map(({ labels, value }) => [labels["topic"], value]));
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = (topics ?? [])
      .filter(({ topic }) => words.every((word) => topic.toLowerCase().includes(word)))
      .map((one) => ({ ...one, size: sizes.get(one.topic), rate: last && (rates.get(one.topic)?.records ?? 0), kept: keptOf(one.overrides, known) }));
    return order === "name" ? rows : rows.sort((a, b) => Number(b[order] ?? -1) - Number(a[order] ?? -1));
  }, [topics, known, search, order, last]);
}

/** How long records stay, in a few words. */
export function keptOf(overrides: Record<string, string>, known: ConfigKeys | undefined): string {
  const value = (key: string): string => overrides[key] ?? known?.get(key)?.default ?? "";
  if (value("cleanup.policy") === "compact") return "compacted";
  const kept = [readable("retention.ms", value("retention.ms"))];
  if (value("retention.bytes") !== "-1") kept.push(readable("retention.bytes", value("retention.bytes")));
  return kept.filter(Boolean).join(", ") + (value("cleanup.policy").includes("compact") ? ", compacted" : "");
}

function List({ rows, order }: { rows: Row[]; order: Order }): JSX.Element {
  const { scroller, virtual } = useRows(rows.length, ROW_PIXELS, (index) => rows[index]?.topic ?? index);
  if (!rows.length) return <p class="quiet">No topic has that in its name.</p>;
  return (
    <div class="topic-list">
      <div class="row-head">
        <SortBy order="name" current={order} name="Name" />
        <span class="kept">Kept</span>
        {COLUMNS.map((column) => (
          <SortBy key={column.order} {...column} current={order} />
        ))}
      </div>
      <div class="rows" ref={scroller} data-list role="list" aria-label="Topics" tabIndex={0} style={{ height: `min(100vh - 220px, ${rows.length * ROW_PIXELS + 2}px)` }}>
        <div class="rows-space" style={{ height: `${virtual.getTotalSize()}px` }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            return (
              row && (
                <div key={item.key} class="row" role="listitem" style={{ height: `${ROW_PIXELS}px`, top: `${item.start}px` }}>
                  <Line row={row} />
                </div>
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

function SortBy({ order, current, name }: { order: Order; current: Order; name: string }): JSX.Element {
  return (
    <button
      type="button"
      class={order === "name" ? "plain grow" : "plain column"}
      aria-pressed={order === current}
      onClick={() => address.change({ sort: order })}
    >
      {name} {order === current && "↓"}
    </button>
  );
}

function Line({ row }: { row: Row }): JSX.Element {
  return (
    <>
      <a class="grow clip" data-row href={topicPage.link([row.topic, ""])} title={row.topic}>
        {row.topic}
      </a>
      {row.offline_partitions.length > 0 && <span class="tag bad">{row.offline_partitions.length} offline</span>}
      <span class="kept clip" title={row.kept}>
        {row.kept}
      </span>
      <span class="column">{count(row.partitions)}</span>
      <span class="column">{row.rate === undefined ? "–" : rate(row.rate)}</span>
      <span class="column">{row.size === undefined ? "–" : <Bytes of={row.size} />}</span>
    </>
  );
}
