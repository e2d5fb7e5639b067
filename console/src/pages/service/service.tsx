/** The service itself: what it is, who asks, where its data lies, who may do what, and how it is set up. */
import type { ComponentType, JSX } from "preact";
import { isKafka } from "../../api/backend";
import { get, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { bytes, count, percent } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Bytes, Command, Empty, Failure, Figure, Meter, Time } from "../../ui/parts";
import { log, service } from "../../routes";
import { route } from "../../ui/router";
import { Limits, Settings } from "./settings";

const EVERY_MS = 10_000;

interface Tab {
  part: string;
  name: string;
  view: ComponentType;
  isForAdmins: boolean;
}

const TABS: Tab[] = [
  { part: "directories", name: "Data directories", view: Directories, isForAdmins: true },
  { part: "keys", name: "Keys", view: Keys, isForAdmins: true },
  { part: "settings", name: "Settings", view: Settings, isForAdmins: true },
  { part: "limits", name: "Limits", view: Limits, isForAdmins: false },
];

export function Service(): JSX.Element {
  const about = useLoad("service", async (signal) => ({
    info: await get("/v1", { signal }),
    caller: await get("/v1/caller", { signal }),
  }));
  const tabs = TABS.filter(
    (tab) => (!tab.isForAdmins || may("admin", "*")) && !(tab.view === Directories && isKafka.value),
  );
  const tab = tabs.find((one) => one.part === route.value.parts[1]) ?? tabs[0];
  const View = tab?.view;
  return (
    <>
      <div class="page-head">
        <h1>Service</h1>
      </div>
      <Failure problem={about.error?.code === "unreachable" ? undefined : about.error} onRetry={about.again} />
      {about.data && <About {...about.data} />}
      <nav class="tabs" aria-label="Service">
        {tabs.map((one) => (
          <a key={one.part} href={service.link([one.part])} aria-current={one === tab ? "page" : undefined}>
            {one.name}
          </a>
        ))}
      </nav>
      {View && isKafka.value !== undefined && <View />}
    </>
  );
}

function About({ info, caller }: { info: Schemas["ServiceInfo"]; caller: Schemas["Caller"] }): JSX.Element {
  const isOpen = caller.name === "anonymous";
  return (
    <dl class="figures">
      <Figure name="Version" note={info.name}>
        {info.version}
      </Figure>
      <Figure
        name="Backend"
        note={
          info.backend === "kafka" ? "a Kafka cluster stores the logs" : "the log is in this process, on its own disks"
        }
      >
        {info.backend}
      </Figure>
      <Figure name="You are" note={isOpen ? "the service asks for no credentials" : caller.scopes.join(", ")}>
        {caller.name}
      </Figure>
      {caller.expires_timestamp !== null && (
        <Figure name="Your key expires">
          <Time ms={caller.expires_timestamp} relative />
        </Figure>
      )}
    </dl>
  );
}

function Directories(): JSX.Element {
  const loaded = useLoad(
    "directories",
    async (signal) => ({
      list: (await get("/v1/directories", { signal })).directories,
      moves: (await get("/v1/moves", { signal })).moves,
      scrub: await get("/v1/scrub", { signal }),
    }),
    EVERY_MS,
  );
  return (
    <>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} onRetry={loaded.again} />
      <div class="grid">
        {loaded.data?.list.map((one) => (
          <Directory key={one.path} directory={one} />
        ))}
      </div>
      {loaded.data && loaded.data.list.length > 1 && <Moves moves={loaded.data.moves} />}
      {loaded.data && <Scrub report={loaded.data.scrub} />}
    </>
  );
}

function Directory({ directory }: { directory: Schemas["DataDirectory"] }): JSX.Element {
  const { path, status, detail, partitions, size_bytes: size, total_bytes: total, free_bytes: free } = directory;
  const used = total !== null && free !== null ? Number(total) - Number(free) : null;
  return (
    <section class="panel" aria-label={path}>
      <h2 class="wrap">
        <code>{path}</code> <span class={status === "online" ? "tag" : "tag bad"}>{status}</span>
      </h2>
      {detail && <p class="bad">{detail}</p>}
      <p>
        <b>
          <Bytes of={size} />
        </b>{" "}
        of logs in {count(partitions)} {partitions === 1 ? "partition" : "partitions"}
      </p>
      {used !== null && total !== null && free !== null && (
        <>
          <br />
          <Meter part={used} whole={total} label={`${bytes(used)} of ${bytes(total)} are used`} />
          <p class="hint">
            {bytes(free)} free of {bytes(total)} on its file system
          </p>
        </>
      )}
    </section>
  );
}

