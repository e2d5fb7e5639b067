/** TanStack's virtualiser as a hook: only the rows in sight are in the page. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";

export interface Rows {
  /** The element that scrolls. */
  scroller: { current: HTMLDivElement | null };
  virtual: Virtualizer<HTMLDivElement, HTMLElement>;
}

export function useRows(size: number, rowPixels: number, keyOf: (index: number) => string | number): Rows {
  const scroller = useRef<HTMLDivElement | null>(null);
  const [, render] = useReducer((turn: number) => turn + 1, 0);
  const options = {
    count: size,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowPixels,
    getItemKey: keyOf,
    overscan: 12,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => render(undefined),
  };
  const virtual = useRef<Virtualizer<HTMLDivElement, HTMLElement> | null>(null);
  virtual.current ??= new Virtualizer(options);
  virtual.current.setOptions(options);
  useEffect(() => virtual.current?._didMount(), []);
  useLayoutEffect(() => virtual.current?._willUpdate());
  return { scroller, virtual: virtual.current };
}
