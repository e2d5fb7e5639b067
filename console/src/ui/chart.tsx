/** A line chart over time: uPlot in the page's own colours. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { shownTime } from "./format";
import { theme, zone } from "./preferences";
import "uplot/dist/uPlot.min.css";

export interface Line {
  name: string;
  values: (number | null)[];
}

const HEIGHT = 132;
const LONGEST_SECONDS = 900;
/** Lines of an axis of bytes: 1, 2, 4 … of each binary unit. */
export const BINARY_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);
const COLOURS = ["--accent", "--second"];

interface ChartProps {
  title: string;
  seconds: number[];
  lines: Line[];
  /** The axis reaches at least this value. */
  least: number;
  /** Distances between its lines; uPlot's own are decimal. */
  steps?: number[];
  format: (value: number) => string;
}

export function Chart({ title, seconds, lines, least, steps, format }: ChartProps): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const names = lines.map((line) => line.name).join();
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const draw = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(element, { lines, least, steps, format }), dataOf(seconds, lines), element);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      scheme.removeEventListener("change", draw);
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, theme.value, zone.value]);
  useEffect(() => plot.current?.setData(dataOf(seconds, lines)), [seconds]);
  const latest = lines.map((line) => `${line.name} ${shown(line.values.at(-1), format)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <h2>{title}</h2>
        <span class="legend">
          {lines.map((line, at) => (
            <span key={line.name}>
              {lines.length > 1 && <i class={`swatch swatch-${at}`} />}
              {lines.length > 1 && `${line.name} `}
              <b>{shown(line.values.at(-1), format)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={place} class="plot" role="img" aria-label={`${title}, last 15 minutes; now ${latest}`} />
    </figure>
  );
}

function shown(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

function dataOf(seconds: number[], lines: Line[]): uPlot.AlignedData {
  return [seconds, ...lines.map((line) => line.values)] as uPlot.AlignedData;
}

function optionsOf(
  element: HTMLElement,
  { lines, least, steps, format }: Omit<ChartProps, "title" | "seconds" | "steps"> & { steps: number[] | undefined },
): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--quiet"), font: "11px system-ui", ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    padding: [8, 8, 0, 0],
    scales: {
      x: { range: (_, first) => span(first) },
      y: { range: (_, __, top) => [0, Math.max(least, top * 1.1)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 24,
        space: 90,
        values: (_, at) => at.map(clock),
      },
      {
        ...axis,
        grid: { stroke: colour("--line"), width: 1 },
        size: 62,
        space: 32,
        ...(steps ? { incrs: steps } : {}),
        values: (_, at) => at.map((value) => format(value)),
      },
    ],
    series: [
      {},
      ...lines.map((line, at) => ({
        label: line.name,
        stroke: colour(COLOURS[at] ?? "--accent"),
        width: 1.5,
        points: { show: (plot: uPlot) => plot.data[0].length < 3, size: 4 }, // a single one makes no line
        spanGaps: false,
      })),
    ],
  };
}

/** From the first point to now: at least a minute, at most a quarter of an hour. */
function span(first: number | null): [number, number] {
  const now = Date.now() / 1000;
  return [Math.max(now - LONGEST_SECONDS, Math.min(first ?? now, now - 60)), now];
}

function clock(seconds: number): string {
  return shownTime(seconds * 1000).slice(11, seconds % 60 ? 19 : 16);
}
