/** A form that makes a topic; it knows Kafka's configuration keys, their defaults and what they mean. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, get, type Problem, type Schemas } from "../../api/client";
import { Dialog } from "../../ui/dialog";
import { asProblem, useLoad } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import { topic } from "../../routes";
import { go } from "../../ui/router";
import { choicesOf, FIRST_KEYS, parsed, readable, useConfigKeys, type ConfigKey } from "./config_keys";

const NAME = /^[a-zA-Z0-9._-]{1,249}$/;

/** As many partitions as the service lets a topic have. */
export function useMostPartitions(): number | undefined {
  const { data } = useLoad("limits", (signal) => get("/v1/limits", { signal }));
  const most = data?.limits.max_partitions_per_topic;
  return most === undefined ? undefined : Number(most);
}

const RESERVED =
  /^(?:__consumer_offsets|__transaction_state|__share_group_state|__cluster_metadata|__remote_log_metadata|__tidelog.*)$/;

/** Why a name is no topic's name in Kafka; empty if it is one. */
export function nameFault(name: string): string {
  if (RESERVED.test(name)) return "The name is reserved for a topic that brokers, or the service, keep for themselves.";
  if (NAME.test(name) && name !== "." && name !== "..") return "";
  if (name.length > 249) return "A name has at most 249 characters.";
  return "A name has letters, digits, dots, underscores and hyphens only.";
}

interface CreateProps {
  /** The topic that the new one is to be like, in partitions and configuration. */
  like?: Schemas["Topic"];
  onClose: () => void;
}

/** The keys that are set on a topic itself, as a creation takes them. */
export function ownConfig(topic: Schemas["Topic"]): Record<string, string> {
  const own = Object.entries(topic.config).filter(([, entry]) => entry.source === "topic");
  return Object.fromEntries(own.map(([key, entry]) => [key, entry.value]));
}

export function CreateTopic({ like, onClose }: CreateProps): JSX.Element {
  const [name, setName] = useState(like ? `${like.topic}-copy` : "");
  const [partitions, setPartitions] = useState(String(like?.partitions ?? 1));
  const [config, configure] = useState<Record<string, string>>(like ? ownConfig(like) : {});
  const others = Object.entries(config).filter(([key]) => !FIRST_KEYS.includes(key));
  const [problem, fail] = useState<Problem | undefined>();
  const [isBusy, busy] = useState(false);
  const known = useConfigKeys();
  const most = useMostPartitions();
  const fault = name && nameFault(name);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    busy(true);
    fail(undefined);
    const set = Object.entries(config).filter(([, value]) => value.trim());
    const body = {
      partitions: Number(partitions),
      config: Object.fromEntries(set.map(([key, value]) => [key, parsed(key, value)])),
    };
    try {
      await call("put", "/v1/topics/{topic}", {
        path: { topic: name },
        body,
        headers: { "if-none-match": "*" },
      });
      onClose();
      go(topic.link([name, ""]));
    } catch (error) {
      fail(asProblem(error));
      busy(false);
    }
  };
  return (
    <Dialog title={like ? `Clone ${like.topic}` : "Create topic"} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <Failure problem={problem} />
        <div class="fields">
          <Field label="Name" error={fault}>
            {(id) => (
              <input
                id={id}
                required
                autofocus
                autocomplete="off"
                spellcheck={false}
                value={name}
                aria-invalid={Boolean(fault)}
                onInput={(event) => setName(event.currentTarget.value)}
              />
            )}
          </Field>
          <Field label="Partitions" hint="More can be added later, fewer cannot.">
            {(id) => (
              <input
                id={id}
                type="number"
                required
                min="1"
                max={most}
                value={partitions}
                onInput={(event) => setPartitions(event.currentTarget.value)}
              />
            )}
          </Field>
        </div>
        <div class="fields">
          {FIRST_KEYS.map((key) => {
            const one = known?.get(key);
            return (
              one && (
                <ConfigField
                  key={key}
                  known={one}
                  value={config[key] ?? ""}
                  onChange={(value) => configure({ ...config, [key]: value })}
                />
              )
            );
          })}
        </div>
        {others.length > 0 && (
          <p class="quiet">
            Also as in {like?.topic}:{" "}
            {others.map(([key, value]) => (
              <code key={key}>
                {key}={value}{" "}
              </code>
            ))}
          </p>
        )}
        {like && <p class="note">Neither records nor the ingest profile with its secrets are copied.</p>}
        <div class="actions">
          <button type="submit" class="primary" disabled={isBusy || !name || Boolean(fault)}>
            Create topic
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function ConfigField({
  known,
  value,
  onChange,
}: {
  known: ConfigKey;
  value: string;
  onChange: (value: string) => void;
}): JSX.Element {
  const { name, description } = known;
  const standard = known.default;
  const choices = choicesOf(known);
  const said = readable(name, parsed(name, value || standard));
  return (
    <Field label={name} hint={description}>
      {(id) =>
        choices.length ? (
          <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
            <option value="">{standard} (default)</option>
            {choices
              .filter((one) => one !== standard)
              .map((one) => (
                <option key={one}>{one}</option>
              ))}
          </select>
        ) : (
          <span class="with-unit">
            <input
              id={id}
              spellcheck={false}
              placeholder={standard}
              value={value}
              onInput={(event) => onChange(event.currentTarget.value)}
            />
            {said && <span class="quiet small">{said}</span>}
          </span>
        )
      }
    </Field>
  );
}
