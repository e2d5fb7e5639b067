/** What a browser has and Node has not, for modules that read it when they are loaded. */
import { vi } from "vitest";

if (typeof document === "undefined") {
  vi.stubGlobal("sessionStorage", { getItem: () => null });
  vi.stubGlobal("location", { origin: "http://localhost", pathname: "/console/" });
}
