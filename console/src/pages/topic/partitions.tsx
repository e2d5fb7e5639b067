/** Partitions with their marks and sizes, and how evenly the records are spread. */
import type { JSX } from "preact";
import { get, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { bytes, count, percent, rate } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Bytes, Failure, Figure, Meter } from "../../ui/parts";
import { messages } from "../../routes";
import { useRows } from "../../ui/virtual";
import { ratesOf, useHistory } from "../../ui/history";
import { GroupTable } from "../groups/table";
import type { TabProps } from "../../ui/tab";

type Partition = Schemas["Partition"];

/** A partition this many times larger than the mean is worth a word. */
const SKEWED = 2;
const ROW_PIXELS = 32;

export function Partitions({ topic }: TabProps): JSX.Element {
  const name = topic.topic;
  const list = useLoad(name, (signal) => get("/v1/topics/{topic}/partitions", { path: { topic: name }, signal }), 3000);
  const partitions = list.data?.partitions ?? [];
  const offline = list.data?.offline_partitions ?? [];
  const grown = ratesOf(useHistory().data)?.get(name);
  const size = sum(partitions, (one) => BigInt(one.size_bytes));
  const records = sum(partitions, (one) => BigInt(one.log_end_offset) - BigInt(one.log_start_offset));
  const largest = partitions.reduce((most, one) => (BigInt(one.size_bytes) > most ? BigInt(one.size_bytes) : most), 0n);
  const mean = partitions.length ? Number(size) / partitions.length : 0;
  const skew = mean ? Number(largest) / mean : 1;
  return (
    <>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} />
      <dl class="figures">
        <Figure name="Offsets held" note="records, less what compaction removed">
          {count(records)}
        </Figure>
        <Figure name="On disk">
          <Bytes of={size} />
        </Figure>
        {grown && (
          <Figure name="Appended" note={`${bytes(grown.bytes)}/s`}>
            {rate(grown.records)}/s
          </Figure>
        )}
        {partitions.length > 1 && (
          <Figure
            name="Skew"
            note={skew >= SKEWED ? <span class="warn">uneven: look at the keys</span> : "largest partition to the mean"}
          >
            {skew.toFixed(2)} ×
          </Figure>
        )}
      </dl>
      {offline.length > 0 && (
        <ul class="troubles" role="alert" aria-label="Offline partitions">
          <li class="bad">
            {offline.length === 1 ? "Partition" : "Partitions"} {offline.slice(0, 20).join(", ")}
            {offline.length > 20 && ` and ${count(offline.length - 20)} more`} {offline.length === 1 ? "takes" : "take"}{" "}
            no appends: a disk failed, or the log could not be opened. What has no row is not known; the figures are
            those of the others.
          </li>
        </ul>
      )}
      {list.data && <Rows topic={name} partitions={partitions} largest={largest} size={size} />}
      {may("read", name) && <Readers topic={name} />}
    </>
  );
}

/** The groups that have stored an offset in the topic. */
function Readers({ topic }: { topic: string }): JSX.Element {
  const list = useLoad(topic, (signal) => get("/v1/group-lags", { query: { topic }, signal }), 15_000);
  return (
    <section class="after" aria-label="Groups of the topic">
      <h2>Groups that read it</h2>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} />
      {list.data?.groups.length === 0 && <p class="quiet">No group has stored an offset in this topic.</p>}
      {list.data && list.data.groups.length > 0 && <GroupTable rows={list.data.groups} most={320} />}
    </section>
  );
}

function sum(partitions: Partition[], pick: (one: Partition) => bigint): bigint {
  return partitions.reduce((total, one) => total + pick(one), 0n);
}

function Rows({
  topic,
  partitions,
  largest,
  size,
}: {
  topic: string;
  partitions: Partition[];
  largest: bigint;
  size: bigint;
}): JSX.Element {
  const { scroller, virtual } = useRows(partitions.length, ROW_PIXELS, (index) => index);
  return (
    <div class="scroll">
      <div class="partition-list">
        <div class="row-head" aria-hidden="true">
          <span class="p-number">P</span>
          <span class="p-mark">Log start</span>
          <span class="p-mark">Last stable</span>
          <span class="p-mark">High watermark</span>
          <span class="p-mark">Log end</span>
          <span class="p-small">Segments</span>
          <span class="p-small">Producers</span>
          <span class="p-small">Size</span>
          <span class="grow">Share</span>
        </div>
        <div
          class="rows"
          ref={scroller}
          data-list
          role="list"
          aria-label="Partitions"
          style={{ height: `${Math.min(partitions.length, 16) * ROW_PIXELS + 2}px` }}
        >
          <div class="rows-space" style={{ height: `${virtual.getTotalSize()}px` }}>
            {virtual.getVirtualItems().map((item) => {
              const one = partitions[item.index];
              if (!one) return null;
              const isOpen = BigInt(one.last_stable_offset) < BigInt(one.high_watermark);
              return (
                <div
                  key={item.key}
                  role="listitem"
                  class="row"
                  style={{ height: `${ROW_PIXELS}px`, top: `${item.start}px` }}
                >
                  <a
                    class="p-number"
                    data-row
                    href={messages.link([topic], { partition: one.partition })}
                    title="Messages of this partition"
                  >
                    {one.partition}
                  </a>
                  <span class="p-mark">{count(one.log_start_offset)}</span>
                  <span
                    class={isOpen ? "p-mark warn" : "p-mark"}
                    title={isOpen ? "A transaction is open: read_committed readers wait here" : ""}
                  >
                    {count(one.last_stable_offset)}
                  </span>
                  <span class="p-mark">{count(one.high_watermark)}</span>
                  <span class="p-mark">{count(one.log_end_offset)}</span>
                  <span class="p-small">{one.segments === null ? "–" : count(one.segments)}</span>
                  <span class="p-small">{count(one.active_producers)}</span>
                  <span class="p-small">
                    <Bytes of={one.size_bytes} />
                  </span>
                  <span class="grow">
                    <Meter
                      part={one.size_bytes}
                      whole={largest}
                      label={`Partition ${one.partition}: ${percent(one.size_bytes, size)} of the topic`}
                    />
                  </span>
                </div>
              );
            })}
          </div>
        </div>
      </div>
    </div>
  );
}
