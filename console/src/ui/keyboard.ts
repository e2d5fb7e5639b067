/** Keys that work on every page: `/` searches, `g` and a letter go to a page, arrows move in lists. */
import { groups, overview, service, topics } from "../routes";
import { go } from "./router";

const PAGES: Record<string, string> = { o: overview.link([]), t: topics.link([]), g: groups.link([]), s: service.link([""]) };

let isGoing = false;

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function moveInList(event: KeyboardEvent): boolean {
  const list = event.target instanceof Element ? event.target.closest("[data-list]") : null;
  if (!list || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return false;
  const rows = [...list.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.findIndex((row) => row.contains(event.target as Node));
  const next = rows[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (!next) return false;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") (event.target as HTMLElement).blur();
      return;
    }
    const page = isGoing ? PAGES[event.key] : undefined;
    isGoing = event.key === "g" && !page;
    if (page) go(page);
    else if (event.key === "/") document.querySelector<HTMLElement>("[data-search]")?.focus();
    else if (!moveInList(event)) return;
    event.preventDefault();
  });
}
