/** JSON as a tree that opens and closes; text nodes only, so markup in a value is shown, not obeyed. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Node } from "../../api/json_tree";

const FIRST_CHILDREN = 100;
const OPEN_DEPTH = 2;

export function JsonView({ node, name, depth = 0 }: { node: Node; name?: string; depth?: number }): JSX.Element {
  const [shown, show] = useState(FIRST_CHILDREN);
  const label = name !== undefined && <span class="json-name">{name}: </span>;
  if (node.kind !== "object" && node.kind !== "array") {
    const text = node.kind === "string" ? JSON.stringify(node.text) : node.text;
    return (
      <div class="json-leaf">
        {label}
        <span class={`json-${node.kind}`}>{text}</span>
      </div>
    );
  }
  const children: [string, Node][] =
    node.kind === "object" ? node.members : node.items.map((item, index) => [String(index), item]);
  const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  if (!children.length) {
    return (
      <div class="json-leaf">
        {label}
        {open}
        {close}
      </div>
    );
  }
  return (
    <details class="json" open={depth < OPEN_DEPTH}>
      <summary>
        {label}
        <span class="quiet">
          {open} {children.length}{" "}
          {node.kind === "object"
            ? children.length === 1
              ? "member"
              : "members"
            : children.length === 1
              ? "item"
              : "items"}{" "}
          {close}
        </span>
      </summary>
      {children.slice(0, shown).map(([key, child], index) => (
        <JsonView key={index} name={key} node={child} depth={depth + 1} />
      ))}
      {children.length > shown && (
        <button type="button" class="small" onClick={() => show(shown + 1000)}>
          Show more of {children.length}
        </button>
      )}
    </details>
  );
}
