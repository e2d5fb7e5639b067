/** Append messages again, to another topic or the same one: byte for byte, with their keys and headers. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, get, type Problem } from "../../api/client";
import { Dialog } from "../../ui/dialog";
import { count } from "../../ui/format";
import { asProblem, useLoad } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import { messages as address } from "../../routes";
import { recordOf } from "./export";
import type { Message } from "./message";

/** Records of one request. */
const PART = 500;

export function Replay({
  messages,
  source,
  onClose,
}: {
  messages: Message[];
  source: string;
  onClose: () => void;
}): JSX.Element {
  const topics = useLoad("topics", (signal) => get("/v1/topics", { query: { page_size: 1000 }, signal }));
  const [target, aim] = useState("");
  const [keepsTime, keepTime] = useState(false);
  const [sent, tell] = useState(0);
  const [problem, fail] = useState<Problem | undefined>();
  const [isBusy, busy] = useState(false);
  const ordered = [...messages].sort(
    (a, b) => Number(a.timestamp) - Number(b.timestamp) || Number(a.offset - b.offset),
  );
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    busy(true);
    fail(undefined);
    try {
      for (let from = sent; from < ordered.length; from += PART) {
        const records = ordered.slice(from, from + PART).map((message) => recordOf(message, keepsTime));
        await call("post", "/v1/topics/{topic}/records", {
          path: { topic: target },
          body: { records } as never,
        });
        tell(Math.min(ordered.length, from + PART));
      }
    } catch (error) {
      fail(asProblem(error));
    }
    busy(false);
  };
  const isDone = sent === ordered.length;
  const masked = messages.filter((message) => message.hidden.length > 0).length;
  return (
    <Dialog
      title={`Replay ${count(messages.length)} ${messages.length === 1 ? "message" : "messages"}`}
      onClose={onClose}
    >
      <form onSubmit={(event) => void submit(event)}>
        <Failure problem={problem} />
        {isDone ? (
          <p role="status">
            {count(sent)} appended to <a href={address.link([target])}>{target}</a>.
          </p>
        ) : (
          <>
            <Field
              label="To topic"
              hint="Keys, values and headers are appended as they are, in the order of their times; the key chooses the partition."
            >
              {(id) => (
                <>
                  <input
                    id={id}
                    list={`${id}-topics`}
                    required
                    autofocus
                    autocomplete="off"
                    value={target}
                    onInput={(event) => aim(event.currentTarget.value)}
                  />
                  <datalist id={`${id}-topics`}>
                    {topics.data?.topics.map(({ topic }) => (
                      <option key={topic} value={topic} />
                    ))}
                  </datalist>
                </>
              )}
            </Field>
            <label>
              <input type="checkbox" checked={keepsTime} onChange={(event) => keepTime(event.currentTarget.checked)} />
              Keep their times; otherwise they get the time of the append
            </label>
            {target === source && (
              <p class="note caution">This is the topic they come from: its readers see them twice.</p>
            )}
            {masked > 0 && (
              <p class="note caution">
                {count(masked)} {masked === 1 ? "message has" : "messages have"} fields that the service’s settings hide
                here: they cannot be sent again from this page.
              </p>
            )}
            {sent > 0 && <p role="status">{count(sent)} are appended.</p>}
            <div class="actions">
              <button type="submit" class="primary" disabled={isBusy || !target || masked > 0}>
                {sent > 0 ? "Go on" : "Append"}
              </button>
            </div>
          </>
        )}
      </form>
    </Dialog>
  );
}
