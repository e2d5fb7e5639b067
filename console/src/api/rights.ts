/** What the caller may do, by the scopes of its key: the page shows no button that would be refused. */
import { signal } from "@preact/signals";
import { get } from "./client";
import { token } from "./session";

/** The scopes of the caller as keys write them, `append:web-*`; undefined while they are not known. */
export const scopes = signal<string[] | undefined>(undefined);

type Verb = "read" | "append" | "admin";

/** Whether the caller may do this to a topic; without one, to any topic at all. */
export function may(verb: Verb, topic?: string): boolean {
  if (!scopes.value) return true;
  return scopes.value.some((scope) => {
    const [name, pattern = ""] = scope.split(/:(.*)/s);
    return name === verb && (topic === undefined || matches(pattern, topic));
  });
}

/** Patterns as scopes have them: a star stands for any characters. */
export function matches(pattern: string, topic: string): boolean {
  const literals = pattern.split("*").map((text) => text.replace(/[.\\+?^${}()|[\]]/g, "\\$&"));
  return new RegExp(`^${literals.join(".*")}$`, "s").test(topic);
}

/** Ask who the caller is, now and whenever the key changes. */
export function startRights(): void {
  token.subscribe(() => {
    get("/v1/caller").then(
      (caller) => (scopes.value = caller.scopes),
      () => (scopes.value = undefined),
    );
  });
}
