/** Numbers, bytes and times as people read them. */
import type { Int } from "../api/client";
import { zone } from "./preferences";

const INTEGERS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** A whole number in groups of three, exact whatever its size. */
export function count(value: Int): string {
  return INTEGERS.format(value);
}

/** A number with its noun: `1 topic`, `2 topics`. */
export function counted(value: Int, noun: string): string {
  return `${count(value)} ${noun}${Number(value) === 1 ? "" : "s"}`;
}

/** How many a second: whole numbers in groups, a fraction only of small ones. */
export function rate(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value > 0 && value < 0.01) return "< 0.01";
  return value < 100 ? trimmed(value) : count(value);
}

/** Bytes in binary units, three significant digits. */
export function bytes(value: Int): string {
  let size = Number(value);
  let unit = 0;
  while (Math.abs(size) >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(size) : trimmed(size)} ${UNITS[unit]}`;
}

function trimmed(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace(/\.0+$|(\.\d*[1-9])0+$/, "$1");
}

/** A duration in the two units that say most; Kafka's "forever" is said in words. */
export function duration(ms: Int): string {
  const long = BigInt(ms);
  if (long < 0n || long >= 9223372036854775807n) return "forever";
  const value = Number(long);
  if (value < 1000) return `${trimmed(value)} ms`;
  const parts: [number, string][] = [
    [Math.floor(value / 86_400_000), "d"],
    [Math.floor(value / 3_600_000) % 24, "h"],
    [Math.floor(value / 60_000) % 60, "min"],
  ];
  const first = parts.findIndex(([size]) => size > 0);
  if (first < 0) return `${trimmed(value / 1000)} s`;
  const shown = [...parts, [Math.floor(value / 1000) % 60, "s"] as [number, string]].slice(first, first + 2);
  return shown
    .filter(([size]) => size > 0)
    .map(([size, unit]) => `${size} ${unit}`)
    .join(" ");
}

/** Seconds of a latency. */
export function latency(seconds: number | null): string {
  if (seconds === null) return "–";
  if (seconds >= 1) return `${trimmed(seconds)} s`;
  return seconds >= 0.001 ? `${trimmed(seconds * 1000)} ms` : `${trimmed(seconds * 1e6)} µs`;
}

const pad = (value: number, width = 2): string => String(value).padStart(width, "0");

/** Date and time to the millisecond in the zone that was chosen; an impossible time is shown as its number. */
export function shownTime(ms: Int): string {
  return zone.value === "UTC" ? utcTime(ms).replace("T", " ") : localTime(ms);
}

/** The same in this machine's zone. */
export function localTime(ms: Int): string {
  const time = new Date(Number(ms));
  if (Number.isNaN(time.getTime())) return String(ms);
  const date = `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
  return `${date} ${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}.${pad(time.getMilliseconds(), 3)}`;
}

export function utcTime(ms: Int): string {
  const time = new Date(Number(ms));
  return Number.isNaN(time.getTime()) ? String(ms) : time.toISOString();
}

const YEAR_MS = 365.25 * 86_400_000;

/** How long ago, or ahead, in one unit. */
export function relativeTime(ms: Int, now = Date.now()): string {
  const distance = now - Number(ms);
  const size = Math.abs(distance);
  if (size < 1000) return "now";
  const units: [number, string][] = [
    [YEAR_MS, "y"],
    [86_400_000, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
  ];
  const [length, unit] = units.find(([one]) => size >= one) ?? [1000, "s"];
  const text = `${Math.floor(size / length)} ${unit}`;
  return distance >= 0 ? `${text} ago` : `in ${text}`;
}

/** A part of a whole, without pretending to precision. */
export function percent(part: Int, whole: Int): string {
  const all = Number(whole);
  if (all === 0) return "0 %";
  const share = (100 * Number(part)) / all;
  return share > 0 && share < 0.1 ? "< 0.1 %" : `${trimmed(share)} %`;
}

/** What an error says. */
export function whyOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
