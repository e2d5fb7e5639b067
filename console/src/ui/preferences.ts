/** How a person wants pages to look: kept in the browser, and nowhere else. */
import { effect, signal, type Signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export type Zone = "local" | "UTC";

/** A choice that outlasts the page, as far as the browser keeps anything; the first one says nothing. */
function kept<const T extends string>(name: string, ...choices: [T, ...T[]]): Signal<T> {
  const key = `tidelog.${name}`;
  let stored: string | null = null;
  try {
    stored = localStorage.getItem(key);
  } catch {
    // the browser keeps nothing for this page
  }
  const chosen = signal(choices.find((one) => one === stored) ?? choices[0]);
  effect(() => {
    const { value } = chosen;
    try {
      if (value === choices[0]) localStorage.removeItem(key);
      else localStorage.setItem(key, value);
    } catch {
      // as above
    }
  });
  return chosen;
}

export const theme = kept<Theme>("theme", "system", "light", "dark");
/** In which zone times are written; the other one is a hover away. */
export const zone = kept<Zone>("zone", "local", "UTC");

const DETAIL = "tidelog.detail";
/** How much of the width one message takes. */
export const detailPercent = signal(storedPercent());
effect(() => {
  try {
    localStorage.setItem(DETAIL, String(detailPercent.value));
  } catch {
    // kept until the page is closed
  }
});

function storedPercent(): number {
  try {
    return Number(localStorage.getItem(DETAIL)) || 42;
  } catch {
    return 42;
  }
}

/** What is kept of a look at a topic. */
export interface View {
  columns: string;
  filter: string;
}

const VIEWS = "tidelog.views";
const views = signal<Record<string, Record<string, View>>>(stored());

function stored(): Record<string, Record<string, View>> {
  try {
    return JSON.parse(localStorage.getItem(VIEWS) ?? "{}") as Record<string, Record<string, View>>;
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
  try {
    localStorage.setItem(VIEWS, JSON.stringify(views.value));
  } catch {
    // kept until the page is closed
  }
}

/** Apply the theme now and whenever it changes. */
export function startTheme(): void {
  effect(() => {
    document.documentElement.style.colorScheme = theme.value === "system" ? "" : theme.value;
  });
}
