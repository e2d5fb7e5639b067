/** What one look at a topic found: messages, progress, and how to go on; a new look is a new session. */
import { signal } from "@preact/signals";
import type { Problem } from "../../api/client";
import { asProblem } from "../../ui/load";
import type { Filter } from "./filter";
import { LiveTail } from "./live";
import type { Message } from "./message";
import { openReader, type Reader, type Start } from "./reader";

/** One step of a search: so many matches, then the person scrolls or says go on. */
const STEP_MATCHES = 200;
/** Found messages are kept up to here; a narrower filter shows the others. */
export const MOST_FOUND = 50_000;
const SHOW_EVERY_MS = 100;

export type State = "reading" | "paused" | "stopped" | "done" | "full" | "failed" | "live" | "held";

export interface Look {
  topic: string;
  partition: number | undefined;
  start: Start | "live";
  filter: Filter;
}

export class Session {
  readonly messages = signal<Message[]>([]);
  readonly state = signal<State>("reading");
  readonly scanned = signal(0);
  readonly total = signal(0);
  readonly problem = signal<Problem | undefined>(undefined);
  #found: Message[] = [];
  #held: Message[] = [];
  #reader: Reader | undefined;
  #tail: LiveTail | undefined;
  #stop = new AbortController();

  constructor(readonly look: Look) {
    if (look.start === "live") this.#follow();
    else void this.more();
  }

  /** Read on until a step's worth of matches is found, all is read, or someone stops it. */
  async more(): Promise<void> {
    const { start, topic, partition, filter } = this.look;
    if (start === "live" || (this.#reader && this.state.value === "reading")) return;
    if (["done", "full"].includes(this.state.value)) return;
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.state.value = "reading";
    this.problem.value = undefined;
    try {
      this.#reader ??= await openReader(topic, partition, start, signal);
      const wanted = this.#found.length + STEP_MATCHES;
      let shownAt = performance.now();
      while (!this.#reader.isExhausted && this.#found.length < Math.min(wanted, MOST_FOUND)) {
        for (const message of await this.#reader.next(signal)) if (filter(message)) this.#found.push(message);
        if (performance.now() - shownAt < SHOW_EVERY_MS) continue;
        this.#show();
        await new Promise((resolve) => setTimeout(resolve)); // let the page draw
        shownAt = performance.now();
        signal.throwIfAborted();
      }
      this.state.value = this.#reader.isExhausted ? "done" : this.#found.length >= MOST_FOUND ? "full" : "paused";
    } catch (error) {
      if (signal.aborted) return;
      this.problem.value = asProblem(error);
      this.state.value = "failed";
    } finally {
      this.#show();
    }
  }

  /** Stop reading; `more` goes on from the same place. */
  halt(): void {
    this.#stop.abort();
    if (this.state.value === "reading") this.state.value = "stopped";
  }

  /** Hold the display of a live tail; what comes meanwhile is counted, and kept up to the bound. */
  hold(): void {
    this.state.value = this.state.value === "held" ? "live" : "held";
    if (this.state.value === "live") this.messages.value = this.#held;
  }

  close(): void {
    this.#stop.abort();
    this.#tail?.stop();
  }

  #show(): void {
    this.messages.value = [...this.#found];
    this.scanned.value = this.#reader?.scanned ?? 0;
    this.total.value = this.#reader?.total ?? 0;
  }

  #follow(): void {
    const { topic, partition, filter } = this.look;
    this.state.value = "live";
    this.#tail = new LiveTail(topic, partition, filter, ({ messages, received, problem }) => {
      this.problem.value = problem;
      this.scanned.value = received;
      this.#held = messages;
      if (this.state.value !== "held") this.messages.value = messages;
    });
  }
}
