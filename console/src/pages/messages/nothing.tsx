/** No messages: why, and what would change that. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import type { Schemas } from "../../api/client";
import { Command, Empty } from "../../ui/parts";
import { messages as address } from "../../routes";
import type { Session } from "./session";

export function Nothing({
  session,
  topic,
  isFiltered,
}: {
  session: Session;
  topic: Schemas["Topic"];
  isFiltered: boolean;
}): JSX.Element | null {
  const state = session.state.value;
  if (state === "live" || state === "held") {
    return (
      <Empty title="Waiting for the next record">
        <p>It appears here as soon as it is on disk.</p>
        <Write topic={topic.topic} />
      </Empty>
    );
  }
  if (state === "reading" || state === "failed") return null;
  if (isFiltered) {
    return (
      <Empty title="No message matches">
        <p>
          {state === "done" ? "Everything was read. " : "Not everything was read yet. "}
          <button type="button" onClick={() => address.change({ filter: "" }, "push")}>
            Remove the filter
          </button>
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="Nothing to read from here on">
      <p>
        The topic is empty, or what it held was removed.{" "}
        <button type="button" onClick={() => address.change({ from: "live", at: "" }, "push")}>
          Watch it live
        </button>
      </p>
      <Write topic={topic.topic} />
    </Empty>
  );
}

function Write({ topic }: { topic: string }): JSX.Element {
  const url = `${HOME}/v1/topics/${encodeURIComponent(topic)}/records`;
  return (
    <Command
      label="A command that writes a record"
      text={`curl -X POST ${url} -H 'content-type: application/json' \\
  -d '{"records": [{"key": "first", "value": {"hello": "log"}}]}'`}
    />
  );
}