function Moves({ moves }: { moves: Schemas["Move"][] }): JSX.Element {
  return (
    <section class="after" aria-label="Moves">
      <h2>Moves of partitions</h2>
      {moves.length === 0 && (
        <p class="quiet">
          None since the start. <code>tidelog move TOPIC PARTITION DIRECTORY</code> moves one; appends and reads go on
          meanwhile.
        </p>
      )}
      {moves.length > 0 && (
        <div class="scroll" role="region" aria-label="Moves of partitions" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>Partition</th>
                <th>From</th>
                <th>To</th>
                <th>State</th>
                <th class="number">Copied</th>
              </tr>
            </thead>
            <tbody>
              {moves.map((move) => (
                <tr key={`${move.topic}/${move.partition}`}>
                  <td>
                    <a
                      href={log.link([move.topic], {
                        partition: move.partition,
                      })}
                    >
                      {move.topic} {move.partition}
                    </a>
                  </td>
                  <td>
                    <code>{move.source}</code>
                  </td>
                  <td>
                    <code>{move.target}</code>
                  </td>
                  <td class={move.state === "failed" ? "bad" : ""}>
                    {move.state} {move.problem}
                  </td>
                  <td class="number">{BigInt(move.first_offset) < 0n ? "–" : progress(move)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function progress({ first_offset: first, copied_offset: copied, end_offset: end }: Schemas["Move"]): string {
  return percent(BigInt(copied) - BigInt(first), BigInt(end) - BigInt(first));
}

function Scrub({ report }: { report: Schemas["ScrubReport"] }): JSX.Element {
  const isOff = BigInt(report.interval_ms) === 0n;
  const hasRun = BigInt(report.end_timestamp) >= 0n;
  return (
    <section class="after" aria-label="Search for damage">
      <h2>Search for damage</h2>
      {isOff && <p class="quiet">Off. Set TIDELOG_SCRUB_INTERVAL_MS to verify all committed data again and again.</p>}
      {!isOff && !hasRun && <p class="quiet">The first search has not ended yet.</p>}
      {hasRun && (
        <p class={report.damaged_count > 0 ? "bad" : ""}>
          <Time ms={report.end_timestamp} relative />: {bytes(report.checked_bytes)} checked,{" "}
          {count(report.damaged_count)} damaged {report.damaged_count === 1 ? "place" : "places"}.
        </p>
      )}
    </section>
  );
}

function Keys(): JSX.Element {
  const loaded = useLoad("keys", async (signal) => (await get("/v1/keys", { signal })).keys, EVERY_MS);
  const keys = loaded.data;
  return (
    <>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} onRetry={loaded.again} />
      {keys?.length === 0 && (
        <Empty title="There are no API keys">
          <p>
            As long as there is none, and neither tokens nor certificates are set up, whoever reaches the service may do
            everything. The first key ends that at once, without a restart.
          </p>
          <Command
            label="Command that makes a key"
            text="tidelog keys create ops --scope 'admin:*' --scope 'read:*' --scope 'append:*' --scope metrics"
          />
        </Empty>
      )}
      {keys && keys.length > 0 && (
        <div class="scroll" role="region" aria-label="Keys" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Scopes</th>
                <th>Created</th>
                <th>Expires</th>
                <th>Id</th>
              </tr>
            </thead>
            <tbody>
              {keys.map((key) => (
                <tr key={key.id}>
                  <td>{key.name}</td>
                  <td>
                    {key.scopes.map((scope) => (
                      <code key={scope} class="tag">
                        {scope}
                      </code>
                    ))}
                  </td>
                  <td class="nowrap">
                    <Time ms={key.created_timestamp} />
                  </td>
                  <td class="nowrap">
                    {key.expires_timestamp === null ? (
                      <span class="quiet">never</span>
                    ) : (
                      <Time ms={key.expires_timestamp} relative />
                    )}
                  </td>
                  <td>
                    <code>{key.id}</code>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="hint">
        Only a hash of each key is stored. Make one with <code>tidelog keys create</code>, revoke one with{" "}
        <code>tidelog keys revoke</code>.
      </p>
    </>
  );
}
