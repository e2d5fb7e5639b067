/** Subscriptions: which topics are pushed where, how far each is, and what the last answers were. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import { get, type Schemas } from "../../api/client";
import { subscription } from "../../routes";
import { count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { everyPage } from "../../ui/pages";
import { Command, Empty, Failure } from "../../ui/parts";

type One = Schemas["Subscription"];

const EVERY_MS = 5000;

function load(signal: AbortSignal): Promise<One[]> {
  return everyPage(
    (query) => get("/v1/subscriptions", { query, signal }),
    (page) => page.subscriptions,
  );
}

export function Subscriptions(): JSX.Element {
  const list = useLoad("subscriptions", load, EVERY_MS);
  return (
    <>
      <div class="page-head">
        <h1>Subscriptions</h1>
      </div>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} onRetry={list.again} />
      {list.data?.length === 0 && <First />}
      {list.data && list.data.length > 0 && (
        <div class="scroll" role="region" aria-label="Subscriptions" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>State</th>
                <th>Topics</th>
                <th>Where to</th>
                <th class="number">Lag</th>
                <th class="number">Failing</th>
              </tr>
            </thead>
            <tbody>
              {list.data.map((one) => (
                <tr key={one.name}>
                  <td class="name">
                    <a href={subscription.link([one.name])}>{one.name}</a>
                  </td>
                  <td class="nowrap">
                    <State of={one} />
                  </td>
                  <td class="clip">{one.topics.join(", ")}</td>
                  <td class="clip" title={one.url}>
                    {one.url}
                  </td>
                  <td class="number">{lagWords(one)}</td>
                  <td class="number">{count(one.partitions.filter((part) => Number(part.failures) > 0).length)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

/** Offsets that are not pushed yet; while it stands still, its group knows. */
export function lagWords(one: One): string {
  if (!one.partitions.length) return "–";
  return count(one.partitions.reduce((sum, part) => sum + BigInt(part.lag), 0n));
}

export function State({ of }: { of: One }): JSX.Element {
  const isFailing = of.state === "running" && of.partitions.some((part) => Number(part.failures) > 0);
  const level = of.state === "stopped" || isFailing ? "bad" : of.state === "paused" ? "warn" : "good";
  return (
    <span class={level}>
      <span class="dot" />
      {isFailing ? "running, some requests fail" : of.state}
    </span>
  );
}

function First(): JSX.Element {
  return (
    <Empty title="Nothing is pushed yet">
      <p>
        A subscription sends the records of topics to a URL, in the order of each partition and at least once, signed if
        it has a secret.
      </p>
      <Command
        label="Command that subscribes"
        text={`curl -X PUT ${HOME}/v1/subscriptions/billing -H 'content-type: application/json' \\
  -d '{"topics": ["events"], "url": "https://example.org/hook", "start": "latest"}'`}
      />
    </Empty>
  );
}
