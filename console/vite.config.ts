import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const OUT = "../app/api/console/static";

/** Writes each file of the build a second and third time, as .br and .gz: the service compresses nothing itself. */
function compressed(): Plugin {
  return {
    name: "compressed",
    closeBundle() {
      for (const name of readdirSync(OUT, { recursive: true, encoding: "utf8" })) {
        if (!/\.(html|js|css|svg)$/.test(name)) continue;
        const path = join(OUT, name);
        const bytes = readFileSync(path);
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
      }
    },
  };
}

export default defineConfig({
  base: "/console/",
  experimental: {
    // Scripts find the others beside them: only the page names the prefix of a proxy, if there is one.
    renderBuiltUrl: (name, { hostType }) => (hostType === "js" ? { relative: true } : `/console/${name}`),
  },
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the policy allows no data: URLs
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  plugins: [compressed()],
  test: { setupFiles: ["tests/setup.ts"] },
  server: { proxy: { "^/(v1|metrics|readyz|livez|docs|openapi.json)": "http://127.0.0.1:8080" } },
});
