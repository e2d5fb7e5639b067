/** How a topic's values are decoded where they are shown: a schema, tried with the newest message before it is stored. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, get, type Problem, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { summaryOf } from "../../api/topics";
import { Confirm } from "../../ui/confirm";
import { whyOf } from "../../ui/format";
import { asProblem, useLoad } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import { base64Of } from "../messages/message";
import { pushedOf } from "../messages/pushed";
import { openReader } from "../messages/reader";
import { PLAIN } from "../messages/reading";

type Draft = Schemas["PutValueSchema"];

const EMPTY: Draft = { format: "avro", definition: "", message_type: null, framing: "none" };

export function ValueSchema({ topic }: { topic: string }): JSX.Element {
  const stored = useLoad(`value schema ${topic}`, async (signal) =>
    (await summaryOf(topic, signal))?.has_value_schema
      ? await get("/v1/topics/{topic}/value-schema", { path: { topic }, signal })
      : null,
  );
  if (stored.data === undefined) return <Failure problem={stored.error} onRetry={stored.again} />;
  return <Form key={JSON.stringify(stored.data)} topic={topic} stored={stored.data} again={stored.again} />;
}

function Form({
  topic,
  stored,
  again,
}: {
  topic: string;
  stored: Schemas["ValueSchema"] | null;
  again: () => void;
}): JSX.Element {
  const [draft, change] = useState<Draft>(stored ?? EMPTY);
  const [problem, fail] = useState<Problem | undefined>();
  const [isDeleting, ask] = useState(false);
  const mayChange = may("admin", topic);
  const isAvro = draft.format === "avro";
  const isComplete = draft.definition !== "" && (isAvro || Boolean(draft.message_type));
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    fail(undefined);
    try {
      await call("put", "/v1/topics/{topic}/value-schema", { path: { topic }, body: draft });
      again();
    } catch (error) {
      fail(asProblem(error));
    }
  };
  const take = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    change({ ...draft, definition: isAvro ? await file.text() : base64Of(new Uint8Array(await file.arrayBuffer())) });
  };
  return (
    <section class="panel after" aria-label="Value schema">
      <h2>Value schema</h2>
      <p class="hint">
        Values in Avro or protobuf are decoded by it where they are shown, filtered and put into columns. The service
        itself stores and returns bytes.
      </p>
      {!mayChange && !stored && <p class="quiet">None.</p>}
      {(mayChange || stored) && (
        <form class="after-small" onSubmit={(event) => void save(event)}>
          <fieldset disabled={!mayChange}>
            <Field label="Format">
              {(id) => (
                <select
                  id={id}
                  value={draft.format}
                  onChange={(event) =>
                    change({ ...EMPTY, framing: draft.framing, format: event.currentTarget.value as Draft["format"] })
                  }
                >
                  <option value="avro">Avro</option>
                  <option value="protobuf">Protobuf</option>
                </select>
              )}
            </Field>
            <Field
              label={isAvro ? "Schema" : "Descriptors"}
              hint={
                isAvro
                  ? "JSON, as an .avsc file has it."
                  : `A file that protoc --include_imports --descriptor_set_out writes. ${draft.definition ? "There is one." : ""}`
              }
            >
              {(id) =>
                isAvro ? (
                  <textarea
                    id={id}
                    class="mono"
                    rows={8}
                    spellcheck={false}
                    value={draft.definition}
                    onInput={(event) => change({ ...draft, definition: event.currentTarget.value })}
                  />
                ) : (
                  <input id={id} type="file" onChange={(event) => void take(event.currentTarget.files?.[0])} />
                )
              }
            </Field>
            {!isAvro && (
              <Field label="Message" hint="Its full name, such as shop.v1.Order.">
                {(id) => (
                  <input
                    id={id}
                    class="mono"
                    autocomplete="off"
                    value={draft.message_type ?? ""}
                    onInput={(event) => change({ ...draft, message_type: event.currentTarget.value })}
                  />
                )}
              </Field>
            )}
            <Field label="Before each value">
              {(id) => (
                <select
                  id={id}
                  value={draft.framing}
                  onChange={(event) => change({ ...draft, framing: event.currentTarget.value as Draft["framing"] })}
                >
                  <option value="none">nothing</option>
                  <option value="confluent">a zero byte and the id of a registry’s schema</option>
                </select>
              )}
            </Field>
          </fieldset>
          {isComplete && <Trial topic={topic} draft={draft} />}
          <Failure problem={problem} />
          {mayChange && (
            <div class="actions">
              {stored && (
                <button type="button" class="danger" onClick={() => ask(true)}>
                  Delete schema
                </button>
              )}
              <button
                type="submit"
                class="primary"
                disabled={!isComplete || JSON.stringify(draft) === JSON.stringify(stored)}
              >
                Save schema
              </button>
            </div>
          )}
        </form>
      )}
      {isDeleting && (
        <Confirm
          title={`Delete the value schema of ${topic}`}
          label="Delete"
          run={() => call("delete", "/v1/topics/{topic}/value-schema", { path: { topic } })}
          onDone={again}
          onClose={() => ask(false)}
        >
          <p>The values are shown as bytes again; no record is changed.</p>
        </Confirm>
      )}
    </section>
  );
}

/** What the schema makes of the topic's newest value. */
function Trial({ topic, draft }: { topic: string; draft: Draft }): JSX.Element | null {
  const [said, say] = useState<{ text: string; isWrong: boolean } | undefined>();
  useEffect(() => {
    const stop = new AbortController();
    tried(topic, draft, stop.signal).then(
      (found) => !stop.signal.aborted && say(found),
      (error: unknown) => !stop.signal.aborted && say({ text: asProblem(error).title, isWrong: true }),
    );
    return () => stop.abort();
  }, [topic, draft]);
  if (!said) return null;
  return (
    <div role="status" class={said.isWrong ? "note caution" : "note"}>
      {said.text}
    </div>
  );
}

async function tried(topic: string, draft: Draft, signal: AbortSignal): Promise<{ text: string; isWrong: boolean }> {
  const { decoderOf } = await import("../messages/values/decoder");
  let decode: (value: Uint8Array) => string;
  try {
    decode = decoderOf(draft);
  } catch (error) {
    return {
      text: `The schema cannot be used: ${whyOf(error)}.`,
      isWrong: true,
    };
  }
  const look = {
    topic,
    partition: undefined,
    start: { from: "newest" as const },
    isolation: "read_uncommitted" as const,
    pushed: pushedOf(undefined),
    reading: PLAIN,
  };
  const found = await (await openReader(look, signal)).next(signal);
  const newest = found.find((message) => message.valueBytes !== null);
  if (!newest?.valueBytes)
    return { text: "The schema can be used; the topic has no value to try it with.", isWrong: false };
  const place = `offset ${newest.offset} of partition ${newest.partition}`;
  try {
    decode(newest.valueBytes);
    return { text: `It decodes the newest value, ${place}.`, isWrong: false };
  } catch (error) {
    const why = whyOf(error);
    return { text: `It does not decode the newest value, ${place}: ${why}.`, isWrong: true };
  }
}
