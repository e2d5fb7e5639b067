/** The last deliveries of a topic, and the last requests that were refused, with the reason. */
import type { JSX } from "preact";
import { get, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { bytes, count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Failure, Time } from "../../ui/parts";
import { toMessage } from "../../routes";
import { messageOf, useReading, type Reading } from "../messages/reading";
import { deliveriesOf, type Shown } from "./recent";

const EVERY_MS = 3000;
const LOOK_BACK = 20n;
const MOST_PARTITIONS = 8;
const MOST = 20;

async function newest(topic: Schemas["Topic"], reading: Reading, signal: AbortSignal): Promise<Shown[]> {
  const { partitions } = await get("/v1/topics/{topic}/offsets", {
    path: { topic: topic.topic },
    signal,
  });
  const looked = await Promise.all(
    partitions.slice(0, MOST_PARTITIONS).map(async (one) => {
      const end = BigInt(one.high_watermark ?? 0);
      const start = BigInt(one.log_start_offset ?? 0);
      const offset = end - LOOK_BACK > start ? end - LOOK_BACK : start;
      const page = await get("/v1/topics/{topic}/partitions/{partition}/records", {
        path: { topic: topic.topic, partition: one.partition },
        query: { offset: String(offset), encoding: "base64" },
        signal,
      });
      return deliveriesOf(page.records.map((record) => messageOf(one.partition, record, reading)));
    }),
  );
  return looked
    .flat()
    .sort((a, b) => b.time - a.time)
    .slice(0, MOST);
}

/** Why a delivery did not arrive: the last requests that were refused, as their senders were told. */
function Refusals({ topic }: { topic: string }): JSX.Element {
  const list = useLoad(
    topic,
    (signal) => get("/v1/topics/{topic}/ingest-refusals", { path: { topic }, signal }),
    EVERY_MS,
  );
  const refusals = list.data?.refusals ?? [];
  return (
    <section class="after" aria-label="Refused deliveries">
      <h2>Refused since the start of the service</h2>
      <Failure problem={list.error?.code === "unreachable" ? undefined : list.error} />
      {list.data && refusals.length === 0 && <p class="quiet">No request was refused.</p>}
      {refusals.length > 0 && (
        <div class="scroll" role="region" aria-label="Refusals" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>When</th>
                <th>Why</th>
                <th class="number">HTTP</th>
                <th>What the sender was told</th>
              </tr>
            </thead>
            <tbody>
              {refusals.map((one, index) => (
                <tr key={`${one.timestamp}/${index}`}>
                  <td class="nowrap">
                    <Time ms={one.timestamp} relative />
                  </td>
                  <td class="nowrap">{one.reason.replaceAll("_", " ")}</td>
                  <td class="number">{one.status}</td>
                  <td class="wrap">{one.detail}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

export function Deliveries({ topic }: { topic: Schemas["Topic"] }): JSX.Element | null {
  const mayRead = may("read", topic.topic);
  const reading = useReading(topic.topic).data;
  const recent = useLoad(
    `${topic.topic}/${mayRead}/${Boolean(reading)}`,
    (signal) => (mayRead && reading ? newest(topic, reading, signal) : Promise.resolve(undefined)),
    EVERY_MS,
  );
  return (
    <section aria-label="Last deliveries">
      <h2>Last deliveries</h2>
      {mayRead && recent.data?.length === 0 && <p class="quiet">None of the newest records came as a delivery yet.</p>}
      {recent.data && recent.data.length > 0 && (
        <div class="scroll" role="region" aria-label="Deliveries" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>When</th>
                <th class="number">Partition</th>
                <th class="number">Offset</th>
                <th>Key</th>
                <th>Content type</th>
                <th>Delivery id</th>
                <th class="number">Size</th>
              </tr>
            </thead>
            <tbody>
              {recent.data.map((one) => (
                <tr key={`${one.partition}/${one.offset}`}>
                  <td class="nowrap">
                    <Time ms={one.time} relative />
                  </td>
                  <td class="number">{one.partition}</td>
                  <td class="number">
                    <a href={toMessage(topic.topic, one.partition, one.offset)}>{count(one.offset)}</a>
                  </td>
                  <td class="clip delivery">{one.key}</td>
                  <td class="nowrap">{one.type}</td>
                  <td class="clip delivery" title={one.id}>
                    <code>{one.id}</code>
                  </td>
                  <td class="number">{bytes(one.size)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {may("admin", topic.topic) && <Refusals topic={topic.topic} />}
    </section>
  );
}
