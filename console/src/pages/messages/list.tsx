/** Messages, one a line; only those in sight are in the page, and the place stays while others arrive above. */
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { bytes, localTime, relativeTime, shownTime, utcTime } from "../../ui/format";
import { useRoom } from "../../ui/room";
import { useRows } from "../../ui/virtual";
import { cellOf, type Column } from "./columns";
import type { Message } from "./message";

const ROW_PIXELS = 28;
const NEAR_END = 10;

interface Props {
  messages: Message[];
  columns: Column[];
  partitions: number;
  open: string | null;
  onOpen: (message: Message | undefined) => void;
  onEnd: () => void;
}

export function List({ messages, columns, partitions, open, onOpen, onEnd }: Props): JSX.Element {
  const { scroller, virtual } = useRows(messages.length, ROW_PIXELS, (index) => messages[index]?.id ?? index);
  const room = useRoom(scroller);
  const first = useRef(messages[0]);
  useLayoutEffect(() => {
    const element = scroller.current;
    const before = first.current;
    first.current = messages[0];
    if (!element || !before || before === messages[0] || element.scrollTop < ROW_PIXELS) return;
    const moved = messages.indexOf(before);
    if (moved > 0) element.scrollTop += moved * ROW_PIXELS;
  }, [messages]);
  const items = virtual.getVirtualItems();
  const isNearEnd = (items.at(-1)?.index ?? 0) > messages.length - NEAR_END;
  useLayoutEffect(() => {
    if (isNearEnd) onEnd();
  }, [isNearEnd, messages.length]);
  return (
    <div class={columns.length ? "message-list with-columns" : "message-list"} style={{ "--columns": columns.length }}>
      <div class="row-head" aria-hidden="true">
        <span class="m-time">Time</span>
        {partitions > 1 && <span class="m-partition">P</span>}
        <span class="m-offset">Offset</span>
        <span class="m-key">Key</span>
        {columns.map(({ title }) => (
          <span key={title} class="m-column clip">
            {title}
          </span>
        ))}
        <span class="grow">Value</span>
        <span class="m-size">Bytes</span>
      </div>
      <div
        class="rows"
        ref={scroller}
        data-list
        role="list"
        aria-label="Messages"
        tabIndex={0}
        style={{ height: `${Math.min(room, messages.length * ROW_PIXELS + 2)}px` }}
      >
        <div class="rows-space" style={{ height: `${virtual.getTotalSize()}px` }}>
          {items.map((item) => {
            const message = messages[item.index];
            return (
              message && (
                <div
                  key={item.key}
                  role="listitem"
                  class="row"
                  style={{ height: `${ROW_PIXELS}px`, top: `${item.start}px` }}
                >
                  <Row
                    message={message}
                    columns={columns}
                    partitions={partitions}
                    isOpen={message.id === open}
                    onOpen={onOpen}
                  />
                </div>
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** Why readers of committed records do not see a message. */
export function TransactionTag({ of }: { of: "aborted" | "open" }): JSX.Element {
  const why = {
    aborted: "Its transaction was aborted: read_committed readers never see it",
    open: "A transaction is open here or before: read_committed readers wait",
  }[of];
  return (
    <span class={of === "aborted" ? "tag bad" : "tag"} title={why}>
      {of === "aborted" ? "aborted" : "not committed yet"}
    </span>
  );
}

function Row({
  message,
  columns,
  partitions,
  isOpen,
  onOpen,
}: {
  message: Message;
  columns: Column[];
  partitions: number;
  isOpen: boolean;
  onOpen: Props["onOpen"];
}): JSX.Element {
  const { keyText } = message;
  return (
    <button
      type="button"
      class="plain message-row"
      data-row
      title={`${relativeTime(message.timestamp)}\n${localTime(message.timestamp)} local\n${utcTime(message.timestamp)}`}
      aria-pressed={isOpen}
      onClick={() => onOpen(isOpen ? undefined : message)}
    >
      <span class="m-time quiet">{BigInt(message.timestamp) < 0n ? "no time" : shownTime(message.timestamp)}</span>
      {partitions > 1 && <span class="m-partition quiet">{message.partition}</span>}
      <span class="m-offset">{String(message.offset)}</span>
      <span class="m-key clip">{keyText ?? <i class="quiet">no key</i>}</span>
      {columns.map((column) => {
        const cell = cellOf(message, column);
        return (
          <span key={column.title} class={`m-column clip json-${cell?.kind ?? "null"}`}>
            {cell ? cell.text : <i class="quiet">–</i>}
          </span>
        );
      })}
      {message.transaction && <TransactionTag of={message.transaction} />}
      <span class="grow clip">{message.value64 === null ? <i class="quiet">tombstone</i> : message.preview}</span>
      <span class="m-size quiet">{bytes(message.size)}</span>
    </button>
  );
}
