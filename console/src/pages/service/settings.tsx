/** Settings with their source, and the limits that every caller may know. */
import type { JSX } from "preact";
import { get } from "../../api/client";
import { count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Failure } from "../../ui/parts";
import { service } from "../../routes";
import { reading, shownLines, type Line } from "./values";

const SOURCES: Record<string, string> = {
  environment: "environment",
  file: "tidelog.toml",
  command_line: "command line",
  default: "default",
};

export function Settings(): JSX.Element {
  const loaded = useLoad("settings", async (signal): Promise<Line[]> => {
    const { settings } = await get("/v1/settings", { signal });
    return Object.entries(settings).map(([name, one]) => ({ name, ...one }));
  });
  return (
    <>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} onRetry={loaded.again} />
      {loaded.data && <Lines lines={loaded.data} what="settings" />}
    </>
  );
}

export function Limits(): JSX.Element {
  const loaded = useLoad("limits", async (signal): Promise<Line[]> => {
    const { limits } = await get("/v1/limits", { signal });
    return Object.entries(limits).map(([name, value]) => ({ name, value: String(value) }));
  });
  return (
    <>
      <Failure problem={loaded.error?.code === "unreachable" ? undefined : loaded.error} onRetry={loaded.again} />
      {loaded.data && <Lines lines={loaded.data} what="limits" />}
    </>
  );
}

function Lines({ lines, what }: { lines: Line[]; what: string }): JSX.Element {
  const { q: search, set: onlySet } = service.asked();
  const hasSource = lines.some((line) => line.source !== undefined);
  const shown = shownLines(lines, search, onlySet && hasSource);
  return (
    <>
      <div class="bar">
        <input
          type="search"
          class="search"
          data-search
          aria-label={`Search ${what}`}
          placeholder={`Search ${what}   /`}
          value={search}
          onInput={(event) => service.change({ q: event.currentTarget.value })}
        />
        {hasSource && (
          <label>
            <input
              type="checkbox"
              checked={onlySet}
              onChange={(event) => service.change({ set: event.currentTarget.checked })}
            />
            Only what is not the default
          </label>
        )}
        <span class="quiet" role="status">
          {count(shown.length)} of {count(lines.length)}
        </span>
      </div>
      <ul class="settings" aria-label={what}>
        {shown.map((line) => (
          <li key={line.name}>
            <span class="setting-name">
              <code>{line.name}</code>
              {line.source !== undefined && line.source !== "default" && (
                <span class="tag warn">{SOURCES[line.source]}</span>
              )}
            </span>
            <span class="setting-value">
              <code>{line.value || "“”"}</code> <span class="quiet small">{reading(line.name, line.value)}</span>
            </span>
            {line.description && <span class="quiet setting-text">{line.description.replaceAll("`", "")}</span>}
          </li>
        ))}
      </ul>
      {hasSource && (
        <p class="hint">
          An environment variable TIDELOG_ and the name in capitals sets a setting; it takes effect with the next start.
        </p>
      )}
    </>
  );
}
