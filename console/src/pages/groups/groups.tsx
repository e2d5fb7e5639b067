/** Groups: how far each has read, and how far behind it is. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import { get, type Schemas } from "../../api/client";
import { count, duration } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Command, Empty, Failure } from "../../ui/parts";
import { group, groups } from "../../routes";
import { useRows } from "../../ui/virtual";

const ROW_PIXELS = 30;
const EVERY_MS = 15_000; // each partition of each group costs the service a look at its log
const MOST_LAGS = 30;
const AT_ONCE = 6;

interface Row {
  name: string;
  lag: Schemas["GroupLag"] | undefined;
}

async function everyGroup(search: string, signal: AbortSignal): Promise<Row[]> {
  const names: string[] = [];
  let token: string | null | undefined;
  do {
    const page = await get("/v1/groups", { query: { page_size: 1000, ...(token ? { page_token: token } : {}) }, signal });
    names.push(...page.groups);
    token = page.next_page_token;
  } while (token);
  const rows: Row[] = names.filter((name) => name.toLowerCase().includes(search.toLowerCase())).map((name) => ({ name, lag: undefined }));
  const waiting = rows.slice(0, MOST_LAGS);
  const look = async (): Promise<void> => {
    for (let row = waiting.shift(); row; row = waiting.shift()) {
      row.lag = await get("/v1/groups/{group}/lag", { path: { group: row.name }, signal }).catch(() => undefined);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, look));
  return rows;
}

export function Groups(): JSX.Element {
  const search = groups.asked().q;
  const list = useLoad(`groups ${search}`, (signal) => everyGroup(search, signal), EVERY_MS);
  const isFresh = list.data?.length === 0 && !search;
  return (
    <>
      <div class="page-head">
        <h1>Groups</h1>
      </div>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} onRetry={list.again} />
      {isFresh && <FirstGroup />}
      {list.data && !isFresh && (
        <>
          <div class="bar">
            <input type="search" class="search" data-search aria-label="Search groups" placeholder="Search groups   /" value={search} onInput={(event) => groups.change({ q: event.currentTarget.value })} />
            <span class="quiet" role="status">
              {count(list.data.length)} {list.data.length === 1 ? "group" : "groups"}
            </span>
          </div>
          <Rows rows={list.data} />
        </>
      )}
    </>
  );
}

function FirstGroup(): JSX.Element {
  return (
    <Empty title="No group has stored an offset">
      <p>
        A reader that wants to go on where it stopped stores its next offset under a name of its choice. It then appears here with its lag. The name is all it needs; workers that share the partitions of a topic renew a lease (<code>tidelog work</code>).
      </p>
      <Command
        label="Command that stores an offset"
        text={`curl -X PUT ${HOME}/v1/groups/my-reader/offsets/events/0 \\
  -H 'content-type: application/json' -d '{"offset": "latest"}'`}
      />
    </Empty>
  );
}

function Rows({ rows }: { rows: Row[] }): JSX.Element {
  const { scroller, virtual } = useRows(rows.length, ROW_PIXELS, (index) => rows[index]?.name ?? index);
  if (!rows.length) return <p class="quiet">No group has that in its name.</p>;
  return (
    <div class="group-list">
      <div class="row-head">
        <span class="grow">Name</span>
        <span class="column">Partitions</span>
        <span class="column">Lag</span>
        <span class="column">Oldest unread</span>
      </div>
      <div class="rows" ref={scroller} data-list role="list" aria-label="Groups" tabIndex={0} style={{ height: `min(${2 + ROW_PIXELS * rows.length}px, calc(100vh - 220px))` }}>
        <div class="rows-space" style={{ height: `${virtual.getTotalSize()}px` }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            return (
              row && (
                <div key={item.key} class="row" role="listitem" style={{ height: `${ROW_PIXELS}px`, top: `${item.start}px` }}>
                  <a class="grow clip" data-row href={group.link([row.name])} title={row.name}>
                    {row.name}
                  </a>
                  <span class="column">{row.lag ? count(row.lag.partitions.length) : "–"}</span>
                  <span class="column">{row.lag ? count(row.lag.total_lag) : "–"}</span>
                  <span class="column">{row.lag ? age(row.lag.max_lag_ms) : "–"}</span>
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
