/** What cannot be undone is said, then confirmed: by typing a name where records or secrets are lost. */
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Problem } from "../api/client";
import { Dialog } from "./dialog";
import { asProblem } from "./load";
import { Failure, Field } from "./parts";

interface Typing {
  typed: string;
  onTyped: (text: string) => void;
}

/** What has to be typed stands in the label. */
export function Typed({ label, typed, onTyped }: Typing & { label: string }): JSX.Element {
  return (
    <Field label={label}>
      {(id) => (
        <input
          id={id}
          autocomplete="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => onTyped(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

/** `of` is whose name it is. */
export function TypedName({ name, of = "topic", ...typing }: Typing & { name: string; of?: string }): JSX.Element {
  return <Typed label={`Type the ${of}'s name to confirm: ${name}`} {...typing} />;
}

interface ConfirmProps {
  title: string;
  /** What is lost. */
  children: ComponentChildren;
  /** The name to type; without one a second button is enough. */
  name?: string;
  of?: string;
  label: string;
  run: () => Promise<unknown>;
  onDone: () => void;
  onClose: () => void;
}

export function Confirm({
  title,
  children,
  name,
  of = "topic",
  label,
  run,
  onDone,
  onClose,
}: ConfirmProps): JSX.Element {
  const [typed, type] = useState("");
  const [problem, fail] = useState<Problem | undefined>();
  const [isBusy, busy] = useState(false);
  const submit = (event: Event): void => {
    event.preventDefault();
    busy(true);
    fail(undefined);
    run().then(onDone, (error: unknown) => {
      fail(asProblem(error));
      busy(false);
    });
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Failure problem={problem} />
        <p>{children}</p>
        {name !== undefined && <TypedName name={name} of={of} typed={typed} onTyped={type} />}
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="danger primary" disabled={isBusy || (name !== undefined && typed !== name)}>
            {label}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
