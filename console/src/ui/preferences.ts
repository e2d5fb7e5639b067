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

/** Apply the theme now and whenever it changes. */
export function startTheme(): void {
  effect(() => {
    document.documentElement.style.colorScheme = theme.value === "system" ? "" : theme.value;
  });
}
