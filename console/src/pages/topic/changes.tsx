/** The dialogs that change a topic, each under the ETag that was shown: nobody's change is overwritten. */
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { call, type Problem, type Schemas } from "../../api/client";
import { Confirm } from "../../ui/confirm";
import { Dialog } from "../../ui/dialog";
import { counted } from "../../ui/format";
import { asProblem } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import { topics } from "../../routes";
import { go } from "../../ui/router";
import { readable } from "../topics/config_keys";
import { ownConfig, useMostPartitions } from "../topics/create_topic";

type Topic = Schemas["Topic"];
/** What is to change: a value, or null to go back to the default. */
export type Changes = Record<string, string | null>;

interface Props {
  topic: Topic;
  etag: string | undefined;
  onClose: () => void;
  onDone: () => void;
}

function useChange(onDone: () => void): {
  problem: Problem | undefined;
  isBusy: boolean;
  run: (action: () => Promise<unknown>) => void;
} {
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

export function Review({ topic, etag, changes, onClose, onDone }: Props & { changes: Changes }): JSX.Element {
  const { problem, isBusy, run } = useChange(onDone);
  const name = topic.topic;
  const old = (key: string): string => topic.config[key]?.value ?? "";
  const apply = (): void =>
    run(() =>
      call("patch", "/v1/topics/{topic}", {
        path: { topic: name },
        body: { config: changes },
        headers: condition(etag),
      }),
    );
  return (
    <Dialog title={`Change ${name}`} onClose={onClose}>
      <Failure problem={problem} />
      {problem?.status === 412 && (
        <p class="note caution">The topic was changed meanwhile. Close this and look at what is new.</p>
      )}
      <table class="diff">
        <tbody>
          {Object.entries(changes).map(([key, value]) => (
            <tr key={key}>
              <th scope="row" class="mono">
                {key}
              </th>
              <td>
                <del class="mono">{old(key)}</del> <span class="quiet">{readable(key, old(key))}</span>
                <br />
                <ins class="mono">{value ?? "the default"}</ins>{" "}
                <span class="quiet">{value !== null && readable(key, value)}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {Object.keys(changes).some((key) => /retention|cleanup/.test(key)) && (
        <p class="note caution">
          Retention may remove records at its next pass. The page “The log” shows what it would remove.
        </p>
      )}
      <div class="actions">
        <button type="button" class="primary" disabled={isBusy} onClick={apply}>
          Apply
        </button>
      </div>
    </Dialog>
  );
}

export function MorePartitions({ topic, etag, onClose, onDone }: Props): JSX.Element {
  const least = topic.partitions + 1;
  const [wanted, want] = useState(String(least));
  const most = useMostPartitions();
  const { problem, isBusy, run } = useChange(onDone);
  const submit = (event: Event): void => {
    event.preventDefault();
    run(() =>
      call("patch", "/v1/topics/{topic}", {
        path: { topic: topic.topic },
        body: { partitions: Number(wanted), config: {} },
        headers: condition(etag),
      }),
    );
  };
  return (
    <Dialog title="Add partitions" onClose={onClose}>
      <form onSubmit={submit}>
        <Failure problem={problem} />
        <Field
          label="Partitions"
          hint="A key may go to another partition from then on. Partitions cannot be taken away."
        >
          {(id) => (
            <input
              id={id}
              type="number"
              required
              min={least}
              max={most}
              value={wanted}
              onInput={(event) => want(event.currentTarget.value)}
            />
          )}
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

export function DeleteTopic({ topic, etag, onClose }: Omit<Props, "onDone">): JSX.Element {
  const name = topic.topic;
  return (
    <Confirm
      title={`Delete ${name}`}
      name={name}
      label="Delete topic"
      run={() =>
        call("delete", "/v1/topics/{topic}", {
          path: { topic: name },
          headers: condition(etag),
        })
      }
      onDone={() => go(topics.link([]))}
      onClose={onClose}
    >
      The topic and all of its records are removed, with the offsets of all groups in it. This cannot be undone.
    </Confirm>
  );
}

/** Delete a topic and make it again, empty, as it was configured. */
export function RecreateTopic({ topic, etag, onClose, onDone }: Props): JSX.Element {
  const name = topic.topic;
  const isDeleted = useRef(false);
  const run = async (): Promise<void> => {
    if (!isDeleted.current)
      await call("delete", "/v1/topics/{topic}", { path: { topic: name }, headers: condition(etag) });
    isDeleted.current = true; // a second attempt makes it only
    await call("put", "/v1/topics/{topic}", {
      path: { topic: name },
      body: { partitions: topic.partitions, config: ownConfig(topic) },
      headers: { "if-none-match": "*" },
    });
  };
  return (
    <Confirm
      title={`Recreate ${name}`}
      name={name}
      label="Delete and recreate"
      run={run}
      onDone={onDone}
      onClose={onClose}
    >
      All of its records are removed, with the offsets of all groups in it, its ingest profile and its tokens. Then it
      is made again with {counted(topic.partitions, "partition")} and the same configuration, empty: readers that follow
      it are told that it is another log. This cannot be undone.
    </Confirm>
  );
}
