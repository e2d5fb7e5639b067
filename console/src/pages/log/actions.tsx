/** What can be done to a log; each says what it will do before it does it. */
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { call, get, type Problem, type Schemas } from "../../api/client";
import { bytes, count, percent } from "../../ui/format";
import { TypedName } from "../../ui/confirm";
import { Dialog } from "../../ui/dialog";
import { asProblem } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import { deletionEffect, truncationEffect, typedOffset, type Effect } from "./effects";
import { endTag, type LogFacts } from "./load";
import type { Shade } from "./picture";

interface ActionsProps {
  topic: Schemas["Topic"];
  partition: number;
  facts: LogFacts;
  onShade: (shades: Shade[]) => void;
  again: () => void;
}

type Name = "roll" | "flush" | "retention" | "compact" | "delete" | "truncate";

const DIALOGS: Record<Name, (props: ActionsProps & { onClose: () => void }) => JSX.Element> = {
  roll: Roll,
  flush: Flush,
  retention: Retention,
  compact: Compact,
  delete: DeleteRecords,
  truncate: Truncate,
};

export function Actions(props: ActionsProps): JSX.Element {
  const [name, open] = useState<Name | undefined>();
  const isCompacted = props.topic.config["cleanup.policy"]?.value.includes("compact") ?? false;
  const Chosen = name && DIALOGS[name];
  const button = (one: Name, label: string): JSX.Element => (
    <button type="button" class={one === "truncate" || one === "delete" ? "danger" : ""} onClick={() => open(one)}>
      {label}
    </button>
  );
  return (
    <div class="bar log-actions" role="group" aria-label="Actions">
      {button("retention", "Retention…")}
      {isCompacted && button("compact", "Compaction…")}
      {button("roll", "Roll…")}
      {button("flush", "Flush…")}
      {button("delete", "Delete records…")}
      {button("truncate", "Truncate…")}
      {Chosen && <Chosen {...props} onClose={() => open(undefined)} />}
    </div>
  );
}

interface StepProps {
  title: string;
  label: string;
  isDangerous?: boolean;
  isReady?: boolean;
  children: ComponentChildren;
  /** "stay" keeps the dialog open. */
  run: () => Promise<unknown>;
  onDone: () => void;
  onClose: () => void;
}

