/** Ingest: the address to give to a sender, how its bodies become records, and a delivery to try it with. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import { call, type Schemas } from "../../api/client";
import { may } from "../../api/rights";
import { summaryOf } from "../../api/topics";
import { useLoad } from "../../ui/load";
import { Copy, Failure } from "../../ui/parts";
import type { TabProps } from "../../ui/tab";
import { Deliveries } from "./deliveries";
import { ProfileForm } from "./profile_form";
import { TestDelivery } from "./test_delivery";
import { Tokens } from "./tokens";

export interface Stored {
  profile: Schemas["IngestProfile"] | undefined;
  /** The profile's ETag; empty if there is none. */
  etag: string;
}

async function load(topic: string, signal: AbortSignal): Promise<Stored> {
  if (!(await summaryOf(topic, signal))?.has_ingest_profile) return { profile: undefined, etag: "" };
  const { data, headers } = await call("get", "/v1/topics/{topic}/ingest-profile", {
    path: { topic },
    signal,
  });
  return { profile: data, etag: headers.get("etag") ?? "" };
}

export function Ingest({ topic }: TabProps): JSX.Element {
  const name = topic.topic;
  const isAdmin = may("admin", name);
  const stored = useLoad(`${name}/${isAdmin}`, (signal) =>
    isAdmin ? load(name, signal) : Promise.resolve({ profile: undefined, etag: "" }),
  );
  const url = `${HOME}/v1/topics/${encodeURIComponent(name)}/ingest`;
  const scheme = stored.data?.profile?.signature?.scheme;
  return (
    <div class="ingest">
      <section class="panel" aria-label="Address">
        <h2>Address for the sender</h2>
        <p class="ingest-url">
          <code>{url}</code> <Copy text={url} />
        </p>
        <p class="hint">
          Any POST with a body is stored before it is answered: webhooks, CloudEvents, lines of text. OTLP exporters
          take <code>{`${url}/otlp`}</code> as their endpoint.{" "}
          {scheme
            ? `Deliveries are verified by their ${scheme} signature.`
            : "Without a signature a sender needs an API key, or a token in the address, unless the service is open."}
        </p>
        {isAdmin && <Tokens topic={name} />}
      </section>
      {may("append", name) && stored.data && (
        <TestDelivery key={stored.data.etag} topic={name} url={url} profile={stored.data.profile} />
      )}
      <Failure problem={stored.error?.code === "unreachable" ? undefined : stored.error} onRetry={stored.again} />
      {isAdmin && stored.data && (
        <ProfileForm key={stored.data.etag} topic={name} stored={stored.data} again={stored.again} />
      )}
      <Deliveries topic={topic} />
    </div>
  );
}
