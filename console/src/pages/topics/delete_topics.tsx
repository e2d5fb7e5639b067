/** Several topics deleted together: named, counted, confirmed by typing, one after the other. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, type Problem, type Schemas } from "../../api/client";
import { Dialog } from "../../ui/dialog";
import { counted } from "../../ui/format";
import { asProblem } from "../../ui/load";
import { Typed } from "../../ui/confirm";

interface Props {
  topics: Schemas["TopicSummary"][];
  /** Called with what is gone. */
  onDone: (deleted: string[]) => void;
  onClose: () => void;
}

export function DeleteTopics({ topics, onDone, onClose }: Props): JSX.Element {
  const [chosen] = useState(topics); // as it was when the dialog opened: what is shown is what is deleted
  const [typed, type] = useState("");
  const [done, tell] = useState(0);
  const [failures, note] = useState<[string, Problem][] | undefined>();
  const [isBusy, busy] = useState(false);
  const wanted = `delete ${counted(chosen.length, "topic")}`;
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    busy(true);
    const deleted: string[] = [];
    const failed: [string, Problem][] = [];
    for (const { topic, etag } of chosen) {
      try {
        await call("delete", "/v1/topics/{topic}", { path: { topic }, headers: { "if-match": etag } });
        deleted.push(topic);
      } catch (error) {
        failed.push([topic, asProblem(error)]);
      }
      tell(deleted.length + failed.length);
    }
    onDone(deleted);
    if (failed.length) note(failed);
    else onClose();
  };
  return (
    <Dialog title={`Delete ${counted(chosen.length, "topic")}`} onClose={onClose}>
      {failures ? (
        <div role="alert">
          <p class="bad">{counted(failures.length, "topic")} could not be deleted; the others are gone.</p>
          <ul>
            {failures.map(([topic, problem]) => (
              <li key={topic}>
                <b>{topic}</b>: {problem.title}. {problem.detail}
              </li>
            ))}
          </ul>
        </div>
      ) : (
        <form class="stack" onSubmit={(event) => void submit(event)}>
          <p>
            These topics and all of their records are removed, with the offsets of all groups in them. This cannot be
            undone. A topic that was changed since this page was loaded stays.
          </p>
          <ul class="names">
            {chosen.map(({ topic }) => (
              <li key={topic}>{topic}</li>
            ))}
          </ul>
          <Typed label={`Type to confirm: ${wanted}`} typed={typed} onTyped={type} />
          {isBusy && (
            <p role="status">
              {done} of {chosen.length}
            </p>
          )}
          <div class="actions">
            <button type="button" onClick={onClose}>
              Cancel
            </button>
            <button type="submit" class="danger primary" disabled={isBusy || typed !== wanted}>
              Delete topics
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}
