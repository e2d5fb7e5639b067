/** Ingest tokens: the last part of an address, for senders that can only be given one. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, get, type Problem } from "../../api/client";
import { Confirm } from "../../ui/confirm";
import { asProblem, useLoad } from "../../ui/load";
import { Copy, Failure, Time } from "../../ui/parts";

export function Tokens({ topic }: { topic: string }): JSX.Element {
  const list = useLoad(
    topic,
    async (signal) => (await get("/v1/topics/{topic}/ingest-tokens", { path: { topic }, signal })).tokens,
  );
  const [made, show] = useState("");
  const [problem, fail] = useState<Problem | undefined>();
  const act = async (work: () => Promise<void>): Promise<void> => {
    fail(undefined);
    try {
      await work();
      list.again();
    } catch (error) {
      fail(asProblem(error));
    }
  };
  const create = (): Promise<void> =>
    act(async () => {
      const { data } = await call("post", "/v1/topics/{topic}/ingest-tokens", {
        path: { topic },
      });
      show(location.origin + data.url);
    });
  const [revoked, revoke] = useState("");
  return (
    <>
      {made && (
        <div class="note" role="status">
          <p>An address with a token. It is shown this once: copy it now.</p>
          <p class="ingest-url">
            <code>{made}</code> <Copy text={made} />
          </p>
        </div>
      )}
      <Failure problem={problem ?? (list.error?.code === "unreachable" ? undefined : list.error)} />
      <ul class="tokens" aria-label="Tokens">
        {list.data?.map((one) => (
          <li key={one.id}>
            <code>{one.id}</code> <span class="quiet">made</span> <Time ms={one.created_timestamp} relative />
            <button
              type="button"
              class="small danger"
              onClick={() => revoke(one.id)}
              aria-label={`Revoke token ${one.id}`}
            >
              Revoke
            </button>
          </li>
        ))}
      </ul>
      <button type="button" class="small" onClick={() => void create()}>
        Make an address with a token
      </button>
      {revoked && (
        <Confirm
          title={`Revoke token ${revoked}`}
          label="Revoke it"
          run={() =>
            call("delete", "/v1/topics/{topic}/ingest-tokens/{id}", {
              path: { topic, id: revoked },
            })
          }
          onDone={() => {
            show("");
            revoke("");
            list.again();
          }}
          onClose={() => revoke("")}
        >
          Every sender that posts to its address is refused from then on. The token cannot be restored.
        </Confirm>
      )}
    </>
  );
}
