/** A topic's configuration, changed in place; the difference is shown before it is applied. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { useLoad } from "../../ui/load";
import { Failure, Search } from "../../ui/parts";
import {
  choicesOf,
  FIRST_KEYS,
  isForTools,
  parsed,
  readable,
  useConfigKeys,
  type ConfigKey,
} from "../topics/config_keys";
import { CreateTopic } from "../topics/create_topic";
import { DeleteTopic, MorePartitions, RecreateTopic, Review, type Changes } from "./changes";
import type { TabProps } from "../../ui/tab";
import { ValueSchema } from "./value_schema";

/** What people change most comes first; the others keep the service's order. */
const rank = (key: string): number => (FIRST_KEYS.includes(key) ? FIRST_KEYS.indexOf(key) : FIRST_KEYS.length);

const SOURCES: Record<string, string> = {
  topic: "set on this topic",
  adopted: "adopted",
  default: "default",
};

export function Configuration({ topic: before, again }: TabProps): JSX.Element {
  const name = before.topic;
  const loaded = useLoad(name, (signal) => call("get", "/v1/topics/{topic}", { path: { topic: name }, signal }));
  const known = useConfigKeys();
  const [changes, change] = useState<Changes>({});
  const [search, find] = useState("");
  const [showsAll, showAll] = useState(false);
  const [dialog, open] = useState<"review" | "partitions" | "delete" | "recreate" | "clone" | undefined>();
  const topic = loaded.data?.data ?? before;
  const mayChange = may("admin", name);
  const changed = Object.keys(changes).length;
  const isShown = (key: string): boolean => {
    const one = known?.get(key);
    return (
      key.includes(search) &&
      (showsAll || key in changes || topic.config[key]?.source === "topic" || !one || !isForTools(one))
    );
  };
  const set = (key: string, value: string | null | undefined): void => {
    const others = Object.entries(changes).filter(([other]) => other !== key);
    const isKept = value === undefined || value === topic.config[key]?.value;
    change(Object.fromEntries(isKept ? others : [...others, [key, value]]));
  };
  const dialogProps = {
    topic,
    etag: loaded.data?.headers.get("etag") ?? undefined,
    onClose: () => {
      open(undefined);
      loaded.again();
    },
    onDone: () => {
      change({});
      open(undefined);
      loaded.again();
      again();
    },
  };
  return (
    <>
      <div class="bar">
        <Search class="search" label="Search configuration keys" value={search} onInput={find} />
        <label>
          <input type="checkbox" checked={showsAll} onChange={(event) => showAll(event.currentTarget.checked)} />
          also keys without effect here
        </label>
        <span class="grow" />
        {mayChange && (
          <>
            <button type="button" onClick={() => open("partitions")}>
              Add partitions
            </button>
            <button type="button" onClick={() => open("clone")}>
              Clone
            </button>
            <button type="button" class="danger" onClick={() => open("recreate")}>
              Recreate
            </button>
            <button type="button" class="danger" onClick={() => open("delete")}>
              Delete topic
            </button>
            <button type="button" class="primary" disabled={!changed} onClick={() => open("review")}>
              {changed ? `Review ${changed} ${changed === 1 ? "change" : "changes"}` : "No changes"}
            </button>
          </>
        )}
      </div>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} />
      <ul class="config">
        {Object.entries(topic.config)
          .filter(([key]) => isShown(key))
          .sort(([a], [b]) => rank(a) - rank(b))
          .map(([key, entry]) => (
            <Entry
              key={key}
              name={key}
              known={known?.get(key)}
              entry={entry}
              change={changes[key]}
              mayChange={mayChange}
              onChange={(value) => set(key, value)}
            />
          ))}
      </ul>
      <ValueSchema topic={name} />
      {dialog === "review" && <Review {...dialogProps} changes={changes} />}
      {dialog === "partitions" && <MorePartitions {...dialogProps} />}
      {dialog === "clone" && <CreateTopic like={topic} onClose={() => open(undefined)} />}
      {dialog === "recreate" && <RecreateTopic {...dialogProps} />}
      {dialog === "delete" && <DeleteTopic {...dialogProps} />}
    </>
  );
}

interface EntryProps {
  name: string;
  known: ConfigKey | undefined;
  entry: Schemas["ConfigEntry"];
  change: string | null | undefined;
  mayChange: boolean;
  onChange: (value: string | null | undefined) => void;
}

function Entry({ name, known, entry, change, mayChange, onChange }: EntryProps): JSX.Element {
  const value = change === undefined ? entry.value : (change ?? known?.default ?? "");
  const said = readable(name, value);
  const id = `config-${name}`;
  const isChanged = change !== undefined;
  return (
    <li class={isChanged ? "changed" : ""}>
      <div class="config-name">
        <label class="mono" for={mayChange ? id : undefined}>
          {name}
        </label>
        {known && (
          <p class="hint">
            {known.description}
            {!known.accepted.includes("9223372036854775807") && `; ${known.accepted}`}
          </p>
        )}
      </div>
      <div class="config-value">
        {mayChange && known ? (
          <Control id={id} name={name} known={known} value={value} onChange={onChange} />
        ) : (
          <span class="mono">{value || <i class="quiet">empty</i>}</span>
        )}
        <span class="quiet small">
          {said && `${said} · `}
          {change === null ? (
            "back to the default"
          ) : isChanged ? (
            <b class="warn">changed from {entry.value}</b>
          ) : (
            (SOURCES[entry.source] ?? entry.source)
          )}
        </span>
      </div>
      <div class="config-actions">
        {isChanged && (
          <button type="button" class="small" onClick={() => onChange(undefined)}>
            Undo
          </button>
        )}
        {mayChange && !isChanged && entry.source === "topic" && (
          <button type="button" class="small" onClick={() => onChange(null)}>
            Use default
          </button>
        )}
      </div>
    </li>
  );
}

function Control({
  id,
  name,
  known,
  value,
  onChange,
}: {
  id: string;
  name: string;
  known: ConfigKey;
  value: string;
  onChange: (value: string) => void;
}): JSX.Element {
  const [typed, type] = useState<string | undefined>();
  const choices = choicesOf(known);
  if (choices.length) {
    return (
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {[...new Set([value, ...choices])].map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    );
  }
  return (
    <input
      id={id}
      class="mono"
      spellcheck={false}
      value={typed ?? value}
      onInput={(event) => {
        type(event.currentTarget.value);
        onChange(parsed(name, event.currentTarget.value));
      }}
      onBlur={() => type(undefined)}
    />
  );
}
