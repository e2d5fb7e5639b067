/** Explain: ask where an offset lies, and follow the read through the files. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, send, urlOf, type Problem } from "../../api/client";
import { asProblem } from "../../ui/load";
import { Failure } from "../../ui/parts";
import { log, toOffset } from "../../routes";
import { count } from "../../ui/format";
import { typedOffset } from "./effects";
import { parseExplanation, steps, type ReadPath } from "./explain";
import type { LogFacts } from "./load";

interface ExplainProps {
  topic: string;
  partition: number;
  facts: LogFacts;
  path: ReadPath | undefined;
  wanted: bigint | undefined;
  onPath: (path: ReadPath | undefined) => void;
}

const BATCHES = "/v1/topics/{topic}/partitions/{partition}/batches";

async function pathOf(topic: string, partition: number, offset: bigint): Promise<ReadPath | null> {
  const response = await send(urlOf(BATCHES, { topic, partition }, { offset, max_bytes: 1, explain: true }));
  const size = (await response.arrayBuffer()).byteLength;
  const first = BigInt(response.headers.get("log-first-offset") ?? offset);
  const next = BigInt(response.headers.get("log-next-offset") ?? offset);
  return parseExplanation(response.headers.get("log-explain"), { first, next, bytes: size });
}

/** The offset that a person means: a number, or a time. */
async function offsetOf(topic: string, partition: number, text: string, facts: LogFacts): Promise<bigint | undefined> {
  const offset = typedOffset(text, facts.logStart, facts.logEnd);
  if (offset !== undefined) return offset;
  const time = Date.parse(text);
  if (Number.isNaN(time) || /^\d+$/.test(text)) return undefined;
  const found = await get("/v1/topics/{topic}/partitions/{partition}/offset-at", {
    path: { topic, partition },
    query: { timestamp: String(time) },
  });
  return found.offset === null ? facts.highWatermark : BigInt(found.offset);
}

export function Explain({ topic, partition, facts, path, wanted, onPath }: ExplainProps): JSX.Element {
  const [text, write] = useState(wanted === undefined ? "" : String(wanted));
  const [fault, complain] = useState("");
  const [problem, fail] = useState<Problem | undefined>();
  const follow = async (offset: bigint): Promise<void> => {
    fail(undefined);
    try {
      const found = await pathOf(topic, partition, offset);
      complain(found ? "" : `Nothing is stored at ${count(offset)} yet: a read waits there for the next commit.`);
      onPath(found ?? undefined);
    } catch (error) {
      fail(asProblem(error));
      onPath(undefined);
    }
  };
  useEffect(() => {
    write(wanted === undefined ? "" : String(wanted));
    if (wanted !== undefined) void follow(wanted);
  }, [wanted]);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      const offset = await offsetOf(topic, partition, text.trim(), facts);
      if (offset === undefined)
        complain(
          `Type an offset from ${count(facts.logStart)} to ${count(facts.logEnd)}, or a time such as 2026-11-23 14:00.`,
        );
      else if (offset === wanted) await follow(offset);
      else log.change({ offset }, "push");
    } catch (error) {
      fail(asProblem(error));
    }
  };
  return (
    <div class="explain">
      <form class="bar" onSubmit={(event) => void submit(event)}>
        <label for="explain-offset">Explain a read from</label>
        <input
          id="explain-offset"
          data-search
          autocomplete="off"
          placeholder="offset, or time"
          value={text}
          onInput={(event) => write(event.currentTarget.value)}
          aria-describedby="explain-fault"
        />
        <button type="submit">Explain</button>
        {wanted !== undefined && path && <a href={toOffset(topic, partition, wanted)}>Read from there</a>}
      </form>
      <p id="explain-fault" class="hint" role="status">
        {fault}
      </p>
      <Failure problem={problem} />
      {wanted !== undefined && path && (
        <ol class="steps">
          {steps(wanted, path).map((step) => (
            <li key={step}>{step}</li>
          ))}
        </ol>
      )}
    </div>
  );
}
