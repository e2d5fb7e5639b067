/** A test delivery: signed here as the sender would sign it, then sent as the sender would send it. */
import { HOME } from "../../place";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Problem, send, type Schemas } from "../../api/client";
import { parseJson } from "../../api/json";
import { asProblem } from "../../ui/load";
import { Command, Failure, Field } from "../../ui/parts";
import { count, whyOf } from "../../ui/format";
import { toOffset } from "../../routes";
import { curlOf, signedHeaders, type HmacForm } from "./signing";

type Profile = Schemas["IngestProfile"];
type Receipt = Schemas["IngestReceipt"];

const EXAMPLE = '{"hello": "log"}';

function formOf(profile: Profile | undefined): HmacForm | undefined {
  const signature = profile?.signature;
  if (!signature?.header) return undefined;
  return {
    header: signature.header ?? "",
    algorithm: signature.algorithm ?? "sha256",
    encoding: signature.encoding ?? "hex",
    prefix: signature.prefix ?? "",
  };
}

export function TestDelivery({
  topic,
  url,
  profile,
}: {
  topic: string;
  url: string;
  profile: Profile | undefined;
}): JSX.Element {
  const scheme = profile?.signature?.scheme;
  const [body, write] = useState(EXAMPLE);
  const [type, setType] = useState("application/json");
  const [secret, keep] = useState("");
  const [sent, show] = useState<{ headers: Record<string, string>; body: string } | undefined>();
  const [receipt, take] = useState<Receipt | undefined>();
  const [problem, fail] = useState<Problem | undefined>();
  const [fault, complain] = useState("");
  const deliver = async (headers: Record<string, string>, text: string): Promise<void> => {
    take(undefined);
    fail(undefined);
    show({ headers, body: text });
    try {
      // A signed delivery goes without the console's key, as the sender's does.
      const response = scheme
        ? await unsigned(url, headers, text)
        : await send(url.slice(HOME.length), { method: "POST", headers, body: text });
      take(parseJson(await response.text()) as Receipt);
    } catch (error) {
      fail(asProblem(error));
    }
  };
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    complain("");
    const delivery = {
      body,
      id: `msg_${crypto.randomUUID().replaceAll("-", "")}`,
      time: Math.floor(Date.now() / 1000),
    };
    try {
      const signature = scheme ? await signedHeaders(scheme, secret, delivery, formOf(profile)) : {};
      await deliver({ "content-type": type, ...signature }, body);
    } catch (error) {
      complain(whyOf(error));
    }
  };
  const canSign = !scheme || isSecureContext;
  return (
    <form class="panel" aria-label="Test delivery" onSubmit={(event) => void submit(event)}>
      <h2>Test delivery</h2>
      {!canSign && <p class="warn">A page that is not on https or on this machine may not compute signatures.</p>}
      <div class="fields">
        <Field label="Content type">
          {(id) => (
            <select id={id} value={type} onChange={(event) => setType(event.currentTarget.value)}>
              {[
                "application/json",
                "application/x-ndjson",
                "application/cloudevents+json",
                "text/plain",
                "application/x-www-form-urlencoded",
              ].map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          )}
        </Field>
        {scheme && (
          <Field label="The sender's secret" hint={`It stays in this page, which computes the ${scheme} signature.`}>
            {(id) => (
              <input
                id={id}
                type="password"
                autocomplete="off"
                value={secret}
                onInput={(event) => keep(event.currentTarget.value)}
              />
            )}
          </Field>
        )}
      </div>
      <Field label="Body">
        {(id) => (
          <textarea
            id={id}
            rows={4}
            spellcheck={false}
            value={body}
            onInput={(event) => write(event.currentTarget.value)}
          />
        )}
      </Field>
      {fault && (
        <p class="bad" role="alert">
          {fault}
        </p>
      )}
      <div class="actions">
        {sent && (
          <button type="button" onClick={() => void deliver(sent.headers, sent.body)}>
            Send the same again
          </button>
        )}
        <button type="submit" class="primary" disabled={!canSign || !body}>
          {scheme ? "Sign and send" : "Send"}
        </button>
      </div>
      <Failure problem={problem} />
      {receipt && (
        <p class="note" role="status">
          Stored: {count(receipt.count)} {Number(receipt.count) === 1 ? "record" : "records"} from{" "}
          <a href={toOffset(topic, receipt.partition, receipt.offset)}>
            partition {receipt.partition}, offset {count(receipt.offset)}
          </a>
        </p>
      )}
      {sent && <Command label="The curl that does the same" text={curlOf(url, sent.headers, sent.body)} />}
    </form>
  );
}

async function unsigned(url: string, headers: Record<string, string>, body: string): Promise<Response> {
  const response = await fetch(url, { method: "POST", headers, body });
  if (response.ok) return response;
  const document = parseJson(await response.text()) as Record<string, unknown>;
  throw new Problem(response.status, String(document.code), String(document.title), String(document.detail), document);
}
