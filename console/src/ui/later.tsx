/** Parts of the console that are fetched when they are shown, or when the browser has nothing else to do. */
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { signal } from "@preact/signals";
import { Problem } from "../api/client";
import { Failure } from "./parts";

const loaders: (() => void)[] = [];

/** A component that shows nothing until its script is there, and says so if it cannot be fetched. */
export function later<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  const found = signal<ComponentType<P> | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  const fetchIt = (): void => {
    problem.value = undefined;
    load().then(
      (view) => (found.value = view),
      () => {
        problem.value = new Problem(
          0,
          "not_loaded",
          "This part of the console could not be fetched",
          "The service does not answer, or it was upgraded since the page was loaded: load the page again.",
        );
      },
    );
  };
  loaders.push(fetchIt);
  return function Later(props: P): JSX.Element {
    useEffect(() => {
      if (!found.value) fetchIt();
    }, []);
    const View = found.value;
    return View ? <View {...props} /> : <Failure problem={problem.value} onRetry={fetchIt} />;
  };
}

/** Fetch what is not there yet, so that a page opens at once, also while the service is away. */
export function fetchTheRest(): void {
  for (const load of loaders) load();
}
