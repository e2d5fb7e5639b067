/** The live tail: what is committed from now on, in a buffer of bounded size. */
import { send, urlOf, type Problem, type Schemas } from "../../api/client";
import { parseJson } from "../../api/json";
import { eventsOf } from "../../api/sse";
import { asProblem } from "../../ui/load";
import type { Filter } from "./filter";
import { Message } from "./message";

/** So many messages are kept; older ones leave the page. */
export const KEPT_MESSAGES = 5000;
/** So many more are held before old ones are cut off, because a cut copies the rest. */
const SLACK = 250;
const RECONNECT_MS = 1000;

export interface LiveState {
  messages: Message[];
  received: number;
  problem: Problem | undefined;
}

/** Follows a topic until it is stopped; `onChange` is called at most once a frame. */
export class LiveTail {
  #messages: Message[] = [];
  #received = 0;
  #problem: Problem | undefined;
  #lastEventId = "";
  #frame = 0;
  readonly #stop = new AbortController();

  constructor(
    readonly topic: string,
    readonly partition: number | undefined,
    readonly filter: Filter,
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
      let isOver = false;
      try {
        isOver = await this.#follow(signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#problem = asProblem(error);
        const { status } = this.#problem;
        isOver = status >= 400 && status < 500 && status !== 429;
      }
      this.#changed();
      if (isOver) return;
      await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    }
  }

  /** Follow one connection; true if another would end the same way. */
  async #follow(signal: AbortSignal): Promise<boolean> {
    const base = this.partition === undefined ? "/v1/topics/{topic}/tail" : "/v1/topics/{topic}/partitions/{partition}/tail";
    const path = { topic: this.topic, partition: this.partition };
    const url = urlOf(base, path, { offset: "latest", encoding: "base64", offsets: "string", on_out_of_range: "earliest" });
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#lastEventId) headers["last-event-id"] = this.#lastEventId;
    const response = await send(url, { headers, signal });
    this.#problem = undefined;
    this.#changed();
    for await (const events of eventsOf(response)) {
      for (const { event, id, data } of events) {
        if (id) this.#lastEventId = id;
        if (event === "records") this.#take(data);
        else if (event === "end" && !(parseJson(data) as Schemas["TailEnd"]).retryable) return true;
      }
    }
    return false;
  }

  #take(data: string): void {
    const page = JSON.parse(data) as Schemas["RecordPageWithStringOffsets"];
    for (const record of page.records) {
      this.#received += 1;
      const message = new Message(page.partition, record);
      if (this.filter(message)) this.#messages.push(message);
    }
    if (this.#messages.length > KEPT_MESSAGES + SLACK) this.#messages = this.#messages.slice(-KEPT_MESSAGES);
    this.#changed();
  }

  #changed(): void {
    if (this.#frame || this.#stop.signal.aborted) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const messages = this.#messages.slice(-KEPT_MESSAGES).reverse();
      this.onChange({ messages, received: this.#received, problem: this.#problem });
    });
  }
}
