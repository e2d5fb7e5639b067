/** Groups: how far each has read, and how far behind it is; the worst first. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import { get } from "../../api/client";
import { groups } from "../../routes";
import { count, counted } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Command, Empty, Failure, Search } from "../../ui/parts";
import { GroupTable } from "./table";

const EVERY_MS = 15_000; // each offset of each group costs the service a look at its log
const MOST = 1000;

export function Groups(): JSX.Element {
  const { q: search } = groups.asked();
  const list = useLoad(
    `groups ${search}`,
    (signal) => get("/v1/group-lags", { query: { limit: MOST, search }, signal }),
    EVERY_MS,
  );
  const found = list.data?.groups ?? [];
  const isFresh = list.data?.groups_count === 0 && !search;
  return (
    <>
      <div class="page-head">
        <h1>Groups</h1>
      </div>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} onRetry={list.again} />
      {isFresh && <FirstGroup />}
      {(list.data ?? search) && !isFresh && (
        <>
          <div class="bar">
            <Search class="search" label="Search groups" value={search} onInput={(q) => groups.change({ q })} />
            <span class="quiet" role="status">
              {list.data && counted(list.data.groups_count, "group")}
              {list.data &&
                Number(list.data.groups_count) > found.length &&
                `, the ${count(found.length)} with the greatest lag are shown`}
            </span>
          </div>
          {list.data && found.length === 0 && <p class="quiet">No group has that in its name.</p>}
          {found.length > 0 && <GroupTable rows={found} />}
        </>
      )}
    </>
  );
}

function FirstGroup(): JSX.Element {
  return (
    <Empty title="No group has stored an offset">
      <p>
        A reader that wants to go on where it stopped stores its next offset under a name of its choice. It then appears
        here with its lag. The name is all it needs; workers that share the partitions of a topic renew a lease (
        <code>tidelog work</code>).
      </p>
      <Command
        label="Command that stores an offset"
        text={`curl -X PUT ${HOME}/v1/groups/my-reader/offsets/events/0 \\
  -H 'content-type: application/json' -d '{"offset": "latest"}'`}
      />
    </Empty>
  );
}
