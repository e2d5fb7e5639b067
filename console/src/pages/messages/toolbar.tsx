/** Where to start, which partition, the filter, and what to do with what was found. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Schemas } from "../../api/client";
import { Choices, Copy, Search } from "../../ui/parts";
import { setQuery } from "../../ui/router";
import { may } from "../../api/rights";
import { curlOf, ndjsonOf, save } from "./export";
import { FilterHelp } from "./filter_help";
import type { Asked, From } from "./look";
import type { Session } from "./session";

const FROM: { value: From; label: string }[] = [
  { value: "newest", label: "Newest" },
  { value: "earliest", label: "Earliest" },
  { value: "offset", label: "Offset" },
  { value: "time", label: "Time" },
  { value: "live", label: "Live" },
];

interface Props {
  topic: Schemas["Topic"];
  asked: Asked;
  fault: string;
  session: Session | undefined;
  onAgain: () => void;
  onReplay: () => void;
}

export function Toolbar({ topic, asked, fault, session, onAgain, onReplay }: Props): JSX.Element {
  const count = Number(topic.partitions);
  const found = session?.messages.value ?? [];
  return (
    <>
      <div class="bar">
        <Choices label="Where to start" choices={FROM} value={asked.from} onChange={(from) => setQuery({ from: from === "newest" ? undefined : from, at: undefined, open: undefined }, "push")} />
        {asked.from === "offset" && (
          <input
            class="mono short"
            inputMode="numeric"
            aria-label="Offset to start from"
            placeholder="offset"
            value={asked.at}
            onChange={(event) => setQuery({ at: event.currentTarget.value.trim(), open: undefined })}
          />
        )}
        {asked.from === "time" && (
          <input
            type="datetime-local"
            step="1"
            aria-label="Time to start from"
            value={asked.at}
            onChange={(event) => setQuery({ at: event.currentTarget.value, open: undefined })}
          />
        )}
        {count > 1 && (
          <select aria-label="Partition" value={asked.partition ?? ""} onChange={(event) => setQuery({ partition: event.currentTarget.value, open: undefined })}>
            <option value="">all partitions</option>
            {Array.from({ length: count }, (_, partition) => (
              <option key={partition} value={partition}>
                partition {partition}
              </option>
            ))}
          </select>
        )}
        <span class="grow" />
        <button type="button" class="small menu-button" popovertarget="message-actions">
          Actions
        </button>
        <div class="menu" popover="auto" id="message-actions">
          <Copy label="Copy as curl" text={() => curlOf(urlFor(topic.topic, asked), asked.from === "live" ? "-N " : "")} />
          <button type="button" class="small" disabled={!found.length} onClick={() => save(`${topic.topic}.ndjson`, ndjsonOf(found))}>
            Download NDJSON
          </button>
          {may("append") && (
            <button type="button" class="small" disabled={!found.length} onClick={onReplay}>
              Replay to a topic
            </button>
          )}
        </div>
      </div>
      <FilterBar asked={asked} fault={fault} session={session} onAgain={onAgain} />
    </>
  );
}

function FilterBar({ asked, fault, session, onAgain }: Pick<Props, "asked" | "fault" | "session" | "onAgain">): JSX.Element {
  const [text, write] = useState(asked.filter);
  const state = session?.state.value;
  const submit = (event: Event): void => {
    event.preventDefault();
    if (text === asked.filter) onAgain();
    else setQuery({ filter: text, open: undefined }, "push");
  };
  return (
    <form class="bar filter" onSubmit={submit} role="search">
      <Search class="grow mono" label="Filter messages" placeholder="key = AA17   value.dest = MIA   time > -1h" value={text} isWrong={fault !== ""} onInput={write} />
      <FilterHelp onChoose={write} />
      {state === "reading" ? (
        <button type="button" onClick={() => session?.halt()}>
          Stop
        </button>
      ) : state === "live" || state === "held" ? (
        <button type="button" aria-pressed={state === "held"} onClick={() => session?.hold()}>
          {state === "held" ? "Resume" : "Pause"}
        </button>
      ) : (
        <button type="submit">{text === asked.filter ? "Read again" : "Search"}</button>
      )}
      {fault && (
        <p class="bad" role="alert">
          {fault}
        </p>
      )}
    </form>
  );
}

function urlFor(topic: string, { from, at, partition }: Asked): string {
  const base = `/v1/topics/${encodeURIComponent(topic)}${partition === undefined ? "" : `/partitions/${partition}`}`;
  if (from === "live") return `${base}/tail?offset=latest`;
  if (partition === undefined) return `${base}/records`;
  const ms = new Date(at).getTime();
  const offset = from === "offset" ? at : from === "time" && ms ? `ts:${ms}` : "earliest";
  return `${base}/records?offset=${offset}&max_records=100`;
}
