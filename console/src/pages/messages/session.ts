/** What one look at a topic found: messages, progress, and how to go on; a new look is a new session. */
import { signal } from "@preact/signals";
import type { Problem } from "../../api/client";
import { asProblem } from "../../ui/load";
import { LiveTail } from "./live";
import type { Message } from "./message";
import type { Pushed } from "./pushed";
import type { Reading } from "./reading";
import { openReader, type Gap, type Isolation, type Reader, type Start } from "./reader";

/** One step of a search: so many matches, then the person scrolls or says go on. */
const STEP_MATCHES = 200;
const STEP_BYTES = 4 * 1024 * 1024;
/** Found messages are kept up to here; a narrower filter shows the others. */
export const MOST_FOUND = 50_000;
const MOST_FOUND_BYTES = 256 * 1024 * 1024;
const SHOW_EVERY_MS = 100;

export type State = "reading" | "paused" | "stopped" | "done" | "full" | "failed" | "live" | "held";

export interface Look {
  topic: string;
  partition: number | undefined;
  start: Start | "live";
  isolation: Isolation;
  filter: (message: Message) => boolean;
  /** What of the filter the service evaluates. */
  pushed: Pushed;
  reading: Reading;
}

export class Session {
  readonly messages = signal<Message[]>([]);
  readonly state = signal<State>("reading");
  readonly scanned = signal(0);
  readonly total = signal(0);
  readonly problem = signal<Problem | undefined>(undefined);
  /** Of a live tail: whether records would arrive now. */
  readonly isConnected = signal(false);
  /** What could not be read and was passed over. */
  readonly gaps = signal<Gap[]>([]);
  #found: Message[] = [];
  #foundBytes = 0;
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
    const { start, filter } = this.look;
    if (start === "live" || (this.#reader && this.state.value === "reading")) return;
    if (["done", "full"].includes(this.state.value)) return;
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.state.value = "reading";
    this.problem.value = undefined;
    try {
      this.#reader ??= await openReader({ ...this.look, start }, signal);
      const wanted = this.#found.length + STEP_MATCHES;
      const wantedBytes = this.#foundBytes + STEP_BYTES;
      const isSought = this.look.pushed.filter !== "" && this.#reader.cursors.length > 1;
      let shownAt = 0;
      while (
        !this.#reader.isExhausted &&
        !this.#isFull &&
        this.#found.length < wanted &&
        this.#foundBytes < wantedBytes
      ) {
        for (const message of await this.#reader.next(signal)) {
          if (!filter(message)) continue;
          this.#found.push(message);
          this.#foundBytes += message.storedBytes;
        }
        if (isSought)
          this.#found.sort(
            start.from === "newest"
              ? (a, b) => Number(b.timestamp) - Number(a.timestamp)
              : (a, b) => Number(a.timestamp) - Number(b.timestamp),
          );
        if (performance.now() - shownAt < SHOW_EVERY_MS) continue;
        this.#show();
        await new Promise((resolve) => setTimeout(resolve)); // let the page draw
        shownAt = performance.now();
        signal.throwIfAborted();
      }
      this.state.value = this.#reader.isExhausted ? "done" : this.#isFull ? "full" : "paused";
    } catch (error) {
      if (signal.aborted) return;
      this.problem.value = asProblem(error);
      this.state.value = "failed";
    } finally {
      this.#show();
    }
  }

  get #isFull(): boolean {
    return this.#found.length >= MOST_FOUND || this.#foundBytes >= MOST_FOUND_BYTES;
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
    this.gaps.value = [...(this.#reader?.gaps ?? [])];
  }

  #follow(): void {
    this.state.value = "live";
    this.#tail = new LiveTail(this.look, ({ messages, received, problem, isConnected }) => {
      this.isConnected.value = isConnected;
      this.problem.value = problem;
      this.scanned.value = received;
      this.#held = messages;
      if (this.state.value !== "held") this.messages.value = messages;
    });
  }
}
