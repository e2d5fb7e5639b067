/** How far a search has come, in words. */
import type { JSX } from "preact";
import { count, percent } from "../../ui/format";
import { KEPT_MESSAGES } from "./live";
import { MOST_FOUND, type Session } from "./session";

export function Progress({ session, isFiltered }: { session: Session; isFiltered: boolean }): JSX.Element {
  const state = session.state.value;
  const found = session.messages.value.length;
  const scanned = session.scanned.value;
  const total = session.total.value;
  if (state === "live" || state === "held") {
    return (
      <p class="progress" role="status">
        <span class={!session.isConnected.value ? "bad" : state === "live" ? "good" : "warn"}>
          <span class="dot" />
          {!session.isConnected.value ? "Not connected" : state === "live" ? "Live" : "Paused"}
        </span>{" "}
        · {count(scanned)} received{isFiltered && `, ${count(found)} match`}
        {found >= KEPT_MESSAGES && ` · the newest ${count(KEPT_MESSAGES)} are kept`}
      </p>
    );
  }
  const ends: Record<string, string> = {
    reading: "reading …",
    paused: "scroll for more",
    stopped: "stopped",
    done: "all read",
    full: `stopped at ${count(MOST_FOUND)} messages: narrow the filter`,
    failed: "failed",
  };
  return (
    <p class="progress" role="status">
      <progress max={total || 1} value={scanned} aria-label="Part of the topic that was scanned" />
      {isFiltered && `${count(found)} found · `}
      scanned {count(scanned)} of {count(total)} records ({percent(scanned, total)}) · {ends[state]}{" "}
      {(state === "stopped" || (state === "paused" && isFiltered)) && (
        <button type="button" class="small" onClick={() => void session.more()}>
          Go on
        </button>
      )}
    </p>
  );
}
