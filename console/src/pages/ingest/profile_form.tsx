/** The profile of a topic's deliveries: how they become records, and how they are verified. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, type Problem } from "../../api/client";
import { Confirm } from "../../ui/confirm";
import { asProblem } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import { documentOf, draftOf, type Draft } from "./draft";
import type { Stored } from "./ingest";
import type { Scheme } from "./signing";

const SPLITS = {
  none: "one record",
  array: "one record per element of a JSON array",
  lines: "one record per line",
  values: "one record per JSON value, one after the other",
};
const SCHEMES: Record<Scheme, string> = {
  "standard-webhooks": "Standard Webhooks (Svix, Resend, …)",
  github: "GitHub",
  gitlab: "GitLab",
  stripe: "Stripe",
  slack: "Slack",
  zoom: "Zoom",
  discord: "Discord",
  sendgrid: "SendGrid",
  hmac: "Another HMAC of the body",
  "token-header": "A secret in a header",
};

export function ProfileForm({
  topic,
  stored,
  again,
}: {
  topic: string;
  stored: Stored;
  again: () => void;
}): JSX.Element {
  const { profile, etag } = stored;
  const [draft, change] = useState(draftOf(profile));
  const [problem, fail] = useState<Problem | undefined>();
  const [said, say] = useState("");
  const set = <K extends keyof Draft>(name: K, value: Draft[K]): void => {
    say("");
    change({ ...draft, [name]: value });
  };
  const path = { topic };
  const act = async (work: () => Promise<unknown>, done: string): Promise<void> => {
    fail(undefined);
    try {
      await work();
      say(done);
      again();
    } catch (error) {
      fail(asProblem(error));
    }
  };
  const condition: Record<string, string> = etag ? { "if-match": etag } : { "if-none-match": "*" };
  const save = (event: Event): void => {
    event.preventDefault();
    void act(
      () =>
        call("put", "/v1/topics/{topic}/ingest-profile", {
          path,
          body: documentOf(draft, profile),
          headers: condition,
        }),
      "Saved.",
    );
  };
  const [isLeaving, leave] = useState(false);
  return (
    <>
      <form class="panel" aria-label="Profile" onSubmit={save}>
        <h2>Profile {!profile && <span class="quiet">none yet: every body is one record, without a key</span>}</h2>
        <div class="fields">
          <Field label="A body becomes">
            {(id) => (
              <select
                id={id}
                value={draft.split}
                onChange={(event) => set("split", event.currentTarget.value as Draft["split"])}
              >
                {Object.entries(SPLITS).map(([value, label]) => (
                  <option key={value} value={value}>
                    {label}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Text
            label="Key"
            hint="A JSON Pointer into the body, such as /repository/full_name, or a header. Empty: no key."
            value={draft.key}
            onText={(text) => set("key", text)}
          />
          <Text
            label="Delivery id"
            hint="A pointer, a header, or several with commas, that a repetition repeats. Empty: where the scheme has it."
            value={draft.deliveryId}
            onText={(text) => set("deliveryId", text)}
          />
          <Text
            label="Headers to keep"
            hint="Request headers that become record headers, such as x-github-event."
            value={draft.headers}
            onText={(text) => set("headers", text)}
          />
        </div>
        <div class="fields">
          <Field label="Signature">
            {(id) => (
              <select
                id={id}
                value={draft.scheme}
                onChange={(event) => set("scheme", event.currentTarget.value as Draft["scheme"])}
              >
                <option value="">none: an API key or a token</option>
                {Object.entries(SCHEMES).map(([value, label]) => (
                  <option key={value} value={value}>
                    {label}
                  </option>
                ))}
              </select>
            )}
          </Field>
          {draft.scheme && (
            <Field label="Secrets, one a line" hint={secretsHint(stored, draft)}>
              {(id) => (
                <textarea
                  id={id}
                  rows={2}
                  autocomplete="off"
                  spellcheck={false}
                  value={draft.secrets}
                  onInput={(event) => set("secrets", event.currentTarget.value)}
                />
              )}
            </Field>
          )}
          {draft.scheme === "hmac" && <HmacFields draft={draft} set={set} />}
          {draft.scheme === "token-header" && (
            <Text
              label="Header of the secret"
              hint="Such as x-goog-channel-token."
              value={draft.header}
              onText={(text) => set("header", text)}
            />
          )}
        </div>
        <Failure problem={problem} />
        <div class="actions">
          <span class="good" role="status">
            {said}
          </span>
          {profile && (
            <button type="button" class="danger" onClick={() => leave(true)}>
              Delete profile
            </button>
          )}
          <button type="submit" class="primary">
            Save profile
          </button>
        </div>
      </form>
      {isLeaving && (
        <Confirm
          title={`Delete the ingest profile of ${topic}`}
          name={topic}
          label="Delete profile"
          run={() =>
            call("delete", "/v1/topics/{topic}/ingest-profile", {
              path,
              headers: condition,
            })
          }
          onDone={() => {
            leave(false);
            again();
          }}
          onClose={() => leave(false)}
        >
          Its secrets are lost, and deliveries are no longer verified by their signature: without an API key or a token
          in the address they are refused. This cannot be undone.
        </Confirm>
      )}
    </>
  );
}

function secretsHint({ profile }: Stored, { scheme }: Draft): string {
  const kept = profile?.signature?.scheme === scheme ? profile.signature.secrets_count : 0;
  return kept
    ? `${kept} stored and never shown. Leave this empty to keep ${kept === 1 ? "it" : "them"}.`
    : "Any one of them is enough, so that one can be replaced while both are in use.";
}

function Text({
  label,
  hint,
  value,
  onText,
}: {
  label: string;
  hint: string;
  value: string;
  onText: (text: string) => void;
}): JSX.Element {
  return (
    <Field label={label} hint={hint}>
      {(id) => (
        <input
          id={id}
          autocomplete="off"
          spellcheck={false}
          value={value}
          onInput={(event) => onText(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

function HmacFields({
  draft,
  set,
}: {
  draft: Draft;
  set: <K extends keyof Draft>(name: K, value: Draft[K]) => void;
}): JSX.Element {
  return (
    <>
      <Text
        label="Header of the signature"
        hint="Such as x-signature."
        value={draft.header}
        onText={(text) => set("header", text)}
      />
      <Text
        label="Prefix"
        hint="What stands before it, such as sha256=."
        value={draft.prefix}
        onText={(text) => set("prefix", text)}
      />
      <Field label="Hash">
        {(id) => (
          <select
            id={id}
            value={draft.algorithm}
            onChange={(event) => set("algorithm", event.currentTarget.value as Draft["algorithm"])}
          >
            <option value="sha256">SHA-256</option>
            <option value="sha512">SHA-512</option>
          </select>
        )}
      </Field>
      <Field label="Written as">
        {(id) => (
          <select
            id={id}
            value={draft.encoding}
            onChange={(event) => set("encoding", event.currentTarget.value as Draft["encoding"])}
          >
            <option value="hex">hexadecimal</option>
            <option value="base64">base64</option>
          </select>
        )}
      </Field>
    </>
  );
}
