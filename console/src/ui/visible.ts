// Shows what would steer a reader as text: control characters, and marks that turn text around.
// A key `U+202E gnp.exe` must not read `exe.png`, wherever the console shows it.

import { options, type VNode } from "preact";

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Returns the text with each such character as `\uXXXX`. */
function visible(text: string): string {
  return text.replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function shown(child: unknown): unknown {
  return typeof child === "string" ? visible(child) : Array.isArray(child) ? child.map(shown) : child;
}

/** Makes every text and title of every element visible; what is typed into fields stays as it is. */
export function showHidden(): void {
  const before = options.vnode; // eslint-disable-line @typescript-eslint/unbound-method -- it uses no this
  options.vnode = (vnode: VNode) => {
    if (typeof vnode.type === "string") {
      const props = vnode.props as { children?: unknown; title?: unknown };
      props.children = shown(props.children);
      props.title &&= shown(props.title);
    }
    before?.(vnode);
  };
}
