/** Which parts of the console may know which: no page leads back to itself through another. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { expect, test } from "vitest";

const SOURCES = join(import.meta.dirname, "..", "src");
const IMPORT = /^(?:import|export)\s[^;]*?from\s+"(\.[^"]+)"/gms;

/** The folder of a page, or the layer below the pages. */
const partOf = (path: string): string =>
  path
    .split(sep)
    .slice(0, path.startsWith("pages") ? 2 : 1)
    .join("/");

const known = new Map<string, Set<string>>();
for (const name of readdirSync(SOURCES, { recursive: true, encoding: "utf8" })) {
  if (!/\.tsx?$/.test(name) || name.endsWith(".d.ts") || !name.includes(sep)) continue;
  const part = partOf(name);
  const found = known.get(part) ?? new Set();
  known.set(part, found);
  for (const [, to = ""] of readFileSync(join(SOURCES, name), "utf8").matchAll(IMPORT)) {
    const other = partOf(relative(SOURCES, join(SOURCES, dirname(name), to)));
    if (other !== part) found.add(other);
  }
}

function isReached(from: string, wanted: string, seen = new Set<string>()): boolean {
  for (const next of known.get(from) ?? []) {
    if (next === wanted) return true;
    if (seen.has(next)) continue;
    seen.add(next);
    if (isReached(next, wanted, seen)) return true;
  }
  return false;
}

test("every part is looked at, and none leads back to itself", () => {
  expect(known.size).toBeGreaterThan(10);
  expect([...known.keys()].filter((part) => isReached(part, part))).toEqual([]);
});

test("nothing below the pages knows a page", () => {
  for (const part of ["api", "ui"])
    expect([...(known.get(part) ?? [])].filter((other) => other.startsWith("pages"))).toEqual([]);
});
