/** One topic: its tabs, and what is in them. */
import type { ComponentType, JSX } from "preact";
import { isKafka } from "../../api/backend";
import { get } from "../../api/client";
import { later } from "../../ui/later";
import { useLoad } from "../../ui/load";
import { Failure } from "../../ui/parts";
import type { TabProps } from "../../ui/tab";
import { topic as address, topics } from "../../routes";
import { route } from "../../ui/router";
import { Messages } from "../messages/messages";
import { Partitions } from "./partitions";

const Log = later(() => import("../log/log").then((one) => one.Log));
const Configuration = later(() => import("./configuration").then((one) => one.Configuration));
const Produce = later(() => import("../produce/produce").then((one) => one.Produce));
const Ingest = later(() => import("../ingest/ingest").then((one) => one.Ingest));

interface Tab {
  part: string;
  name: string;
  view: ComponentType<TabProps>;
}

const TABS: [Tab, ...Tab[]] = [
  { part: "messages", name: "Messages", view: Messages },
  { part: "partitions", name: "Partitions", view: Partitions },
  { part: "log", name: "Log", view: Log },
  { part: "configuration", name: "Configuration", view: Configuration },
  { part: "produce", name: "Produce", view: Produce },
  { part: "ingest", name: "Ingest", view: Ingest },
];

/** On a narrow screen the tabs scroll: the current one is in sight. */
const show = (tab: HTMLElement | null): void => tab?.scrollIntoView({ block: "nearest", inline: "nearest" });

export function Topic(): JSX.Element {
  const [, name = "", part = "messages"] = route.value.parts;
  const loaded = useLoad(name, (signal) => get("/v1/topics/{topic}", { path: { topic: name }, signal }));
  const tabs = TABS.filter((one) => !(one.view === Log && isKafka.value));
  const tab = tabs.find((one) => one.part === part) ?? TABS[0];
  const View = tab.view;
  return (
    <>
      <div class="page-head">
        <h1>
          <a class="crumb" href={topics.link([])}>
            Topics
          </a>
          <span class="quiet"> / </span>
          {name}
        </h1>
      </div>
      <nav class="tabs" aria-label="Topic">
        {tabs.map((one) => (
          <a
            key={one.part}
            ref={one === tab ? show : null}
            href={address.link([name, one.part])}
            aria-current={one === tab ? "page" : undefined}
          >
            {one.name}
          </a>
        ))}
      </nav>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} onRetry={loaded.again} />
      {loaded.data && isKafka.value !== undefined && <View key={part} topic={loaded.data} again={loaded.again} />}
    </>
  );
}
