/** Which columns are shown: chosen, typed, or kept by name in this browser. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { forgetView, saveView, viewsOf } from "../../ui/preferences";
import { messages as address, type MessagesAsked } from "../../routes";
import { columnsOf, offered } from "./columns";
import type { Message } from "./message";

interface Props {
  topic: string;
  asked: MessagesAsked;
  messages: Message[];
}

export function ColumnsPanel({ topic, asked, messages }: Props): JSX.Element {
  const [text, write] = useState(asked.columns);
  useEffect(() => write(asked.columns), [asked.columns]);
  const columns = columnsOf(text);
  const shown = typeof columns === "string" ? [] : columns.map((one) => one.title);
  const apply = (wanted: string): void => {
    write(wanted);
    if (typeof columnsOf(wanted) !== "string") address.change({ columns: wanted });
  };
  const choose = (title: string, isWanted: boolean): void =>
    apply((isWanted ? [...shown, title] : shown.filter((one) => one !== title)).join(" "));
  return (
    <div class="panel columns-panel">
      <label>
        Columns{" "}
        <input
          class="mono"
          spellcheck={false}
          autocomplete="off"
          placeholder="value.dest header.type"
          aria-invalid={typeof columns === "string"}
          value={text}
          onInput={(event) => apply(event.currentTarget.value)}
        />
      </label>
      {typeof columns === "string" && (
        <p class="bad" role="alert">
          {columns}
        </p>
      )}
      <div class="offered">
        {[...new Set([...shown, ...offered(messages)])].map((title) => (
          <label key={title}>
            <input
              type="checkbox"
              checked={shown.includes(title)}
              onChange={(event) => choose(title, event.currentTarget.checked)}
            />{" "}
            <code>{title}</code>
          </label>
        ))}
      </div>
      <Views topic={topic} asked={asked} />
    </div>
  );
}

/** Filter and columns under a name, for this topic in this browser. */
function Views({ topic, asked }: { topic: string; asked: MessagesAsked }): JSX.Element {
  const [name, call] = useState("");
  const views = Object.entries(viewsOf(topic));
  const submit = (event: Event): void => {
    event.preventDefault();
    saveView(topic, name.trim(), { columns: asked.columns, filter: asked.filter });
    call("");
  };
  return (
    <form class="bar" onSubmit={submit}>
      {views.map(([one, view]) => (
        <span key={one} class="view">
          <a href={address.link([topic], { ...asked, ...view, open: "" })}>{one}</a>
          <button type="button" class="plain" aria-label={`Forget ${one}`} onClick={() => forgetView(topic, one)}>
            ✕
          </button>
        </span>
      ))}
      <input
        aria-label="Name of this view"
        placeholder="name"
        class="short"
        maxLength={60}
        value={name}
        onInput={(event) => call(event.currentTarget.value)}
      />
      <button type="submit" class="small" disabled={!name.trim() || !(asked.columns || asked.filter)}>
        Save filter and columns
      </button>
    </form>
  );
}
