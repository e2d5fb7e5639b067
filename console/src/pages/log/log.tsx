/** The log of one partition: the picture, one segment of it, the way of a read, and what can be done. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Bytes, Choices, Empty, Failure, Figure, Time } from "../../ui/parts";
import { log as address } from "../../routes";
import type { TabProps } from "../../ui/tab";
import { Actions } from "./actions";
import { Explain } from "./explain_read";
import type { ReadPath } from "./explain";
import { retentionWords } from "./retention";
import { loadLog, type LogFacts } from "./load";
import { holder, Picture, type Shade } from "./picture";
import type { Axis, Piece } from "./scale";
import { SegmentTable } from "./segment_table";
import { Strip } from "./strip";

const EVERY_MS = 2000;
const SPANS = [
  { value: "0", label: "All" },
  { value: "604800000", label: "7 d" },
  { value: "86400000", label: "24 h" },
  { value: "3600000", label: "1 h" },
];

export function Log({ topic }: TabProps): JSX.Element {
  const { partition = 0 } = address.asked();
  const mayRead = may("read", topic.topic);
  const log = useLoad(
    `${topic.topic}/${partition}/${mayRead}`,
    (signal) => loadLog({ topic: topic.topic, partition }, mayRead, signal),
    EVERY_MS,
  );
  const { data } = log;
  return (
    <>
      {topic.partitions > 1 && <PartitionChoice partitions={topic.partitions} partition={partition} />}
      <Failure problem={log.error?.code === "unreachable" ? undefined : log.error} onRetry={log.again} />
      {data && (
        <View key={partition} topic={topic} partition={partition} facts={data} mayRead={mayRead} again={log.again} />
      )}
    </>
  );
}

function PartitionChoice({ partitions, partition }: { partitions: number; partition: number }): JSX.Element {
  const go = (text: string): void =>
    address.change({ partition: Number(text), segment: "", offset: undefined }, "push");
  return (
    <div class="bar">
      <label for="log-partition">Partition</label>
      <select id="log-partition" value={String(partition)} onChange={(event) => go(event.currentTarget.value)}>
        {Array.from({ length: partitions }, (_, number) => (
          <option key={number} value={String(number)}>
            {number}
          </option>
        ))}
      </select>
    </div>
  );
}

interface ViewProps {
  topic: Schemas["Topic"];
  partition: number;
  facts: LogFacts;
  mayRead: boolean;
  again: () => void;
}

function chosen(facts: LogFacts, base: string): Piece | undefined {
  return facts.pieces.find((piece) => String(piece.base) === base) ?? facts.pieces.at(-1);
}

function View({ topic, partition, facts, mayRead, again }: ViewProps): JSX.Element {
  const asked = address.asked();
  const [shades, shade] = useState<Shade[]>([]);
  const [path, follow] = useState<ReadPath | undefined>();
  const axis: Axis = asked.axis;
  const wanted = asked.offset;
  const piece = chosen(facts, asked.segment);
  const isEmpty = facts.pieces.every((one) => one.bytes === 0);
  const select = (base: bigint): void => address.change({ segment: String(base) });
  const files = piece && facts.files.get(piece.base);
  const length = facts.now - Math.min(facts.now, ...facts.pieces.filter((one) => one.to >= 0).map((one) => one.from));
  const showPath = (found: ReadPath | undefined): void => {
    follow(found);
    if (found) select(found.segment);
  };
  return (
    <div class="stack">
      <Facts facts={facts} topic={topic} />
      <section class="panel" aria-label="Picture of the log">
        <div class="bar">
          <Choices
            label="Axis"
            value={axis}
            onChange={(value) => address.change({ axis: value })}
            choices={[
              { value: "time", label: "By time" },
              { value: "bytes", label: "By bytes" },
            ]}
          />
          {axis === "time" && length > Number(SPANS.at(-1)?.value) && (
            <Choices
              label="Span"
              value={asked.span || "0"}
              choices={SPANS.filter((one) => Number(one.value) < length)}
              onChange={(value) => address.change({ span: value === "0" ? "" : value })}
            />
          )}
          <span class="quiet log-key">
            {axis === "time"
              ? "width: time · height: bytes · stronger colour: written faster"
              : "width: bytes · stronger colour: written faster"}{" "}
            {shades.length > 0 && <ShadeKey shades={shades} onClear={() => shade([])} />}
          </span>
        </div>
        <Picture
          facts={facts}
          axis={axis}
          span={axis === "time" ? Number(asked.span || 0) : 0}
          segmentBytes={Number(topic.config["segment.bytes"]?.value ?? 0)}
          shades={shades}
          selected={asked.segment ? piece?.base : undefined}
          wanted={wanted}
          onSelect={select}
        />
        {facts.damage.length > 0 && (
          <ul class="troubles" role="alert" aria-label="Damaged places">
            {facts.damage.map((one) => (
              <li key={`${one.base}/${one.position}`} class="bad">
                Damaged: {one.problem}. Readers pass the place by starting behind it; <code>tidelog verify</code> says
                what can be repaired.
              </li>
            ))}
          </ul>
        )}
        {isEmpty && (
          <Empty title="Nothing is stored yet">
            <p>Produce a record: the active segment grows here while you look.</p>
          </Empty>
        )}
      </section>
      {piece && files && mayRead && !isEmpty && (
        <section class="panel" aria-label="One segment">
          <Strip key={String(piece.base)} piece={piece} indexPath={files.index} path={path} wanted={wanted} />
          <Explain
            topic={topic.topic}
            partition={partition}
            facts={facts}
            onPath={showPath}
            path={path}
            wanted={wanted}
          />
        </section>
      )}
      {may("admin", topic.topic) && (
        <Actions topic={topic} partition={partition} facts={facts} onShade={shade} again={again} />
      )}
      <SegmentTable
        topic={topic.topic}
        partition={partition}
        facts={facts}
        selected={piece?.base}
        onSelect={select}
        mayRead={mayRead}
      />
    </div>
  );
}

function ShadeKey({ shades, onClear }: { shades: Shade[]; onClear: () => void }): JSX.Element {
  return (
    <>
      {" · shaded: "}
      {[...new Set(shades.map((one) => one.kind))].map((kind) => (
        <span key={kind} class={`shade-key ${kind}`}>
          {
            {
              removed: "would be removed",
              dirty: "would be compacted",
              clean: "compacted before",
            }[kind]
          }
        </span>
      ))}
      <button type="button" class="small" onClick={onClear}>
        Clear
      </button>
    </>
  );
}

function Facts({ facts, topic }: { facts: LogFacts; topic: Schemas["Topic"] }): JSX.Element {
  const size = facts.pieces.reduce((sum, piece) => sum + piece.bytes, 0);
  const oldest = holder(facts, facts.logStart);
  const records = facts.logEnd - facts.logStart;
  return (
    <dl class="figures">
      <Figure name="Offsets" note={`${count(facts.logStart)} – ${count(facts.logEnd)}`}>
        {count(records)}
      </Figure>
      <Figure
        name="Size"
        note={`in ${count(facts.pieces.length)} ${facts.pieces.length === 1 ? "segment" : "segments"}`}
      >
        <Bytes of={size} />
      </Figure>
      <Figure name="Oldest record" note={retentionWords(topic.config)}>
        {records > 0n && oldest && oldest.from >= 0 ? <Time ms={oldest.from} relative /> : "–"}
      </Figure>
      <Figure name="Leader epoch">{facts.leaderEpoch}</Figure>
      <Figure
        name="Recovery point"
        note={
          facts.recoveryPoint === facts.logEnd
            ? "all synced"
            : `${count(facts.logEnd - facts.recoveryPoint)} to check after a crash`
        }
      >
        {count(facts.recoveryPoint)}
      </Figure>
      {facts.archivedOffset !== undefined && (
        <Figure
          name="Archived up to"
          note={
            facts.archivedOffset >= facts.highWatermark
              ? "everything committed"
              : `${count(facts.highWatermark - facts.archivedOffset)} to come`
          }
        >
          {count(facts.archivedOffset)}
        </Figure>
      )}
      {facts.localStart !== undefined && facts.localStart > facts.logStart && (
        <Figure
          name="On the disk from"
          note={`${count(facts.localStart - facts.logStart)} offsets in the archive only`}
        >
          {count(facts.localStart)}
        </Figure>
      )}
    </dl>
  );
}
