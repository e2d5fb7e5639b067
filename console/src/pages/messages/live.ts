/** The live tail: what is committed from now on, in a buffer of bounded size. */
import { Problem, send, urlOf, type Schemas } from "../../api/client";
import { parseJson } from "../../api/json";
import { eventsOf } from "../../api/sse";
import { asProblem } from "../../ui/load";
import type { Message } from "./message";
import { messageOf } from "./reading";
import type { Look } from "./session";

/** So many messages are kept; older ones leave the page. */
export const KEPT_MESSAGES = 5000;
/** So many more are held before old ones are cut off, because a cut copies the rest. */
const SLACK = 250;
const RECONNECT_MS = 1000;
/** The service sends something every 15 seconds (`tail_heartbeat_ms`): after three times that, the connection is dead. */
const SILENCE_MS = 45_000;

export interface LiveState {
  messages: Message[];
  received: number;
  problem: Problem | undefined;
  /** Whether records would arrive now. */
  isConnected: boolean;
}

/** Follows a topic until it is stopped; `onChange` is called at most once a frame. */
export class LiveTail {
  #messages: Message[] = [];
  #received = 0;
  #problem: Problem | undefined;
  #isConnected = false;
  #lastEventId = "";
  #frame = 0;
  readonly #stop = new AbortController();

  constructor(
    readonly look: Pick<Look, "topic" | "partition" | "isolation" | "filter" | "pushed" | "reading">,
    readonly onChange: (state: LiveState) => void,
  ) {
    void this.#run();
  }

  stop(): void {
    this.#stop.abort();
    cancelAnimationFrame(this.#frame);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let isOver: boolean;
      try {
        isOver = await this.#follow(signal);
      } catch (error) {
        // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- aborted while it waited
        if (signal.aborted) return;
        const isLost = error instanceof TypeError || error instanceof DOMException; // as fetch reports a broken stream
        this.#problem = isLost
          ? new Problem(0, "unreachable", "The connection was lost", "The console connects again by itself.")
          : asProblem(error);
        const { status } = this.#problem;
        isOver = status >= 400 && status < 500 && status !== 429;
      }
      this.#isConnected = false;
      this.#changed();
      if (isOver) return;
      await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    }
  }

  /** Follow one connection; true if another would end the same way. */
  async #follow(signal: AbortSignal): Promise<boolean> {
    const { topic, partition, isolation, pushed } = this.look;
    const chosen = partition ?? pushed.partition;
    const base = chosen === undefined ? "/v1/topics/{topic}/tail" : "/v1/topics/{topic}/partitions/{partition}/tail";
    const url = urlOf(
      base,
      { topic, partition: chosen },
      {
        offset: "latest",
        encoding: "base64",
        offsets: "string",
        on_out_of_range: "earliest",
        isolation,
        filter: pushed.filter,
      },
    );
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#lastEventId) headers["last-event-id"] = this.#lastEventId;
    const silence = new AbortController();
    const listen = (): ReturnType<typeof setTimeout> => setTimeout(() => silence.abort(), SILENCE_MS);
    let timer = listen();
    const response = await send(url, {
      headers,
      signal: AbortSignal.any([signal, silence.signal]),
    });
    this.#problem = undefined;
    this.#isConnected = true;
    this.#changed();
    try {
      for await (const events of eventsOf(response)) {
        clearTimeout(timer);
        timer = listen();
        for (const { event, id, data } of events) {
          if (id) this.#lastEventId = id;
          if (event === "records") this.#take(data);
          else if (event === "end" && !(parseJson(data) as Schemas["TailEnd"]).retryable) return true;
        }
      }
    } finally {
      clearTimeout(timer);
    }
    return false;
  }

  #take(data: string): void {
    const page = JSON.parse(data) as Schemas["RecordPageWithStringOffsets"];
    for (const record of page.records) {
      this.#received += 1;
      const message = messageOf(page.partition, record, this.look.reading);
      if (this.look.filter(message)) this.#messages.push(message);
    }
    if (this.#messages.length > KEPT_MESSAGES + SLACK) this.#messages = this.#messages.slice(-KEPT_MESSAGES);
    this.#changed();
  }

  #changed(): void {
    if (this.#frame || this.#stop.signal.aborted) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const messages = this.#messages.slice(-KEPT_MESSAGES).reverse();
      this.onChange({
        messages,
        received: this.#received,
        problem: this.#problem,
        isConnected: this.#isConnected,
      });
    });
  }
}
