/** Every segment as a row: the same facts as the picture, to read and to download. */
import { pathOf } from "../../place";
import type { JSX } from "preact";
import { get, send } from "../../api/client";
import { token } from "../../api/session";
import { count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Bytes, Time } from "../../ui/parts";
import { useRows } from "../../ui/virtual";
import type { LogFacts } from "./load";
import type { Piece } from "./scale";

const ROW_PIXELS = 30;
const MOST_ROWS = 12;

interface TableProps {
  topic: string;
  partition: number;
  facts: LogFacts;
  selected: bigint | undefined;
  mayRead: boolean;
  onSelect: (base: bigint) => void;
}

export function SegmentTable(props: TableProps): JSX.Element {
  const { facts } = props;
  const newest = facts.pieces.toReversed();
  const { scroller, virtual } = useRows(newest.length, ROW_PIXELS, (index) => String(newest[index]?.base ?? index));
  return (
    <section class="segment-list" aria-label="Segments">
      <h2>Segments, newest first</h2>
      <div class="row-head">
        <span class="column wide">Base offset</span>
        <span class="column">Offsets</span>
        <span class="column">Size</span>
        <span class="grow time">Last record</span>
        {props.mayRead && <span class="files">Files</span>}
      </div>
      <div
        class="rows"
        ref={scroller}
        data-list
        role="list"
        aria-label="Segments"
        tabIndex={0}
        style={{ height: `${2 + ROW_PIXELS * Math.min(MOST_ROWS, newest.length)}px` }}
      >
        <div class="rows-space" style={{ height: `${virtual.getTotalSize()}px` }}>
          {virtual.getVirtualItems().map((item) => {
            const piece = newest[item.index];
            return (
              piece && (
                <div
                  key={item.key}
                  class={`row${piece.base === props.selected ? " chosen" : ""}`}
                  role="listitem"
                  style={{ height: `${ROW_PIXELS}px`, top: `${item.start}px` }}
                >
                  <Line piece={piece} {...props} />
                </div>
              )
            );
          })}
        </div>
      </div>
      <Producers
        topic={props.topic}
        partition={props.partition}
        facts={facts}
        selected={props.selected}
        mayRead={props.mayRead}
      />
    </section>
  );
}

function Line({ piece, facts, mayRead, onSelect }: TableProps & { piece: Piece }): JSX.Element {
  const files = facts.files.get(piece.base);
  return (
    <>
      <span class="column wide">
        <button type="button" class="plain link" data-row onClick={() => onSelect(piece.base)}>
          {count(piece.base)}
        </button>
      </span>
      <span class="column">{count(piece.next - piece.base)}</span>
      <span class="column">
        <Bytes of={piece.bytes} />
      </span>
      <span class="grow clip time">
        {piece.to >= 0 ? <Time ms={piece.to} /> : <span class="quiet">no time</span>}{" "}
        {piece.isActive && <span class="tag">active</span>}
        {piece.next <= (facts.localStart ?? 0n) && (
          <span class="tag" title="The disk does not have it any more">
            in the archive only
          </span>
        )}
      </span>
      {mayRead && files && (
        <span class="files">
          {(["log", "index", "timeindex", "txnindex"] as const).map(
            (kind) => files[kind] && <Download key={kind} path={files[kind]} kind={kind} base={piece.base} />,
          )}
        </span>
      )}
    </>
  );
}

/** A link; with a key, which a link cannot send, the file is fetched first. */
function Download({ path, kind, base }: { path: string; kind: string; base: bigint }): JSX.Element {
  const name = `${String(base).padStart(20, "0")}.${kind}`;
  const fetchFirst = async (event: Event): Promise<void> => {
    if (!token.value) return;
    event.preventDefault();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await (await send(pathOf(path))).blob());
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <a
      href={path}
      download={name}
      aria-label={`Download .${kind} of segment ${base}`}
      onClick={(event) => void fetchFirst(event)}
    >
      .{kind}
    </a>
  );
}

interface ProducersProps {
  topic: string;
  partition: number;
  facts: LogFacts;
  selected: bigint | undefined;
  mayRead: boolean;
}

/** Producers whose last append has a time of the selected segment. */
function Producers({ topic, partition, facts, selected, mayRead }: ProducersProps): JSX.Element | null {
  const producers = useLoad(
    `${topic}/${partition}/${mayRead}`,
    async (signal) =>
      mayRead
        ? (
            await get("/v1/topics/{topic}/partitions/{partition}/producers", {
              path: { topic, partition },
              signal,
            })
          ).producers
        : [],
    10_000,
  );
  const piece = facts.pieces.find((one) => one.base === selected);
  if (!piece || !producers.data?.length) return null;
  const here = producers.data.filter(
    (one) => Number(one.last_timestamp) >= piece.from && Number(one.last_timestamp) <= piece.to,
  );
  return (
    <p class="quiet after-small">
      {here.length
        ? `Producers whose last append has a time of segment ${piece.base}: ${here.map((one) => `${one.producer_id} (epoch ${one.producer_epoch}, sequence ${one.last_sequence})`).join(", ")}.`
        : `No idempotent producer's last append has a time of segment ${piece.base}; the log remembers ${count(producers.data.length)}.`}
    </p>
  );
}
