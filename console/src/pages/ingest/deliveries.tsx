/** The last deliveries of a topic, and how many requests were refused since this page was opened. */
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { get, send, type Schemas } from "../../api/client";
import { parseMetrics, type Metrics } from "../../api/metrics";
import { may } from "../../api/rights";
import { bytes, count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Time } from "../../ui/parts";
import { toMessage } from "../../routes";
import { deliveriesOf, refusals, type Shown } from "./recent";

const EVERY_MS = 3000;
const METRICS_EVERY_MS = 10_000;
const LOOK_BACK = 20n;
const MOST_PARTITIONS = 8;
const MOST = 20;
const WANTED = new Set(["tidelog_requests_total"]);

async function newest(topic: Schemas["Topic"], signal: AbortSignal): Promise<Shown[]> {
  const { partitions } = await get("/v1/topics/{topic}/offsets", { path: { topic: topic.topic }, signal });
  const looked = await Promise.all(
    partitions.slice(0, MOST_PARTITIONS).map(async (one) => {
      const end = BigInt(one.high_watermark ?? 0);
      const start = BigInt(one.log_start_offset ?? 0);
      const offset = end - LOOK_BACK > start ? end - LOOK_BACK : start;
      const page = await get("/v1/topics/{topic}/partitions/{partition}/records", { path: { topic: topic.topic, partition: one.partition }, query: { offset: String(offset), encoding: "utf8" }, signal });
      return deliveriesOf(one.partition, page.records);
    }),
  );
  return looked.flat().sort((a, b) => b.time - a.time).slice(0, MOST);
}

export function Deliveries({ topic }: { topic: Schemas["Topic"] }): JSX.Element | null {
  const mayRead = may("read", topic.topic);
  const recent = useLoad(`${topic.topic}/${mayRead}`, (signal) => (mayRead ? newest(topic, signal) : Promise.resolve([])), EVERY_MS);
  const first = useRef<Metrics | undefined>(undefined);
  const metrics = useLoad("metrics", async () => parseMetrics(await (await send("/metrics")).text(), WANTED), METRICS_EVERY_MS);
  if (metrics.data) first.current ??= metrics.data;
  const refused = metrics.data && first.current ? refusals(first.current, metrics.data) : undefined;
  return (
    <section aria-label="Last deliveries">
      <h2>Last deliveries</h2>
      {refused && (
        <p class="quiet" role="status">
          {refused.length
            ? `Refused since this page was opened, of all topics: ${refused.map(({ status, number }) => `${count(number)} × ${status}`).join(", ")}.`
            : "No delivery was refused since this page was opened."}
        </p>
      )}
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
    </section>
  );
}
