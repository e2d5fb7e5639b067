/** Where to start, which partition, the filter, and what to do with what was found. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Schemas } from "../../api/client";
import { Choices, Copy, Search } from "../../ui/parts";
import { messages as address, type MessagesAsked } from "../../routes";
import { may } from "../../api/rights";
import { FilterHelp } from "./filter_help";
import { curlsOf } from "./look";
import type { Pushed } from "./pushed";
import type { Session } from "./session";

const FROM: { value: MessagesAsked["from"]; label: string }[] = [
  { value: "newest", label: "Newest" },
  { value: "earliest", label: "Earliest" },
  { value: "offset", label: "Offset" },
  { value: "time", label: "Time" },
  { value: "live", label: "Live" },
];

interface Props {
  topic: Schemas["Topic"];
  asked: MessagesAsked;
  fault: string;
  /** What of the filter the service evaluates; undefined if it cannot be read. */
  pushed: Pushed | undefined;
  session: Session | undefined;
  onAgain: () => void;
  onReplay: () => void;
  onDownload: () => void;
  /** Whether the panel of columns is open. */
  isChoosing: boolean;
  onChoose: () => void;
}

export function Toolbar({
  topic,
  asked,
  fault,
  pushed,
  session,
  onAgain,
  onReplay,
  onDownload,
  isChoosing,
  onChoose,
}: Props): JSX.Element {
  const count = topic.partitions;
  const found = session?.messages.value ?? [];
  return (
    <>
      <div class="bar">
        <Choices
          label="Where to start"
          choices={FROM}
          value={asked.from}
          onChange={(from) => address.change({ from, at: "", open: "" }, "push")}
        />
        {asked.from === "offset" && (
          <input
            class="mono short"
            inputMode="numeric"
            aria-label="Offset to start from"
            placeholder="offset"
            value={asked.at}
            onChange={(event) => address.change({ at: event.currentTarget.value.trim(), open: "" })}
          />
        )}
        {asked.from === "time" && (
          <input
            type="datetime-local"
            step="1"
            aria-label="Time to start from"
            value={asked.at}
            onChange={(event) => address.change({ at: event.currentTarget.value, open: "" })}
          />
        )}
        {count > 1 && (
          <select
            aria-label="Partition"
            value={asked.partition ?? ""}
            onChange={(event) =>
              address.change(
                {
                  partition: event.currentTarget.value === "" ? undefined : Number(event.currentTarget.value),
                  open: "",
                },
                "push",
              )
            }
          >
            <option value="">all partitions</option>
            {Array.from({ length: count }, (_, partition) => (
              <option key={partition} value={partition}>
                partition {partition}
              </option>
            ))}
          </select>
        )}
        <select
          aria-label="Transactions"
          value={asked.isolation}
          onChange={(event) =>
            address.change(
              {
                isolation: event.currentTarget.value as MessagesAsked["isolation"],
                open: "",
              },
              "push",
            )
          }
        >
          <option value="read_uncommitted">all records</option>
          <option value="read_committed">committed only</option>
        </select>
        <span class="grow" />
        <button type="button" class="small" aria-expanded={isChoosing} onClick={onChoose}>
          Columns
        </button>
        <button type="button" class="small menu-button" popovertarget="message-actions">
          Actions
        </button>
        <div class="menu" popover="auto" id="message-actions">
          {pushed && <Copy label="Copy as curl" text={() => curlsOf(topic.topic, count, asked, pushed)} />}
          <button type="button" class="small" disabled={!found.length} onClick={onDownload}>
            Download
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

function FilterBar({
  asked,
  fault,
  session,
  onAgain,
}: Pick<Props, "asked" | "fault" | "session" | "onAgain">): JSX.Element {
  const [text, write] = useState(asked.filter);
  useEffect(() => write(asked.filter), [asked.filter]); // the box shows what is applied, after Back too
  const state = session?.state.value;
  const submit = (event: Event): void => {
    event.preventDefault();
    if (text === asked.filter) onAgain();
    else address.change({ filter: text, open: "" }, "push");
  };
  return (
    <form class="bar filter" onSubmit={submit} role="search">
      <Search
        class="grow mono"
        label="Filter messages"
        placeholder="key = AA17   value.dest = MIA   time > -1h"
        value={text}
        isWrong={fault !== ""}
        onInput={write}
      />
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
