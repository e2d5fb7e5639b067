/** Data of a page: loaded, loaded again while it is looked at, and kept while the service is away. */
import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Problem } from "../api/client";
import { token } from "../api/session";

export interface Loaded<T> {
  data: T | undefined;
  error: Problem | undefined;
  /** Load now, for instance after a change. */
  again: () => void;
}

const RETRY_MS = 2000;
/** What takes the service long is asked for so many times less often. */
const COST_TIMES = 20;

export const isReachable = signal(true);

/** Return an error as a Problem; a fault of the page itself is not hidden. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  console.error(error);
  return new Problem(0, "console_fault", "The console has a fault", String(error));
}

/**
 * Call `load` when `key` changes, and then every `everyMs` while the page is visible.
 * What was loaded stays when a later call fails; the error is beside it.
 */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>, everyMs = 0): Loaded<T> {
  const data = useSignal<T | undefined>(undefined);
  const error = useSignal<Problem | undefined>(undefined);
  const latest = useRef(load);
  const wake = useRef<() => void>(() => undefined);
  latest.current = load;
  const credentials = token.value;
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isRunning = false;
    data.value = undefined;
    error.value = undefined;
    const run = async (): Promise<void> => {
      if (isRunning || stop.signal.aborted) return;
      isRunning = true;
      clearTimeout(timer);
      const began = performance.now();
      try {
        const loaded = await latest.current(stop.signal);
        // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- aborted while it waited
        if (stop.signal.aborted) return;
        data.value = loaded;
        error.value = undefined;
        isReachable.value = true;
      } catch (failure) {
        // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- aborted while it waited
        if (stop.signal.aborted) return;
        error.value = asProblem(failure);
        if (error.value.code === "unreachable") isReachable.value = false;
      } finally {
        isRunning = false;
      }
      const isAway = error.value?.code === "unreachable" || error.value?.status === 503;
      const leastMs = Math.max(everyMs, COST_TIMES * (performance.now() - began));
      // what the key may not see it may not see later: another key begins anew, and so does the button
      if (error.value?.status === 403) return;
      const wait = isAway ? Math.max(leastMs, RETRY_MS) : everyMs && leastMs;
      if (wait && !document.hidden) timer = setTimeout(() => void run(), wait);
    };
    const shown = (): void => {
      if (!document.hidden && everyMs) void run();
    };
    wake.current = () => void run();
    document.addEventListener("visibilitychange", shown);
    void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [key, everyMs, credentials]);
  return { data: data.value, error: error.value, again: () => wake.current() };
}
