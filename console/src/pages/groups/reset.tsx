/** Reset a group's offsets: choose where to, see what that does to each partition, then do it. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, get, type Problem, type Schemas } from "../../api/client";
import { Dialog } from "../../ui/dialog";
import { count } from "../../ui/format";
import { asProblem } from "../../ui/load";
import { Choices, Failure, Field } from "../../ui/parts";
import { stepOf, stepWords, type Position, type Step, type Target } from "./reset_plan";

type Kind = Target["kind"];

interface ResetProps {
  group: string;
  lags: Schemas["PartitionLag"][];
  onClose: () => void;
  onDone: () => void;
}

const KINDS: { value: Kind; label: string }[] = [
  { value: "earliest", label: "Earliest" },
  { value: "latest", label: "Latest" },
  { value: "time", label: "Time" },
  { value: "offset", label: "Offset" },
];

function positionsOf(lags: Schemas["PartitionLag"][], partition: string): Position[] {
  return lags
    .filter((one) => one.end_offset !== null && (partition === "" || String(one.partition) === partition))
    .map((one) => ({
      topic: one.topic,
      partition: one.partition,
      offset: BigInt(one.offset),
      logStart: BigInt(one.log_start_offset ?? 0),
      end: BigInt(one.end_offset ?? 0),
    }));
}

function targetOf(kind: Kind, text: string): Target | undefined {
  if (kind === "earliest" || kind === "latest") return { kind };
  if (kind === "time") return Number.isNaN(Date.parse(text)) ? undefined : { kind, ms: Date.parse(text) };
  return /^\d{1,18}$/.test(text.trim()) ? { kind, offset: BigInt(text.trim()) } : undefined;
}

async function planOf(positions: Position[], target: Target, signal: AbortSignal): Promise<Step[]> {
  return Promise.all(
    positions.map(async (position) => {
      if (target.kind !== "time") return stepOf(position, target);
      const found = await get("/v1/topics/{topic}/partitions/{partition}/offset-at", {
        path: { topic: position.topic, partition: position.partition },
        query: { timestamp: String(target.ms) },
        signal,
      });
      return stepOf(position, target, found.offset === null ? null : BigInt(found.offset));
    }),
  );
}

/** Store one offset, if the group has not moved since the preview. */
async function apply(group: string, step: Step): Promise<void> {
  const path = { group, topic: step.topic, partition: step.partition };
  const before = await call("get", "/v1/groups/{group}/offsets/{topic}/{partition}", { path });
  if (BigInt(before.data.offset) !== step.offset) throw moved(step, BigInt(before.data.offset));
  const headers = { "if-match": before.headers.get("etag") ?? "*" };
  await call("put", "/v1/groups/{group}/offsets/{topic}/{partition}", {
    path,
    body: { offset: step.to, metadata: before.data.metadata },
    headers,
  });
}

function moved(step: Step, now: bigint): Error {
  return new Error(
    `Partition ${step.partition} is at offset ${count(now)} now, not at ${count(step.offset)}: its reader is running. Stop it, or look again.`,
  );
}

export function Reset({ group, lags, onClose, onDone }: ResetProps): JSX.Element {
  const [fixed] = useState(lags); // as it was when the dialog opened: what is previewed is what is done
  const [kind, choose] = useState<Kind>("earliest");
  const [text, write] = useState("");
  const [partition, pick] = useState("");
  const [plan, show] = useState<Step[]>([]);
  const [problem, fail] = useState<Problem | undefined>();
  const [fault, complain] = useState("");
  const [isBusy, busy] = useState(false);
  const target = targetOf(kind, text);
  useEffect(() => {
    const stop = new AbortController();
    fail(undefined);
    show([]);
    if (target)
      planOf(positionsOf(fixed, partition), target, stop.signal).then(
        show,
        (error: unknown) => !stop.signal.aborted && fail(asProblem(error)),
      );
    return () => stop.abort();
  }, [kind, text, partition]);
  const changes = plan.filter((step) => step.to !== step.offset);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    busy(true);
    complain("");
    fail(undefined);
    try {
      for (const step of changes) await apply(group, step);
      onDone();
      onClose();
    } catch (error) {
      if (error instanceof Error && error.constructor === Error) complain(error.message);
      else fail(asProblem(error));
      onDone();
      busy(false);
    }
  };
  const topic = fixed[0]?.topic ?? "";
  return (
    <Dialog title={`Reset ${group} in ${topic}`} onClose={onClose}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        <p class="quiet">Stop the group's readers first: one that runs stores its own offset again.</p>
        <div class="bar">
          <Choices label="Reset to" value={kind} choices={KINDS} onChange={choose} />
          {fixed.length > 1 && (
            <select aria-label="Partitions" value={partition} onChange={(event) => pick(event.currentTarget.value)}>
              <option value="">All {count(fixed.length)} partitions</option>
              {fixed.map((one) => (
                <option key={one.partition} value={String(one.partition)}>
                  Partition {one.partition}
                </option>
              ))}
            </select>
          )}
        </div>
        {kind === "time" && (
          <Field label="First record at or after (local time)">
            {(id) => (
              <input
                id={id}
                type="datetime-local"
                step="1"
                value={text}
                onInput={(event) => write(event.currentTarget.value)}
              />
            )}
          </Field>
        )}
        {kind === "offset" && (
          <Field label="Offset">
            {(id) => (
              <input
                id={id}
                inputmode="numeric"
                autocomplete="off"
                value={text}
                onInput={(event) => write(event.currentTarget.value)}
              />
            )}
          </Field>
        )}
        <Preview plan={plan} />
        {fault && (
          <p class="bad" role="alert">
            {fault}
          </p>
        )}
        <Failure problem={problem} />
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={isBusy || changes.length === 0}>
            {changes.length === 1 ? "Reset 1 offset" : `Reset ${count(changes.length)} offsets`}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Preview({ plan }: { plan: Step[] }): JSX.Element | null {
  if (!plan.length) return null;
  return (
    <div class="scroll" role="region" aria-label="Preview" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th class="number">Partition</th>
            <th class="number">Now</th>
            <th class="number">After</th>
            <th>What it does</th>
          </tr>
        </thead>
        <tbody>
          {plan.map((step) => (
            <tr key={step.partition}>
              <td class="number">{step.partition}</td>
              <td class="number">{count(step.offset)}</td>
              <td class="number">
                <b>{count(step.to)}</b>
              </td>
              <td>
                {stepWords(step)} {step.isMoved && <span class="tag warn">nearest offset in the log</span>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
