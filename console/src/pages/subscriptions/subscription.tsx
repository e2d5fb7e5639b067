/** One subscription: how it is going, its last answers, a test, pause, and pushing again from elsewhere. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, get, type Problem, type Schemas } from "../../api/client";
import { group as groupPage, subscriptions, topic as topicPage, toOffset } from "../../routes";
import { Confirm } from "../../ui/confirm";
import { count, counted, duration } from "../../ui/format";
import { asProblem, useLoad } from "../../ui/load";
import { Failure, Figure, Time } from "../../ui/parts";
import { go, route } from "../../ui/router";
import { Reset } from "../groups/reset";
import { lagWords, State } from "./subscriptions";

type One = Schemas["Subscription"];
type Part = Schemas["PushedPartition"];

const EVERY_MS = 3000;

export function Subscription(): JSX.Element {
  const [, name = ""] = route.value.parts;
  const loaded = useLoad(name, (signal) => get("/v1/subscriptions/{name}", { path: { name }, signal }), EVERY_MS);
  const one = loaded.data;
  return (
    <>
      <div class="page-head">
        <h1>
          <a class="crumb" href={subscriptions.link([])}>
            Subscriptions
          </a>
          <span class="quiet"> / </span>
          {name}
        </h1>
      </div>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} onRetry={loaded.again} />
      {one && <View one={one} again={loaded.again} />}
    </>
  );
}

function View({ one, again }: { one: One; again: () => void }): JSX.Element {
  return (
    <div class="stack">
      {one.problem && (
        <ul class="troubles" role="alert">
          <li class="bad">
            {one.state === "stopped" ? "It stopped" : "It was paused"}: {one.problem}
          </li>
        </ul>
      )}
      <dl class="figures">
        <Figure name="State">
          <State of={one} />
        </Figure>
        <Figure name="Lag">{lagWords(one)}</Figure>
        <Figure
          name="Where to"
          note={one.signature ? `signed with ${counted(one.signature.secrets_count, "secret")}` : "not signed"}
        >
          {one.url}
        </Figure>
        <Figure
          name="Requests"
          note={`${one.format}, at most ${counted(one.batch.max_records, "record")}, ${duration(one.timeout_ms)} each`}
        >
          {one.retry.attempts === null ? "until they succeed" : counted(one.retry.attempts, "attempt")}
        </Figure>
        <Figure name="Group">
          <a href={groupPage.link([one.group])}>{one.group}</a>
        </Figure>
        {one.filter && (
          <Figure name="Filter">
            <code>{one.filter}</code>
          </Figure>
        )}
        {one.dead_letter_topic && (
          <Figure name="Dead letters">
            <a href={topicPage.link([one.dead_letter_topic, ""])}>{one.dead_letter_topic}</a>
          </Figure>
        )}
      </dl>
      <Actions one={one} again={again} />
      {one.partitions.length > 0 ? (
        <Partitions parts={one.partitions} />
      ) : (
        <p class="quiet">
          Nothing is pushed while it stands still. Its <a href={groupPage.link([one.group])}>group</a> says how far it
          is, and goes on from there.
        </p>
      )}
    </div>
  );
}

function Actions({ one, again }: { one: One; again: () => void }): JSX.Element {
  const path = { name: one.name };
  const [problem, fail] = useState<Problem | undefined>();
  const [isBusy, busy] = useState(false);
  const [tested, show] = useState<Schemas["SubscriptionTest"] | undefined>();
  const [lags, reset] = useState<Schemas["PartitionLag"][] | undefined>();
  const [isLeaving, leave] = useState(false);
  const act = (work: () => Promise<void>): void => {
    busy(true);
    fail(undefined);
    work()
      .catch((error: unknown) => fail(asProblem(error)))
      .finally(() => busy(false));
  };
  const pause = (paused: boolean): void =>
    act(async () => {
      await call("patch", "/v1/subscriptions/{name}", { path, body: { paused } });
      again();
    });
  const test = (): void => act(async () => show((await call("post", "/v1/subscriptions/{name}/test", { path })).data));
  const replay = (topic: string): void =>
    act(async () => {
      const lag = await get("/v1/groups/{group}/lag", { path: { group: one.group } });
      reset(lag.partitions.filter((part) => part.topic === topic));
    });
  const isRunning = one.state === "running";
  return (
    <>
      <div class="bar" role="group" aria-label="Actions">
        {isRunning ? (
          <button type="button" disabled={isBusy} onClick={() => pause(true)}>
            Pause
          </button>
        ) : (
          <button type="button" class="primary" disabled={isBusy} onClick={() => pause(false)}>
            Start again
          </button>
        )}
        <button type="button" disabled={isBusy} onClick={test}>
          Send a test
        </button>
        {one.topics.map((topic) => (
          <button
            key={topic}
            type="button"
            disabled={isBusy || isRunning}
            title={isRunning ? "Pause it first: a running one stores its own offsets" : ""}
            onClick={() => replay(topic)}
          >
            Push {topic} again from…
          </button>
        ))}
        <button type="button" class="danger" onClick={() => leave(true)}>
          Delete…
        </button>
      </div>
      <Failure problem={problem} />
      {tested && <Tested tested={tested} />}
      {lags && <Reset group={one.group} lags={lags} onClose={() => reset(undefined)} onDone={again} />}
      {isLeaving && (
        <Confirm
          title={`Delete the subscription ${one.name}`}
          name={one.name}
          of="subscription"
          label="Delete subscription"
          run={() => call("delete", "/v1/subscriptions/{name}", { path })}
          onDone={() => go(subscriptions.link([]))}
          onClose={() => leave(false)}
        >
          Nothing is pushed any more, and its secrets are lost. The offsets of its group stay. This cannot be undone.
        </Confirm>
      )}
    </>
  );
}

function Tested({ tested }: { tested: Schemas["SubscriptionTest"] }): JSX.Element {
  return (
    <div class={tested.problem ? "note caution" : "note"} role="status">
      <p>
        The test was answered {tested.status === null ? "by nobody" : `with ${tested.status}`} after{" "}
        {duration(tested.duration_ms)}. {tested.problem ?? ""}
      </p>
      {tested.response && <pre class="shown">{tested.response}</pre>}
    </div>
  );
}

function Partitions({ parts }: { parts: Part[] }): JSX.Element {
  return (
    <div class="scroll" role="region" aria-label="Partitions" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th>Topic</th>
            <th class="number">Partition</th>
            <th class="number">Next offset</th>
            <th class="number">Lag</th>
            <th class="number">Failures</th>
            <th>Next attempt</th>
            <th>Last answer</th>
          </tr>
        </thead>
        <tbody>
          {parts.map((part) => (
            <tr key={`${part.topic}/${part.partition}`}>
              <td class="name">{part.topic}</td>
              <td class="number">{part.partition}</td>
              <td class="number">
                <a href={toOffset(part.topic, part.partition, BigInt(part.offset))}>{count(part.offset)}</a>
              </td>
              <td class="number">{count(part.lag)}</td>
              <td class="number">{Number(part.failures) > 0 ? <b class="bad">{count(part.failures)}</b> : 0}</td>
              <td class="nowrap">
                {part.next_attempt_at === null ? "–" : <Time ms={part.next_attempt_at} relative />}
              </td>
              <td>
                <Answer of={part.last_answer} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Answer({ of }: { of: Schemas["LastAnswer"] | null }): JSX.Element {
  if (!of) return <span class="quiet">none since the start</span>;
  return (
    <>
      <span class={of.problem ? "bad" : "good"}>{of.status ?? "none"}</span> <Time ms={of.timestamp} relative />{" "}
      <span class="quiet">in {duration(of.duration_ms)}</span>
      {of.problem && <span class="bad"> {of.problem}</span>}
    </>
  );
}
