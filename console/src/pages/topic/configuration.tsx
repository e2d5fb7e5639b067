/** A topic's configuration, changed in place: the difference is shown before it is applied, under If-Match. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, type Problem, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { Dialog } from "../../ui/dialog";
import { count } from "../../ui/format";
import { asProblem, useLoad } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import { go, href } from "../../ui/router";
import { CONFIG_KEYS, parsed, readable } from "../topics/config_keys";
import type { TabProps } from "./topic";

/** What is to change: a value, or null to go back to the default. */
type Changes = Record<string, string | null>;
type Topic = Schemas["Topic"];

const SOURCES: Record<string, string> = { topic: "set on this topic", adopted: "adopted", default: "default" };

export function Configuration({ topic, again }: TabProps): JSX.Element {
  const name = topic.topic;
  const loaded = useLoad(name, (signal) => call("get", "/v1/topics/{topic}", { path: { topic: name }, signal }));
  const [changes, change] = useState<Changes>({});
  const [search, find] = useState("");
  const [showsAll, showAll] = useState(false);
  const [dialog, open] = useState<"review" | "partitions" | "delete" | undefined>();
  const config = loaded.data?.data.config ?? topic.config;
  const etag = loaded.data?.headers.get("etag") ?? undefined;
  const mayChange = may("admin", name);
  const keys = Object.keys(config).filter((key) => key.includes(search) && (showsAll || search || key in CONFIG_KEYS || config[key]?.source !== "default"));
  const isChanged = Object.keys(changes).length > 0;
  const set = (key: string, value: string | null | undefined): void => {
    const { [key]: _, ...rest } = changes;
    change(value === undefined || value === config[key]?.value ? rest : { ...rest, [key]: value });
  };
  const done = (): void => {
    change({});
    open(undefined);
    loaded.again();
    again();
  };
  return (
    <>
      <div class="bar">
        <input type="search" class="search" data-search aria-label="Search configuration keys" placeholder="Search keys   /" value={search} onInput={(event) => find(event.currentTarget.value)} />
        <label>
          <input type="checkbox" checked={showsAll} onChange={(event) => showAll(event.currentTarget.checked)} />
          all keys
        </label>
        <span class="grow" />
        {mayChange && (
          <>
            <button type="button" onClick={() => open("partitions")}>
              Add partitions
            </button>
            <button type="button" class="danger" onClick={() => open("delete")}>
              Delete topic
            </button>
            <button type="button" class="primary" disabled={!isChanged} onClick={() => open("review")}>
              Review {isChanged ? count(Object.keys(changes).length) : ""} changes
            </button>
          </>
        )}
      </div>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} />
      <ul class="config">
        {keys.map((key) => (
          <Entry key={key} name={key} entry={config[key] as Schemas["ConfigEntry"]} change={changes[key]} mayChange={mayChange} onChange={(value) => set(key, value)} />
        ))}
      </ul>
      {dialog === "review" && <Review name={name} etag={etag} config={config} changes={changes} onClose={() => open(undefined)} onDone={done} />}
      {dialog === "partitions" && <MorePartitions topic={topic} etag={etag} onClose={() => open(undefined)} onDone={done} />}
      {dialog === "delete" && <DeleteTopic name={name} etag={etag} onClose={() => open(undefined)} />}
    </>
  );
}

interface EntryProps {
  name: string;
  entry: Schemas["ConfigEntry"];
  change: string | null | undefined;
  mayChange: boolean;
  onChange: (value: string | null | undefined) => void;
}