/** A dialog that does one thing when its button is pressed, and closes when it is done. */
function Step({
  title,
  label,
  isDangerous = false,
  isReady = true,
  children,
  run,
  onDone,
  onClose,
}: StepProps): JSX.Element {
  const [problem, fail] = useState<Problem | undefined>();
  const [isBusy, busy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    busy(true);
    fail(undefined);
    try {
      if ((await run()) === "stay") {
        busy(false);
        return;
      }
      onDone();
      onClose();
    } catch (error) {
      fail(asProblem(error));
      busy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        {children}
        <Failure problem={problem} />
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={isDangerous ? "danger primary" : "primary"} disabled={!isReady || isBusy}>
            {label}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

type DialogProps = ActionsProps & { onClose: () => void };

const pathOf = ({ topic, partition }: ActionsProps): { topic: string; partition: number } => ({
  topic: topic.topic,
  partition,
});

function Roll(props: DialogProps): JSX.Element {
  const active = props.facts.pieces.at(-1);
  const isEmpty = !active || active.next === active.base;
  const run = (): Promise<unknown> =>
    call("post", "/v1/topics/{topic}/partitions/{partition}/roll", { path: pathOf(props) });
  return (
    <Step title="Roll the log" label="Roll" isReady={!isEmpty} run={run} onDone={props.again} onClose={props.onClose}>
      {isEmpty ? (
        <p>The active segment is empty: it stays.</p>
      ) : (
        <p>
          Segment {count(active.base)} ({count(active.next - active.base)} offsets, {bytes(active.bytes)}) is sealed and
          synced. A new active segment begins at offset {count(active.next)}. No record changes. Sealed segments can be
          compacted, and removed by retention.
        </p>
      )}
    </Step>
  );
}

function Flush(props: DialogProps): JSX.Element {
  const { recoveryPoint, logEnd } = props.facts;
  const run = (): Promise<unknown> =>
    call("post", "/v1/topics/{topic}/partitions/{partition}/flush", { path: pathOf(props) });
  return (
    <Step title="Flush the log" label="Flush" run={run} onDone={props.again} onClose={props.onClose}>
      <p>
        Everything up to offset {count(logEnd)} is synced to disk, with indexes and snapshots.{" "}
        {recoveryPoint < logEnd
          ? `The recovery point moves from ${count(recoveryPoint)} to ${count(logEnd)}: a start after a crash checks ${count(logEnd - recoveryPoint)} offsets less.`
          : "The recovery point is there already."}
      </p>
    </Step>
  );
}

type Removed = Schemas["RemovedSegment"];

const REASONS: Record<Removed["reason"], string> = {
  log_start: "it lies below the log start",
  size: "the log is larger than retention.bytes",
  time: "it is older than retention.ms",
};

function Retention(props: DialogProps): JSX.Element {
  const [removed, show] = useState<Removed[] | undefined>();
  const where = "/v1/topics/{topic}/partitions/{partition}/retention";
  const run = async (): Promise<unknown> => {
    if (removed) {
      await call("post", where, { path: pathOf(props) });
      props.onShade([]);
      return undefined;
    }
    const { data } = await call("post", where, {
      path: pathOf(props),
      query: { dry_run: true },
    });
    show(data.removed);
    props.onShade(
      data.removed.map((one) => ({
        base: BigInt(one.base_offset),
        kind: "removed",
        why: `would be removed: ${REASONS[one.reason]}`,
      })),
    );
    return "stay";
  };
  const value = (key: string): string => props.topic.config[key]?.value ?? "";
  if (!removed) {
    return (
      <Step
        title="Retention"
        label="Show what would be removed"
        run={run}
        onDone={() => undefined}
        onClose={props.onClose}
      >
        <p>
          A retention pass removes whole segments, oldest first: those older than <code>retention.ms</code> ={" "}
          {value("retention.ms")}, and those beyond <code>retention.bytes</code> = {value("retention.bytes")}. First see
          which: nothing is removed.
        </p>
      </Step>
    );
  }
  const size = removed.reduce((sum, one) => sum + Number(one.size_bytes), 0);
  return (
    <Step
      title="Retention"
      label="Remove them now"
      isDangerous
      isReady={removed.length > 0}
      run={run}
      onDone={props.again}
      onClose={props.onClose}
    >
      {removed.length === 0 ? (
        <p>A pass would remove nothing now.</p>
      ) : (
        <>
          <p>
            {count(removed.length)} {removed.length === 1 ? "segment" : "segments"} of {bytes(size)} would be removed,
            and are shaded in the picture. Close this to look at them. The service removes them by itself at its next
            pass.
          </p>
          <ul class="steps">
            {removed.slice(0, 8).map((one) => (
              <li key={String(one.base_offset)}>
                Offsets {count(one.base_offset)} to {count(BigInt(one.next_offset) - 1n)}: {REASONS[one.reason]}
              </li>
            ))}
            {removed.length > 8 && <li>and {count(removed.length - 8)} more</li>}
          </ul>
        </>
      )}
    </Step>
  );
}

type Range = Schemas["CompactionRange"];

function shadesOf(facts: LogFacts, range: Range): Shade[] {
  const dirty = BigInt(range.first_dirty_offset);
  const end = BigInt(range.end_offset);
  return facts.pieces
    .filter((piece) => piece.base < end && end > dirty)
    .map((piece) =>
      piece.next <= dirty
        ? { base: piece.base, kind: "clean", why: "compacted before" }
        : { base: piece.base, kind: "dirty", why: "would be compacted for the first time" },
    );
}

function Compact(props: DialogProps): JSX.Element {
  const [range, show] = useState<Range | undefined>();
  const run = async (): Promise<unknown> => {
    if (range) {
      await call("post", "/v1/topics/{topic}/partitions/{partition}/compact", {
        path: pathOf(props),
      });
      props.onShade([]);
      return undefined;
    }
    const found = await get("/v1/topics/{topic}/partitions/{partition}/compaction", {
      path: pathOf(props),
    });
    show(found);
    props.onShade(shadesOf(props.facts, found));
    return "stay";
  };
  if (!range) {
    return (
      <Step
        title="Compaction"
        label="Show what would be compacted"
        run={run}
        onDone={() => undefined}
        onClose={props.onClose}
      >
        <p>
          Compaction keeps the newest record of each key. The active segment stays as it is: roll first to include it.
        </p>
      </Step>
    );
  }
  const isNothing = range.end_offset === range.first_dirty_offset;
  return (
    <Step
      title="Compaction"
      label="Compact now"
      isReady={!isNothing}
      run={run}
      onDone={props.again}
      onClose={props.onClose}
    >
      {isNothing ? (
        <p>Everything below offset {count(range.end_offset)} was compacted before; there is nothing to do.</p>
      ) : (
        <p>
          Offsets {count(range.first_dirty_offset)} to {count(BigInt(range.end_offset) - 1n)} (
          {bytes(range.cleanable_bytes)}, {percent(range.dirty_ratio, 1)} of what can be compacted) are compacted for
          the first time, and {bytes(range.clean_bytes)} again. How many records go is known when it is done.{" "}
          {range.is_due
            ? "The service does this by itself at its next pass."
            : "By the topic's configuration it is not due yet."}
        </p>
      )}
    </Step>
  );
}

function OffsetField(props: {
  label: string;
  hint: string;
  text: string;
  isWrong: boolean;
  onText: (text: string) => void;
}): JSX.Element {
  return (
    <Field label={props.label} hint={props.hint}>
      {(id) => (
        <input
          id={id}
          autofocus
          autocomplete="off"
          inputmode="numeric"
          aria-invalid={props.isWrong}
          value={props.text}
          onInput={(event) => props.onText(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

function said({ offsets, segments, bytes: size }: Effect, later: string): string {
  const files = segments
    ? ` ${count(segments)} ${segments === 1 ? "segment goes" : "segments go"} as a whole, ${bytes(size)}; ${later}`
    : ` No segment goes as a whole; ${later}`;
  return `${count(offsets)} ${offsets === 1n ? "offset is" : "offsets are"} given up.${files}`;
}

function DeleteRecords(props: DialogProps): JSX.Element {
  const { logStart, highWatermark, pieces } = props.facts;
  const [text, write] = useState("");
  const [name, confirm] = useState("");
  const before = typedOffset(text, logStart, highWatermark);
  const run = (): Promise<unknown> =>
    call("post", "/v1/topics/{topic}/partitions/{partition}/delete-records", {
      path: pathOf(props),
      body: { before_offset: before ?? logStart },
    });
  return (
    <Step
      title="Delete records"
      label="Delete them"
      isDangerous
      isReady={before !== undefined && before > logStart && name === props.topic.topic}
      run={run}
      onDone={props.again}
      onClose={props.onClose}
    >
      <OffsetField
        label="Delete what is below offset"
        hint={`From ${count(logStart)} (the log start now) to ${count(highWatermark)} (the high watermark).`}
        text={text}
        isWrong={text !== "" && before === undefined}
        onText={write}
      />
      {before !== undefined && before > logStart && (
        <p class="note caution">
          The log starts at {count(before)} from now on.{" "}
          {said(
            deletionEffect(pieces, logStart, before),
            "records in the segment of the new start stay on disk, unreadable, until it goes.",
          )}{" "}
          This cannot be undone.
        </p>
      )}
      <TypedName name={props.topic.topic} typed={name} onTyped={confirm} />
    </Step>
  );
}

function Truncate(props: DialogProps): JSX.Element {
  const { logStart, logEnd, pieces, leaderEpoch } = props.facts;
  const [text, write] = useState("");
  const [name, confirm] = useState("");
  const to = typedOffset(text, logStart, logEnd);
  const run = async (): Promise<unknown> => {
    const headers = { "if-match": await endTag(pathOf(props)) };
    return call("post", "/v1/topics/{topic}/partitions/{partition}/truncate", {
      path: pathOf(props),
      body: { to_offset: to ?? logEnd },
      headers,
    });
  };
  const isReady = to !== undefined && to < logEnd && name === props.topic.topic;
  return (
    <Step
      title="Truncate the log"
      label="Truncate"
      isDangerous
      isReady={isReady}
      run={run}
      onDone={props.again}
      onClose={props.onClose}
    >
      <OffsetField
        label="New log end"
        hint={`From ${count(logStart)} to ${count(logEnd)} (the log end now), between two batches.`}
        text={text}
        isWrong={text !== "" && to === undefined}
        onText={write}
      />
      {to !== undefined && to < logEnd && (
        <p class="note caution">
          {said(truncationEffect(pieces, logEnd, to), "the segment of the new end is cut.")} The leader epoch rises to{" "}
          {leaderEpoch + 1}: URLs and readers of the old log get 409 <code>log_replaced</code>. Readers that are beyond{" "}
          {count(to)} get 416. This cannot be undone.
        </p>
      )}
      <TypedName name={props.topic.topic} typed={name} onTyped={confirm} />
    </Step>
  );
}
