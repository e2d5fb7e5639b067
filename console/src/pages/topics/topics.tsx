/** The list of topics; a topic's own pages are below it. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { count, counted, rate } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Bytes, Failure, Search, Time } from "../../ui/parts";
import { topic as topicPage, topics as address } from "../../routes";
import { useRoom } from "../../ui/room";
import { useRows } from "../../ui/virtual";
import { ratesOf, useHistory, type History } from "../../ui/history";
import { readable, useConfigKeys, type ConfigKeys } from "./config_keys";
import { CreateTopic } from "./create_topic";
import { DeleteTopics } from "./delete_topics";
import { everyTopic } from "./every_topic";
import { FirstRecord } from "./first_record";

type Summary = Schemas["TopicSummary"];
type Order = "name" | "partitions" | "rate" | "size" | "last";

interface Row extends Summary {
  /** Not known without the scope `metrics`. */
  rate: number | undefined;
  kept: string;
}

const ROW_PIXELS = 30;
const COLUMNS: { order: Order; name: string }[] = [
  { order: "partitions", name: "Partitions" },
  { order: "rate", name: "Records/s" },
  { order: "size", name: "Size" },
  { order: "last", name: "Last record" },
];

/** What a list is sorted by, the greatest first. */
const KEYS: Record<Exclude<Order, "name">, (row: Row) => number> = {
  partitions: (row) => row.partitions,
  rate: (row) => row.rate ?? -1,
  size: (row) => Number(row.size_bytes ?? -1),
  last: (row) => Number(row.newest_timestamp ?? -1),
};

export function Topics(): JSX.Element {
  const { q: search, sort: order, create: isAsked } = address.asked();
  const [isCreating, create] = useState(isAsked);
  const [isDeleting, deleting] = useState(false);
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const list = useLoad("topics", everyTopic, 5000);
  const known = useConfigKeys();
  const rows = useShown(list.data, useHistory().data, known, search, order);
  const selected = rows.filter(({ topic }) => chosen.has(topic)); // what a search hides is not deleted
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
              {rows.length === list.data.length
                ? counted(rows.length, "topic")
                : `${count(rows.length)} of ${counted(list.data.length, "topic")}`}
            </span>
            {selected.length > 0 && (
              <button type="button" class="danger" onClick={() => deleting(true)}>
                Delete {counted(selected.length, "topic")}
              </button>
            )}
          </div>
          <List rows={rows} order={order} chosen={chosen} onChoose={may("admin") ? choose : undefined} />
        </>
      )}
      {isDeleting && (
        <DeleteTopics
          topics={selected}
          onDone={() => {
            choose(new Set());
            list.again();
          }}
          onClose={() => deleting(false)}
        />
      )}
      {isCreating && <CreateTopic onClose={() => create(false)} />}
    </>
  );
}

function useShown(
  topics: Summary[] | undefined,
  history: History | undefined,
  known: ConfigKeys | undefined,
  search: string,
  order: Order,
): Row[] {
  return useMemo(() => {
    const rates = ratesOf(history);
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = (topics ?? [])
      .filter(({ topic }) => words.every((word) => topic.toLowerCase().includes(word)))
      .map((one) => ({
        ...one,
        rate: rates && (rates.get(one.topic)?.records ?? 0),
        kept: keptOf(one.overrides, known),
      }));
    return order === "name" ? rows : rows.sort((a, b) => KEYS[order](b) - KEYS[order](a));
  }, [topics, history, known, search, order]);
}

/** How long records stay, in a few words. */
export function keptOf(overrides: Record<string, string>, known: ConfigKeys | undefined): string {
  const value = (key: string): string => overrides[key] ?? known?.get(key)?.default ?? "";
  if (value("cleanup.policy") === "compact") return "compacted";
  const kept = [readable("retention.ms", value("retention.ms"))];
  if (value("retention.bytes") !== "-1") kept.push(readable("retention.bytes", value("retention.bytes")));
  return kept.filter(Boolean).join(", ") + (value("cleanup.policy").includes("compact") ? ", compacted" : "");
}

interface ListProps {
  rows: Row[];
  order: Order;
  chosen: ReadonlySet<string>;
  /** Missing where the caller may delete nothing. */
  onChoose: ((chosen: ReadonlySet<string>) => void) | undefined;
}

function List({ rows, order, chosen, onChoose }: ListProps): JSX.Element {
  const { scroller, virtual } = useRows(rows.length, ROW_PIXELS, (index) => rows[index]?.topic ?? index);
  const room = useRoom(scroller);
  if (!rows.length) return <p class="quiet">No topic has that in its name.</p>;
  return (
    <div class="topic-list">
      <div class="row-head">
        {onChoose && (
          <input
            type="checkbox"
            aria-label="Choose all that are listed"
            checked={rows.every(({ topic }) => chosen.has(topic))}
            onChange={(event) => onChoose(new Set(event.currentTarget.checked ? rows.map(({ topic }) => topic) : []))}
          />
        )}
        <SortBy order="name" current={order} name="Name" />
        <span class="kept">Kept</span>
        {COLUMNS.map((column) => (
          <SortBy key={column.order} {...column} current={order} />
        ))}
      </div>
      <div
        class="rows"
        ref={scroller}
        data-list
        role="list"
        aria-label="Topics"
        tabIndex={0}
        style={{ height: `${Math.min(room, rows.length * ROW_PIXELS + 2)}px` }}
      >
        <div class="rows-space" style={{ height: `${virtual.getTotalSize()}px` }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            return (
              row && (
                <div
                  key={item.key}
                  class="row"
                  role="listitem"
                  style={{ height: `${ROW_PIXELS}px`, top: `${item.start}px` }}
                >
                  {onChoose && (
                    <input
                      type="checkbox"
                      aria-label={`Choose ${row.topic}`}
                      checked={chosen.has(row.topic)}
                      onChange={(event) => onChoose(changed(chosen, row.topic, event.currentTarget.checked))}
                    />
                  )}
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

function changed(chosen: ReadonlySet<string>, topic: string, isChosen: boolean): ReadonlySet<string> {
  const others = [...chosen].filter((one) => one !== topic);
  return new Set(isChosen ? [...others, topic] : others);
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
      <span class="column">{row.size_bytes === null ? "–" : <Bytes of={row.size_bytes} />}</span>
      <span class="column">{row.newest_timestamp === null ? "–" : <Time ms={row.newest_timestamp} relative />}</span>
    </>
  );
}
