/** Small pieces that every page uses. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import type { Int, Problem } from "../api/client";
import { bytes, count, localTime, relativeTime, shownTime, utcTime } from "./format";
import { zone } from "./preferences";

export function Time({ ms, relative = false }: { ms: Int; relative?: boolean }): JSX.Element {
  if (BigInt(ms) < 0n) return <span class="quiet">no time</span>;
  const title = relative
    ? `${localTime(ms)} local\n${utcTime(ms)}`
    : `${zone.value === "UTC" ? `${localTime(ms)} local` : utcTime(ms)}\n${relativeTime(ms)}`;
  return (
    <time dateTime={utcTime(ms)} title={title}>
      {relative ? relativeTime(ms) : shownTime(ms)}
    </time>
  );
}

export function Bytes({ of }: { of: Int }): JSX.Element {
  return <span title={`${count(of)} bytes`}>{bytes(of)}</span>;
}

/** What went wrong, as the problem document says it. */
export function Failure({
  problem,
  onRetry,
}: {
  problem: Problem | undefined;
  onRetry?: () => void;
}): JSX.Element | null {
  if (!problem) return null;
  const { document } = problem;
  const errors = Array.isArray(document.errors)
    ? (document.errors as {
        index?: number | null;
        field?: string;
        detail?: string;
        code: string;
      }[])
    : [];
  return (
    <div class="failure" role="alert">
      <strong>{problem.title}</strong>
      <p>{problem.detail}</p>
      {errors.length > 0 && (
        <ul>
          {errors.slice(0, 10).map((one) => (
            <li>
              {one.index !== null && one.index !== undefined && `record ${one.index}: `}
              <code>{one.field}</code> {one.detail ?? one.code}
            </li>
          ))}
        </ul>
      )}
      <p class="quiet">
        <code>{problem.code}</code>
        {problem.status > 0 && ` · HTTP ${problem.status}`}
        {typeof document.side_effects === "string" && ` · side effects: ${document.side_effects}`}
        {typeof document.trace_id === "string" && ` · trace ${document.trace_id}`}
      </p>
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A command to paste, with a button that copies it. */
export function Command({ text, label = "Command" }: { text: string; label?: string }): JSX.Element {
  return (
    <div class="command">
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <Copy text={text} />
    </div>
  );
}

export function Copy({ text, label = "Copy" }: { text: string | (() => string); label?: string }): JSX.Element {
  const [told, tell] = useState("");
  useEffect(() => {
    if (!told) return undefined;
    const timer = setTimeout(() => tell(""), 1500);
    return () => clearTimeout(timer);
  }, [told]);
  const copy = (): void => {
    navigator.clipboard.writeText(typeof text === "string" ? text : text()).then(
      () => tell("Copied"),
      () => tell("Not allowed"),
    );
  };
  return (
    <button type="button" class="small" onClick={copy} aria-live="polite">
      {told || label}
    </button>
  );
}

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  error?: string | undefined;
  children: (id: string) => ComponentChildren;
}

/** A label, its control, and what is to be known about it. */
export function Field({ label, hint, error, children }: FieldProps): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id)}
      {hint && <p class="hint">{hint}</p>}
      {error && <p class="bad">{error}</p>}
    </div>
  );
}

export interface Choice<T extends string> {
  value: T;
  label: string;
}

/** One of a few, all of them visible. */
export function Choices<T extends string>(props: {
  label: string;
  choices: Choice<T>[];
  value: T;
  onChange: (value: T) => void;
}): JSX.Element {
  return (
    <div class="choices" role="group" aria-label={props.label}>
      {props.choices.map((one) => (
        <button
          type="button"
          key={one.value}
          aria-pressed={one.value === props.value}
          onClick={() => props.onChange(one.value)}
        >
          {one.label}
        </button>
      ))}
    </div>
  );
}

/** A number with its name: what a page says first. */
export function Figure({
  name,
  children,
  note,
}: {
  name: string;
  children: ComponentChildren;
  note?: ComponentChildren;
}): JSX.Element {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        <b>{children}</b>
        {note && <span class="quiet"> {note}</span>}
      </dd>
    </div>
  );
}

/** The part of a whole as a bar; it says the same in words. */
export function Meter({ part, whole, label }: { part: Int; whole: Int; label: string }): JSX.Element {
  const share = Number(whole) > 0 ? Math.min(100, (100 * Number(part)) / Number(whole)) : 0;
  return (
    <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={label}>
      <rect width="100" height="6" class="meter-track" />
      <rect width={share} height="6" class="meter-fill" />
    </svg>
  );
}

interface SearchProps {
  label: string;
  value: string;
  placeholder?: string;
  class?: string;
  isWrong?: boolean;
  onInput: (value: string) => void;
}

/** The input that the key `/` goes to. */
export function Search(props: SearchProps): JSX.Element {
  return (
    <span class={`search-box ${props.class ?? ""}`}>
      <input
        type="search"
        data-search
        spellcheck={false}
        autocomplete="off"
        aria-label={props.label}
        aria-invalid={props.isWrong ?? false}
        placeholder={props.placeholder ?? props.label}
        value={props.value}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
      <kbd aria-hidden="true">/</kbd>
    </span>
  );
}
