/** The line between two parts of a page, which a pointer or the arrow keys move. */
import type { JSX, TargetedPointerEvent } from "preact";
import { detailPercent } from "./preferences";

const LEAST_PERCENT = 25;
const MOST_PERCENT = 75;
const STEP_PERCENT = 3;

function resize(percent: number): void {
  detailPercent.value = Math.round(Math.min(MOST_PERCENT, Math.max(LEAST_PERCENT, percent)));
}

export function Splitter({ label }: { label: string }): JSX.Element {
  const drag = (event: TargetedPointerEvent<HTMLDivElement>): void => {
    const line = event.currentTarget;
    if (!line.hasPointerCapture(event.pointerId) || !line.parentElement) return;
    const { right, width } = line.parentElement.getBoundingClientRect();
    const between = line.offsetWidth / 2 + parseFloat(getComputedStyle(line.parentElement).columnGap);
    resize((100 * (right - between - event.clientX)) / width);
  };
  const move = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    event.stopPropagation();
    resize(detailPercent.value + (event.key === "ArrowLeft" ? STEP_PERCENT : -STEP_PERCENT));
  };
  return (
    <div
      class="splitter"
      role="separator"
      aria-orientation="vertical"
      aria-label={label}
      aria-valuenow={detailPercent.value}
      aria-valuemin={LEAST_PERCENT}
      aria-valuemax={MOST_PERCENT}
      tabIndex={0}
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={drag}
      onKeyDown={move}
    />
  );
}
