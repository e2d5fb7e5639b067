/** The address as state: a signal of path and query, links without reload. */
import { PREFIX } from "../place";
import { signal } from "@preact/signals";

const BASE = `${PREFIX}/console`;

export interface Route {
  /** Decoded parts of the path below /console/. */
  parts: string[];
  query: URLSearchParams;
}

function current(): Route {
  const path = location.pathname.slice(BASE.length);
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: new URLSearchParams(location.search),
  };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal(current());

addEventListener("popstate", () => (route.value = current()));

/** The address of a page: `href(["topics", name], { tab: "log" })`. */
export function href(parts: string[], query: Record<string, string | undefined> = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) asked.set(name, value);
  const path = [BASE, ...parts.map(encodeURIComponent)].join("/") + (parts.length ? "" : "/");
  return asked.size ? `${path}?${asked}` : path;
}

/** Go to a page of the console; `replace` leaves no entry in the history. */
export function go(url: string, how: "push" | "replace" = "push"): void {
  if (how === "push") history.pushState(null, "", url);
  else history.replaceState(null, "", url);
  const before = route.value;
  route.value = current();
  if (before.parts.join("/") !== route.value.parts.join("/")) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

/** Change parameters of the current page; empty ones leave. */
export function setQuery(changes: Record<string, string | undefined>, how: "push" | "replace" = "replace"): void {
  const query = Object.fromEntries(route.value.query);
  go(href(route.value.parts, { ...query, ...(changes as Record<string, string>) }), how);
}

/** Links of the console load nothing; a click with a modifier is the browser's. */
export function followLinks(root: HTMLElement): void {
  root.addEventListener("click", (event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
