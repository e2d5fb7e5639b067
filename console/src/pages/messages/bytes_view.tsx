/** A key or a value: as JSON, text, hexadecimal or base64, whichever it can be. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Choices, Copy, type Choice } from "../../ui/parts";
import { bytes as size } from "../../ui/format";
import { JsonView } from "./json_view";
import { treeOf } from "../../api/json_tree";
import { bytesOf, hexDump, kindOf, textOf } from "./message";

type View = "decoded" | "json" | "text" | "hex" | "base64";

const FIRST_BYTES = 16 * 1024;
const NAMES: Record<View, string> = { decoded: "Decoded", json: "JSON", text: "Text", hex: "Hex", base64: "Base64" };

export function BytesView({
  title,
  base64,
  absent,
  decoded = null,
  undecodable = "",
}: {
  title: string;
  base64: string | null;
  absent: string;
  /** What a schema makes of the bytes, as JSON text. */
  decoded?: string | null;
  /** Why it makes nothing of them. */
  undecodable?: string;
}): JSX.Element {
  const [chosen, choose] = useState<View | undefined>();
  const [isWhole, showAll] = useState(false);
  if (base64 === null) {
    return (
      <section class="bytes">
        <h3>{title}</h3>
        <p class="quiet">{absent}</p>
      </section>
    );
  }
  const bytes = bytesOf(base64);
  const kind = kindOf(bytes);
  const plain: View[] =
    kind === "json"
      ? ["json", "text", "hex", "base64"]
      : kind === "text"
        ? ["text", "hex", "base64"]
        : ["hex", "base64"];
  const views: View[] = decoded === null ? plain : ["decoded", ...plain];
  const view = chosen && views.includes(chosen) ? chosen : views[0]!;
  const part = isWhole ? bytes : bytes.subarray(0, FIRST_BYTES);
  const text = (view === "decoded" ? decoded : textOf(bytes)) ?? "";
  const tree = view === "json" || view === "decoded" ? treeOf(text) : null;
  const isCut = !tree && bytes.length > part.length;
  const shown = (): string =>
    view === "hex"
      ? hexDump(part)
      : view === "base64"
        ? isWhole
          ? base64
          : base64.slice(0, FIRST_BYTES)
        : isWhole
          ? text
          : text.slice(0, FIRST_BYTES);
  const choices: Choice<View>[] = views.map((value) => ({ value, label: NAMES[value] }));
  return (
    <section class="bytes">
      <header>
        <h3>
          {title} <span class="quiet">{size(bytes.length)}</span>
        </h3>
        <Choices label={`Show the ${title.toLowerCase()} as`} choices={choices} value={view} onChange={choose} />
        <Copy text={() => (view === "hex" ? hexDump(bytes) : view === "base64" ? base64 : text)} />
      </header>
      {undecodable && <p class="note caution">The topic’s schema does not decode this value: {undecodable}.</p>}
      {tree ? (
        <div class="shown" tabIndex={0} role="region" aria-label={`${title} as JSON`}>
          <JsonView node={tree} />
        </div>
      ) : (
        <pre
          class={view === "hex" ? "shown hex" : "shown"}
          tabIndex={0}
          role="region"
          aria-label={`${title} as ${NAMES[view]}`}
        >
          {shown() || <span class="quiet">empty</span>}
        </pre>
      )}
      {isCut && (
        <button type="button" class="small" onClick={() => showAll(true)}>
          Show all {size(bytes.length)}
        </button>
      )}
    </section>
  );
}
