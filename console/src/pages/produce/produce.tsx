/** Append records by hand: a form, a paste box, the receipt, and the curl that does the same. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { send, urlOf, type Problem, type Schemas } from "../../api/client";
import { parseJson } from "../../api/json";
import { may } from "../../api/rights";
import { count } from "../../ui/format";
import { asProblem } from "../../ui/load";
import { Choices, Command, Failure, Field } from "../../ui/parts";
import { quoted } from "../../ui/curl";
import { toMessage } from "../../routes";
import type { TabProps } from "../../ui/tab";
import { bodyOf, takeOver, type Body, type Draft, type Format } from "./pasted";

const FORMATS: { value: Format; label: string }[] = [
  { value: "json", label: "JSON" },
  { value: "text", label: "Text" },
  { value: "ndjson", label: "NDJSON, many records" },
];
const EXAMPLES: Record<Format, string> = {
  json: '{"hello": "log"}',
  text: "any text",
  ndjson: '{"key": "a", "value": {"n": 1}}\n{"key": "b", "value": {"n": 2}}',
};
const EMPTY: Draft = { format: "json", value: "", hasKey: false, key: "", headers: [], isTombstone: false };
type Acks = "all" | "1" | "0";
type Receipt = Schemas["AppendReceipt"] | Schemas["TopicAppendReceipt"];

export function Produce({ topic }: TabProps): JSX.Element {
  const name = topic.topic;
  const [draft, write] = useState<Draft>(() => takeOver() ?? EMPTY);
  const [partition, choose] = useState("");
  const [acks, wait] = useState<Acks>("all");
  const [expected, expect] = useState("");
  const [receipt, show] = useState<Receipt | undefined>();
  const [problem, fail] = useState<Problem | undefined>();
  const [isBusy, busy] = useState(false);
  if (!may("append", name))
    return (
      <p class="note">
        Your key may not append to this topic: it needs the scope <code>append:{name}</code>.
      </p>
    );
  const body = draft.value || draft.isTombstone ? attempt(draft) : undefined;
  const url = urlOf(
    partition ? `/v1/topics/{topic}/partitions/${partition}/records` : "/v1/topics/{topic}/records",
    { topic: name },
    acks === "all" ? {} : { acks },
  );
  const conditions: Record<string, string> = partition && expected ? { "expected-offset": expected } : {};
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!body || typeof body === "string") return;
    busy(true);
    fail(undefined);
    show(undefined);
    try {
      const response = await send(url, {
        method: "POST",
        body: body.text,
        headers: { "content-type": body.contentType, ...conditions },
      });
      show(parseJson(await response.text()) as Receipt);
    } catch (error) {
      fail(asProblem(error));
    }
    busy(false);
  };
  return (
    <div class="produce">
      <form onSubmit={(event) => void submit(event)} class="panel">
        <div class="bar">
          <Choices
            label="Format of the value"
            choices={FORMATS}
            value={draft.format}
            onChange={(format) => write({ ...draft, format, isTombstone: false })}
          />
        </div>
        {draft.format !== "ndjson" && <KeyAndHeaders draft={draft} onChange={write} />}
        <Field
          label={draft.format === "ndjson" ? "Records" : "Value"}
          hint={
            draft.format === "ndjson"
              ? "One JSON document a line; a line with the member value is a whole record, with key and headers."
              : draft.format === "json"
                ? "Stored byte for byte as you type it."
                : undefined
          }
          error={typeof body === "string" ? body : undefined}
        >
          {(id) => (
            <textarea
              id={id}
              rows={10}
              spellcheck={false}
              disabled={draft.isTombstone}
              aria-invalid={typeof body === "string"}
              placeholder={draft.isTombstone ? "no value" : EXAMPLES[draft.format]}
              value={draft.isTombstone ? "" : draft.value}
              onInput={(event) => write({ ...draft, value: event.currentTarget.value })}
            />
          )}
        </Field>
        <div class="fields">
          <Field label="Partition">
            {(id) => (
              <select id={id} value={partition} onChange={(event) => choose(event.currentTarget.value)}>
                <option value="">by the key</option>
                {Array.from({ length: topic.partitions }, (_, index) => (
                  <option key={index} value={index}>
                    {index}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field label="Wait until" hint={acks === "0" ? "Nothing says whether it was written." : undefined}>
            {(id) => (
              <select id={id} value={acks} onChange={(event) => wait(event.currentTarget.value as Acks)}>
                <option value="all">it is on disk (acks=all)</option>
                <option value="1">it is in the log (acks=1)</option>
                <option value="0">nothing (acks=0)</option>
              </select>
            )}
          </Field>
          <Field
            label="Only if the log end is"
            hint={partition ? "Else nothing is written: 412." : "Choose a partition first."}
          >
            {(id) => (
              <input
                id={id}
                class="mono"
                inputMode="numeric"
                pattern="[0-9]*"
                placeholder="any"
                disabled={!partition}
                value={expected}
                onInput={(event) => expect(event.currentTarget.value)}
              />
            )}
          </Field>
        </div>
        <div class="actions">
          <button type="submit" class="primary" disabled={isBusy || !body || typeof body === "string"}>
            Append {typeof body === "object" && body.records > 1 ? `${count(body.records)} records` : "record"}
          </button>
        </div>
      </form>
      <div class="stack">
        <Failure problem={problem} />
        {receipt && <Written topic={name} receipt={receipt} />}
        <section>
          <h2>The same with curl</h2>
          <Command
            label="The curl that appends the same"
            text={commandOf(url, typeof body === "object" ? body : undefined, conditions)}
          />
        </section>
      </div>
    </div>
  );
}

function attempt(draft: Draft): Body | string {
  try {
    return bodyOf(draft);
  } catch (error) {
    return (error as Error).message;
  }
}

function commandOf(url: string, body: Body | undefined, conditions: Record<string, string>): string {
  const headers = Object.entries(conditions).map(([name, value]) => ` -H '${name}: ${value}'`);
  const text = body?.text ?? '{"records": [{"value": …}]}';
  const type = body?.contentType ?? "application/json";
  return `curl -X POST ${quoted(HOME + url)} -H 'content-type: ${type}'${headers.join("")} \\\n  --data-binary ${quoted(text)}`;
}

function KeyAndHeaders({ draft, onChange }: { draft: Draft; onChange: (draft: Draft) => void }): JSX.Element {
  const header = (index: number, change: Partial<{ key: string; value: string }>): void =>
    onChange({
      ...draft,
      headers: draft.headers.map((one, at) => (at === index ? { ...one, ...change } : one)),
    });
  return (
    <>
      <Field label="Key">
        {(id) => (
          <input
            id={id}
            class="mono"
            spellcheck={false}
            autocomplete="off"
            placeholder="no key"
            value={draft.key}
            onInput={(event) =>
              onChange({
                ...draft,
                key: event.currentTarget.value,
                hasKey: event.currentTarget.value !== "",
              })
            }
          />
        )}
      </Field>
      {draft.headers.map((one, index) => (
        <div class="bar" key={index}>
          <input
            class="mono"
            aria-label={`Name of header ${index + 1}`}
            placeholder="header"
            value={one.key}
            onInput={(event) => header(index, { key: event.currentTarget.value })}
          />
          <input
            class="mono grow"
            aria-label={`Value of header ${index + 1}`}
            placeholder="value"
            value={one.value}
            onInput={(event) => header(index, { value: event.currentTarget.value })}
          />
          <button
            type="button"
            class="plain"
            aria-label={`Remove header ${index + 1}`}
            onClick={() =>
              onChange({
                ...draft,
                headers: draft.headers.filter((_, at) => at !== index),
              })
            }
          >
            ✕
          </button>
        </div>
      ))}
      <div class="bar">
        <button
          type="button"
          class="small"
          onClick={() => onChange({ ...draft, headers: [...draft.headers, { key: "", value: "" }] })}
        >
          Add header
        </button>
        <label>
          <input
            type="checkbox"
            checked={draft.isTombstone}
            onChange={(event) => onChange({ ...draft, isTombstone: event.currentTarget.checked })}
          />
          Tombstone: no value
        </label>
      </div>
    </>
  );
}

function Written({ topic, receipt }: { topic: string; receipt: Receipt }): JSX.Element {
  const parts = ("partitions" in receipt ? receipt.partitions : [receipt]) as Schemas["AppendReceipt"][];
  return (
    <section class="panel" role="status">
      <h2 class="good">Appended</h2>
      <ul class="plain-list">
        {parts.map((one) => (
          <li key={one.partition}>
            partition {one.partition},{" "}
            {one.base_offset < 0 ? (
              "offset not known (acks=0)"
            ) : (
              <a href={toMessage(topic, one.partition, BigInt(one.base_offset))}>
                {Number(one.count) > 1
                  ? `offsets ${count(one.base_offset)} to ${count(one.last_offset)}`
                  : `offset ${count(one.base_offset)}`}
              </a>
            )}
            {one.duplicate && " (a duplicate: nothing new was written)"}
          </li>
        ))}
      </ul>
    </section>
  );
}
