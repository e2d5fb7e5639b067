/** Groups by their lag, the greatest first: the whole list, or that of a topic. */
import type { JSX } from "preact";
import type { Schemas } from "../../api/client";
import { group } from "../../routes";
import { count, duration } from "../../ui/format";
import { useRoom } from "../../ui/room";
import { useRows } from "../../ui/virtual";

const ROW_PIXELS = 30;

/** `most` bounds the height in pixels; without it the list takes what the window has. */
export function GroupTable({
  rows,
  most = Infinity,
}: {
  rows: Schemas["GroupLagSummary"][];
  most?: number;
}): JSX.Element {
  const { scroller, virtual } = useRows(rows.length, ROW_PIXELS, (index) => rows[index]?.group ?? index);
  const room = useRoom(scroller);
  return (
    <div class="group-list">
      <div class="row-head" aria-hidden="true">
        <span class="grow">Name</span>
        <span class="column">Partitions</span>
        <span class="column">Lag ↓</span>
        <span class="column">Oldest unread</span>
      </div>
      <div
        class="rows"
        ref={scroller}
        data-list
        role="list"
        aria-label="Groups"
        tabIndex={0}
        style={{ height: `${Math.min(room, most, 2 + ROW_PIXELS * rows.length)}px` }}
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
                  <a
                    class="grow clip"
                    data-row
                    href={group.link([row.group])}
                    title={`${row.group}: ${row.topics.join(", ")}`}
                  >
                    {row.group}
                  </a>
                  {Number(row.missed) > 0 && (
                    <span class="tag bad" title="Removed before they were read">
                      {count(row.missed)} missed
                    </span>
                  )}
                  <span class="column">{count(row.partitions)}</span>
                  <span class="column">{count(row.total_lag)}</span>
                  <span class="column">{age(row.max_lag_ms)}</span>
                </div>
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** The age of the oldest unread record. */
export function age(ms: number | bigint | null): string {
  return ms === null ? "–" : duration(ms);
}
