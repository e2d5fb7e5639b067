/** One segment from its first byte to its last: the index points, and the path of a read through both. */
import { pathOf } from "../../place";
import type { JSX } from "preact";
import { send } from "../../api/client";
import { bytes, count } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Failure } from "../../ui/parts";
import type { ReadPath } from "./explain";
import { parseIndex, thinned } from "./indexes";
import { useWidth } from "./picture";
import type { Piece } from "./scale";

const REFRESH_MS = 5000;
const PAD = 10;
const INDEX_Y = 26;
const LOG_Y = 78;
const LOG_HEIGHT = 30;
const HEIGHT = 142;

interface StripProps {
  piece: Piece;
  /** Where its offset index can be downloaded. */
  indexPath: string;
  path: ReadPath | undefined;
  wanted: bigint | undefined;
}

export function Strip({ piece, indexPath, path, wanted }: StripProps): JSX.Element {
  const [place, width] = useWidth();
  const index = useLoad(
    indexPath,
    async (signal) => parseIndex(await (await send(pathOf(indexPath), { signal })).arrayBuffer(), piece.base),
    piece.isActive ? REFRESH_MS : 0,
  );
  const entries = index.data ?? [];
  const wide = Math.max(1, width - 2 * PAD);
  const x = (position: number): number => (piece.bytes ? Math.min(wide, (wide * position) / piece.bytes) : 0);
  const isHere = path?.segment === piece.base;
  return (
    <figure class="strip">
      <figcaption>
        <h2>Inside segment {String(piece.base)}</h2>
        <span class="quiet">
          {bytes(piece.bytes)}, {count(entries.length)} index {entries.length === 1 ? "point" : "points"}
          {entries.length > 1 && `, one every ${bytes(piece.bytes / entries.length)}`}
        </span>
      </figcaption>
      <Failure problem={index.error?.code === "unreachable" ? undefined : index.error} onRetry={index.again} />
      <div ref={place}>
        {width > 0 && (
          <svg
            width={width}
            height={HEIGHT}
            viewBox={`0 0 ${width} ${HEIGHT}`}
            role="img"
            aria-label={describe(piece, entries.length, isHere ? path : undefined)}
          >
            <defs>
              <pattern id="scan" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                <line class="hatch-scan" x1="0" y1="0" x2="0" y2="5" />
              </pattern>
              <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                <path class="arrow" d="M0 0 L8 4 L0 8 z" />
              </marker>
            </defs>
            <g transform={`translate(${PAD} 0)`}>
              <text class="row-name" x="0" y={INDEX_Y - 12}>
                .index
              </text>
              <line class="index-line" x1="0" x2={wide} y1={INDEX_Y} y2={INDEX_Y} />
              <g class="index-points">
                {thinned(entries, Math.max(2, Math.floor(wide / 3))).map((entry) => (
                  <line
                    key={entry.position}
                    x1={x(entry.position)}
                    x2={x(entry.position)}
                    y1={INDEX_Y - 5}
                    y2={INDEX_Y + 5}
                  />
                ))}
              </g>
              <text class="row-name" x="0" y={LOG_Y - 8}>
                .log
              </text>
              <rect class="log-body" x="0" y={LOG_Y} width={wide} height={LOG_HEIGHT} rx="3" />
              {isHere && <Path path={path} x={x} wide={wide} />}
              <text class="edge" x="0" y={LOG_Y + LOG_HEIGHT + 16}>
                {count(piece.base)}
              </text>
              <text class="edge" x={wide} y={LOG_Y + LOG_HEIGHT + 16} text-anchor="end">
                {count(piece.next)}
              </text>
              {!isHere && wanted === undefined && entries.length === 0 && index.data && (
                <text class="edge" x={wide / 2} y={INDEX_Y - 12} text-anchor="middle">
                  no entry yet: a read begins at byte 0
                </text>
              )}
            </g>
          </svg>
        )}
      </div>
    </figure>
  );
}

function describe(piece: Piece, points: number, path: ReadPath | undefined): string {
  const way = path
    ? ` A read goes from the index entry at byte ${path.indexPosition} to the batch at byte ${path.position}.`
    : "";
  return `Segment ${piece.base}: ${points} index points over ${bytes(piece.bytes)}.${way}`;
}

/** Index entry → scan → batch, drawn where it happens. */
function Path({ path, x, wide }: { path: ReadPath; x: (position: number) => number; wide: number }): JSX.Element {
  const from = x(path.indexPosition);
  const to = x(path.position);
  const end = Math.max(to + 3, x(path.position + path.batch.bytes));
  const middle = (INDEX_Y + LOG_Y) / 2 + 2;
  return (
    <g class="path">
      <circle cx={from} cy={INDEX_Y} r="5" />
      <path d={`M ${from} ${INDEX_Y + 5} V ${LOG_Y - 1}`} marker-end="url(#arrow)" />
      {to > from && (
        <rect class="scan" x={from} width={Math.max(1, to - from)} y={LOG_Y} height={LOG_HEIGHT} fill="url(#scan)" />
      )}
      <rect class="batch" x={to} width={end - to} y={LOG_Y - 2} height={LOG_HEIGHT + 4} rx="2" />
      {to - from > 12 && <path d={`M ${from} ${LOG_Y + LOG_HEIGHT / 2} H ${to}`} marker-end="url(#arrow)" />}
      <text
        x={from > wide / 2 ? from - 9 : from + 9}
        y={middle}
        dominant-baseline="middle"
        text-anchor={from > wide / 2 ? "end" : "start"}
      >
        {path.position > path.indexPosition ? `scan ${bytes(path.position - path.indexPosition)}` : "found at once"}
      </text>
    </g>
  );
}
