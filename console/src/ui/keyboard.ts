/**
 * Keys that work on every page: `/` searches, `g` and a letter go to a page, arrows move in lists, also from the
 * search above one; Enter opens the first that a search leaves, and Escape closes what is open beside a list.
 */
import { groups, overview, service, subscriptions, topics } from "../routes";
import { go } from "./router";

const PAGES: Record<string, string> = {
  o: overview.link([]),
  t: topics.link([]),
  g: groups.link([]),
  p: subscriptions.link([]),
  s: service.link([""]),
};

let isGoing = false;

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** The list that a key means: the one around the focus, else the page's first. */
function listFor(event: KeyboardEvent): Element | null {
  const around = event.target instanceof Element ? event.target.closest("[data-list]") : null;
  return around ?? document.querySelector("main [data-list]");
}

function moveInList(event: KeyboardEvent): boolean {
  const list = listFor(event);
  if (!list || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return false;
  const isElsewhere =
    event.target instanceof Element &&
    event.target.closest("svg, .shown, table, nav, [role=group]") !== null &&
    !list.contains(event.target);
  if (isElsewhere) return false; // that moves or scrolls by itself
  const rows = [...list.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.findIndex((row) => row.contains(event.target as Node));
  const next = rows[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (!next) return false;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

/** Keys in a search: down into the list; Enter opens its first row, if the search is no form. */
function leaveSearch(event: KeyboardEvent): boolean {
  const search = event.target as HTMLElement;
  if (!search.matches("[data-search]")) return false;
  if (event.key === "ArrowDown") return moveInList(event);
  if (event.key !== "Enter" || search.closest("form")) return false;
  const first = document.querySelector<HTMLElement>("main [data-list] a[data-row]");
  first?.click();
  return first !== null;
}

/** Close what is open beside a list, and go back to the row that opened it. */
function closeBeside(): boolean {
  const close = document.querySelector<HTMLElement>("main [data-close]");
  const row = document.querySelector<HTMLElement>('main [data-row][aria-pressed="true"]');
  close?.click();
  row?.focus();
  return close !== null;
}

export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") (event.target as HTMLElement).blur();
      else if (leaveSearch(event)) event.preventDefault();
      return;
    }
    const page = isGoing ? PAGES[event.key] : undefined;
    isGoing = event.key === "g" && !page;
    if (page) go(page);
    else if (event.key === "/") document.querySelector<HTMLElement>("[data-search]")?.focus();
    else if (event.key === "Escape" ? !closeBeside() : !moveInList(event)) return;
    event.preventDefault();
  });
}
