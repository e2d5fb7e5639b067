/** How tall an element may be so that the page itself does not scroll beside it. */
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

/** What stands below the lists: the padding of the page, and a scrollbar where a list is wider than its place. */
const BELOW_PIXELS = 56;
const LEAST_PIXELS = 200;

/** Pixels from an element's top to the window's end; followed as either moves. */
export function useRoom(place: { current: HTMLElement | null }): number {
  const [room, measure] = useState(LEAST_PIXELS);
  const look = (): void => {
    if (!place.current) return;
    const top = place.current.getBoundingClientRect().top + scrollY;
    measure(Math.max(LEAST_PIXELS, Math.floor(innerHeight - top - BELOW_PIXELS)));
  };
  useLayoutEffect(look);
  useEffect(() => {
    addEventListener("resize", look);
    return () => removeEventListener("resize", look);
  }, []);
  return room;
}
