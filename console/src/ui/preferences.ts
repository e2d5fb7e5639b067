/** How a person wants pages to look: kept in the browser, and nowhere else. */
import { effect, signal, type Signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export type Zone = "local" | "UTC";

/** What the browser keeps under a name; null if there is nothing, or it keeps nothing for this page. */
function stored(name: string): string | null {
  try {
    return localStorage.getItem(`tidelog.${name}`);
  } catch {
    return null;
  }
}

/** Keep it as far as the browser does; null forgets it. */
function store(name: string, text: string | null): void {
  try {
    if (text === null) localStorage.removeItem(`tidelog.${name}`);
    else localStorage.setItem(`tidelog.${name}`, text);
  } catch {
    // it lasts until the page is closed
  }
}

/** A choice that outlasts the page; the first one says nothing, and leaves nothing. */
function kept<const T extends string>(name: string, ...choices: [T, ...T[]]): Signal<T> {
  const before = stored(name);
  const chosen = signal(choices.find((one) => one === before) ?? choices[0]);
  effect(() => {
    store(name, chosen.value === choices[0] ? null : chosen.value);
  });
  return chosen;
}

export const theme = kept<Theme>("theme", "system", "light", "dark");
/** In which zone times are written; the other one is a hover away. */
export const zone = kept<Zone>("zone", "local", "UTC");

const DETAIL_PERCENT = 42;
/** How much of the width one message takes. */
export const detailPercent = signal(Number(stored("detail")) || DETAIL_PERCENT);
effect(() => {
  store("detail", detailPercent.value === DETAIL_PERCENT ? null : String(detailPercent.value));
});

/** What is kept of a look at a topic. */
export interface View {
  columns: string;
  filter: string;
}

const views = signal(storedViews());

function storedViews(): Record<string, Record<string, View>> {
  try {
    return JSON.parse(stored("views") ?? "{}") as Record<string, Record<string, View>>;
  } catch {
    return {};
  }
}

/** The views of a topic by their names. */
export function viewsOf(topic: string): Record<string, View> {
  return views.value[topic] ?? {};
}

export function saveView(topic: string, name: string, view: View): void {
  change(topic, { ...viewsOf(topic), [name]: view });
}

export function forgetView(topic: string, name: string): void {
  change(topic, Object.fromEntries(Object.entries(viewsOf(topic)).filter(([one]) => one !== name)));
}

function change(topic: string, to: Record<string, View>): void {
  views.value = { ...views.value, [topic]: to };
  store("views", JSON.stringify(views.value));
}

/** Apply the theme now and whenever it changes. */
export function startTheme(): void {
  effect(() => {
    document.documentElement.style.colorScheme = theme.value === "system" ? "" : theme.value;
  });
}
