/** Where a lag is going: points over time, their slope, and when it will be nothing. */
import { duration, rate } from "../../ui/format";

export interface Point {
  /** Seconds since the epoch. */
  at: number;
  lag: number;
}

const KEPT_SECONDS = 900;
const LOOK_BACK_SECONDS = 60;
const LEAST_POINTS = 3;

/** Add a point; those older than a quarter of an hour go. */
export function withPoint(points: Point[], point: Point): Point[] {
  return [...points.filter(({ at }) => at > point.at - KEPT_SECONDS && at < point.at), point];
}

/** Change of the lag a second over the last minute, by least squares; null if too little is known. */
export function slope(points: Point[]): number | null {
  const last = points.at(-1);
  if (!last) return null;
  const recent = points.filter(({ at }) => at >= last.at - LOOK_BACK_SECONDS);
  if (recent.length < LEAST_POINTS) return null;
  const middle = recent.reduce((sum, { at }) => sum + at, 0) / recent.length;
  const mean = recent.reduce((sum, { lag }) => sum + lag, 0) / recent.length;
  const spread = recent.reduce((sum, { at }) => sum + (at - middle) ** 2, 0);
  if (spread === 0) return null;
  return recent.reduce((sum, { at, lag }) => sum + (at - middle) * (lag - mean), 0) / spread;
}

/** The trend in words. */
export function trendWords(points: Point[]): string {
  const change = slope(points);
  const lag = points.at(-1)?.lag ?? 0;
  if (change === null) return "…";
  if (lag === 0) return "caught up";
  if (Math.abs(change) < Math.max(0.05, lag / 100_000)) return "steady";
  if (change > 0) return `grows ${rate(change)}/s`;
  return `shrinks ${rate(-change)}/s, caught up in ${duration(Math.round((1000 * lag) / -change))}`;
}

/** The points of a sparkline's line, newest at the right edge. */
export function linePoints(points: Point[], width: number, height: number): string {
  const last = points.at(-1);
  if (!last) return "";
  const most = Math.max(1, ...points.map(({ lag }) => lag));
  const span = Math.max(10, last.at - (points[0]?.at ?? last.at));
  return points
    .map(
      ({ at, lag }) =>
        `${(width * (1 - (last.at - at) / span)).toFixed(1)},${(height - 1 - ((height - 2) * lag) / most).toFixed(1)}`,
    )
    .join(" ");
}
