/** A fresh service: the commands that make a topic and write its first record, which then appears. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import { Command, Empty } from "../../ui/parts";

export function FirstRecord(): JSX.Element {
  return (
    <Empty title="Write the first record">
      <p>There are no topics yet. Paste this into a terminal; the topic appears here as soon as it exists.</p>
      <Command
        label="Commands that write the first record"
        text={`curl -X PUT ${HOME}/v1/topics/events -H 'content-type: application/json' -d '{"partitions": 1}'
curl -X POST ${HOME}/v1/topics/events/records -H 'content-type: application/json' \\
  -d '{"records": [{"key": "first", "value": {"hello": "log"}}]}'`}
      />
    </Empty>
  );
}
