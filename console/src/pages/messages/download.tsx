/** Messages as a file: those that are loaded, or everything that the look finds. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../../api/client";
import { Dialog } from "../../ui/dialog";
import { bytes, count } from "../../ui/format";
import { asProblem } from "../../ui/load";
import { Failure, Field } from "../../ui/parts";
import type { Column } from "./columns";
import { FORMATS, save, type FileFormat } from "./export";
import type { Message } from "./message";
import { openReader } from "./reader";
import type { Session } from "./session";

/** What a browser holds before it is saved. */
const MOST_BYTES = 1024 ** 3;
/** Messages that are written before the page draws again. */
const TOGETHER = 1000;

interface Progress {
  messages: number;
  bytes: number;
  scanned: number;
  total: number;
}

interface Props {
  topic: string;
  session: Session;
  columns: Column[];
  onClose: () => void;
}

export function Download({ topic, session, columns, onClose }: Props): JSX.Element {
  const loaded = session.messages.value;
  const [isAll, takeAll] = useState(false);
  const [format, choose] = useState<FileFormat>("ndjson");
  const [progress, tell] = useState<Progress | undefined>();
  const [problem, fail] = useState<Problem | undefined>();
  const [ended, end] = useState("");
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const isRunning = progress !== undefined && !ended && !problem;
  const run = async (): Promise<void> => {
    const { head, lines, type } = FORMATS[format];
    const parts: Blob[] = [new Blob([head(columns)])];
    const done: Progress = { messages: 0, bytes: 0, scanned: 0, total: 0 };
    const write = (messages: Message[]): void => {
      for (let from = 0; from < messages.length; from += TOGETHER) {
        const part = new Blob([lines(messages.slice(from, from + TOGETHER), columns)]);
        parts.push(part);
        done.bytes += part.size;
      }
      done.messages += messages.length;
      tell({ ...done });
    };
    const { signal } = stop.current;
    let why = "";
    fail(undefined);
    try {
      const { start, filter } = session.look;
      if (!isAll || start === "live") write(loaded);
      else {
        const reader = await openReader({ ...session.look, start }, signal);
        while (!reader.isExhausted && done.bytes < MOST_BYTES) {
          const found = (await reader.next(signal)).filter(filter);
          done.scanned = reader.scanned;
          done.total = reader.total;
          write(found);
          await new Promise((resolve) => setTimeout(resolve)); // let the page draw
          signal.throwIfAborted();
        }
        if (!reader.isExhausted) why = ` It ends at ${bytes(MOST_BYTES)}: narrow the filter, or copy the curl command.`;
        if (reader.gaps.length) why += ` ${count(reader.gaps.length)} damaged places were passed over.`;
      }
    } catch (error) {
      if (!signal.aborted) {
        fail(asProblem(error));
        return;
      }
      why = " It was stopped: the rest is not in the file.";
    }
    save(`${topic}.${format === "csv" ? "csv" : "ndjson"}`, new Blob(parts, { type }));
    end(`${count(done.messages)} messages are saved.${why}`);
  };
  return (
    <Dialog title={`Download messages of ${topic}`} onClose={onClose}>
      <fieldset disabled={progress !== undefined}>
        <label>
          <input type="radio" name="what" checked={!isAll} onChange={() => takeAll(false)} /> The {count(loaded.length)}{" "}
          that are loaded
        </label>
        <label>
          <input
            type="radio"
            name="what"
            checked={isAll}
            disabled={session.look.start === "live"}
            onChange={() => takeAll(true)}
          />{" "}
          Everything that this look finds, up to {bytes(MOST_BYTES)}
        </label>
        <Field label="Format" hint={FORMATS[format].hint}>
          {(id) => (
            <select id={id} value={format} onChange={(event) => choose(event.currentTarget.value as FileFormat)}>
              {Object.entries(FORMATS).map(([name, { label }]) => (
                <option key={name} value={name}>
                  {label}
                </option>
              ))}
            </select>
          )}
        </Field>
      </fieldset>
      {session.look.reading.hidden.length > 0 && (
        <p class="note">
          The service’s settings hide {session.look.reading.hidden.map((one) => one.title).join(", ")}: the file has •••
          there.
        </p>
      )}
      <Failure problem={problem} onRetry={() => void run()} />
      {progress && (
        <p role="status">
          {ended ||
            `${count(progress.messages)} messages, ${bytes(progress.bytes)}${progress.total ? `; ${count(progress.scanned)} of ${count(progress.total)} offsets are read` : ""}`}
        </p>
      )}
      <div class="actions">
        {isRunning ? (
          <button type="button" onClick={() => stop.current.abort()}>
            Stop, and save what is there
          </button>
        ) : (
          <button type="button" class="primary" disabled={ended !== ""} onClick={() => void run()}>
            Download
          </button>
        )}
      </div>
    </Dialog>
  );
}