function Entry({ name, entry, change, mayChange, onChange }: EntryProps): JSX.Element {
  const [typed, type] = useState<string | undefined>();
  const key = CONFIG_KEYS[name];
  const value = change === undefined ? entry.value : (change ?? "");
  const said = readable(name, value);
  const id = `config-${name}`;
  const isChanged = change !== undefined;
  return (
    <li class={isChanged ? "changed" : ""}>
      <div class="config-name">
        <label class="mono" for={id}>
          {name}
        </label>
        {key && <p class="hint">{key.meaning}</p>}
      </div>
      <div class="config-value">
        {!mayChange || !key ? (
          <span id={id} class="mono">
            {entry.value || <i class="quiet">empty</i>}
          </span>
        ) : key.choices ? (
          <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
            {key.choices.includes(value) || <option value={value}>{value || "default"}</option>}
            {key.choices.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        ) : (
          <input
            id={id}
            class="mono"
            spellcheck={false}
            value={typed ?? value}
            placeholder={change === null ? "default" : ""}
            onInput={(event) => {
              type(event.currentTarget.value);
              onChange(parsed(name, event.currentTarget.value));
            }}
            onBlur={() => type(undefined)}
          />
        )}
        <span class="quiet small">
          {said && `${said} · `}
          {change === null ? "back to the default" : isChanged ? <b class="warn">changed</b> : (SOURCES[entry.source] ?? entry.source)}
        </span>
      </div>
      {mayChange && (
        <div class="config-actions">
          {isChanged && (
            <button type="button" class="small" onClick={() => onChange(undefined)}>
              Undo
            </button>
          )}
          {!isChanged && entry.source === "topic" && (
            <button type="button" class="small" onClick={() => onChange(null)}>
              Use default
            </button>
          )}
        </div>
      )}
    </li>
  );
}

interface ChangeProps {
  etag: string | undefined;
  onClose: () => void;
  onDone: () => void;
}

/** Run a change under the ETag that was shown; what another person changed meanwhile is not overwritten. */
function useChange(onDone: () => void): { problem: Problem | undefined; isBusy: boolean; run: (action: () => Promise<unknown>) => void } {
  const [problem, fail] = useState<Problem | undefined>();
  const [isBusy, busy] = useState(false);
  const run = (action: () => Promise<unknown>): void => {
    busy(true);
    fail(undefined);
    action().then(onDone, (error: unknown) => {
      fail(asProblem(error));
      busy(false);
    });
  };
  return { problem, isBusy, run };
}

const condition = (etag: string | undefined): Record<string, string> => (etag ? { "if-match": etag } : {});

function Review({ name, etag, config, changes, onClose, onDone }: ChangeProps & { name: string; config: Topic["config"]; changes: Changes }): JSX.Element {
  const { problem, isBusy, run } = useChange(onDone);
  const apply = (): void =>
    run(() => call("patch", "/v1/topics/{topic}", { path: { topic: name }, body: { config: changes } as never, headers: { "content-type": "application/merge-patch+json", ...condition(etag) } }));
  return (
    <Dialog title={`Change ${name}`} onClose={onClose}>
      <Failure problem={problem} />
      {problem?.status === 412 && <p class="note caution">Someone changed the topic meanwhile: close this, load the page again and look at what is new.</p>}
      <table class="diff">
        <tbody>
          {Object.entries(changes).map(([key, value]) => (
            <tr key={key}>
              <th scope="row" class="mono">
                {key}
              </th>
              <td>
                <del class="mono">{config[key]?.value}</del> {readable(key, config[key]?.value ?? "")}
                <br />
                <ins class="mono">{value ?? "the default"}</ins> {value !== null && readable(key, value)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {Object.keys(changes).some((key) => /retention|cleanup/.test(key)) && (
        <p class="note caution">Retention may remove records at its next pass. The log page shows what a pass would remove.</p>
      )}
      <div class="actions">
        <button type="button" class="primary" disabled={isBusy} onClick={apply}>
          Apply
        </button>
      </div>
    </Dialog>
  );
}

function MorePartitions({ topic, etag, onClose, onDone }: ChangeProps & { topic: Topic }): JSX.Element {
  const least = Number(topic.partitions) + 1;
  const [wanted, want] = useState(String(least));
  const { problem, isBusy, run } = useChange(onDone);
  const submit = (event: Event): void => {
    event.preventDefault();
    run(() => call("patch", "/v1/topics/{topic}", { path: { topic: topic.topic }, body: { partitions: Number(wanted) } as never, headers: { "content-type": "application/merge-patch+json", ...condition(etag) } }));
  };
  return (
    <Dialog title="Add partitions" onClose={onClose}>
      <form onSubmit={submit}>
        <Failure problem={problem} />
        <Field label="Partitions" hint="A key may go to another partition from then on. Partitions cannot be taken away.">
          {(id) => <input id={id} type="number" required min={least} max="10000" value={wanted} onInput={(event) => want(event.currentTarget.value)} />}
        </Field>
        <div class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Add partitions
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function DeleteTopic({ name, etag, onClose }: { name: string; etag: string | undefined; onClose: () => void }): JSX.Element {
  const [typed, type] = useState("");
  const { problem, isBusy, run } = useChange(() => go(href(["topics"])));
  const submit = (event: Event): void => {
    event.preventDefault();
    run(() => call("delete", "/v1/topics/{topic}", { path: { topic: name }, headers: condition(etag) }));
  };
  return (
    <Dialog title={`Delete ${name}`} onClose={onClose}>
      <form onSubmit={submit}>
        <Failure problem={problem} />
        <p>The topic and all of its records are removed. This cannot be undone.</p>
        <br />
        <Field label="Type the topic's name to confirm">
          {(id) => <input id={id} autofocus autocomplete="off" spellcheck={false} value={typed} onInput={(event) => type(event.currentTarget.value)} />}
        </Field>
        <div class="actions">
          <button type="submit" class="danger primary" disabled={isBusy || typed !== name}>
            Delete topic
          </button>
        </div>
      </form>
    </Dialog>
  );
}
