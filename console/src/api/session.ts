/** The API key: in memory, or in session storage if the person says so. */
import { signal } from "@preact/signals";

const STORED = "tidelog.token";

export const token = signal(sessionStorage.getItem(STORED) ?? "");
export const isTokenStored = signal(sessionStorage.getItem(STORED) !== null);

/** Whether the service asks for a key, or refused the one it was sent. */
export const isAsked = signal(false);

export function setToken(text: string, isKept: boolean): void {
  token.value = text;
  isTokenStored.value = isKept && text !== "";
  isAsked.value = false;
  if (isTokenStored.value) sessionStorage.setItem(STORED, text);
  else sessionStorage.removeItem(STORED);
}
