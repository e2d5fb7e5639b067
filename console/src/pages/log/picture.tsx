/** The log as a picture: its segments to scale, its marks, and what a pass would remove. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, count } from "../../ui/format";
import type { LogFacts } from "./load";
import {
  byteTicks,
  heats,
  placeMarks,
  pieceOf,
  Scale,
  timeTicks,
  type Axis,
  type Piece,
  type PlacedMark,
} from "./scale";

/** What is shaded: offsets of a segment, and why. */
export interface Shade {
  base: bigint;
  kind: "removed" | "dirty" | "clean";
  why: string;
}

interface PictureProps {
  facts: LogFacts;
  axis: Axis;
  span: number;
  segmentBytes: number;
  shades: Shade[];
  selected: bigint | undefined;
  /** The offset that a read asks for, drawn as its way into the log. */
  wanted: bigint | undefined;
  onSelect: (base: bigint) => void;
}

const LABEL_ROW = 17;
const BARS = 132;
const AXIS = 22;
const PAD = 10;
const CHARACTER = 6.4;

/** The width of an element, followed as it changes. */
export function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, measure] = useState(0);
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const watcher = new ResizeObserver(() => measure(element.clientWidth));
    watcher.observe(element);
    measure(element.clientWidth);
    return () => watcher.disconnect();
  }, []);
  return [place, width];
}

export function Picture(props: PictureProps): JSX.Element {
  const [place, width] = useWidth();
  return (
    <div ref={place} class="log-picture">
      {width > 0 && <Drawing {...props} width={width} />}
    </div>
  );
}

function marksOf(facts: LogFacts): { name: string; offset: bigint }[] {
  return [
    { name: "log start", offset: facts.logStart },
    { name: "last stable", offset: facts.lastStable },
    { name: "high watermark", offset: facts.highWatermark },
    { name: "log end", offset: facts.logEnd },
  ];
}

function labelOf(names: string[], offset: bigint): string {
  return `${names.join(" = ")} ${count(offset)}`;
}

function Drawing({
  facts,
  axis,
  span,
  segmentBytes,
  shades,
  selected,
  wanted,
  onSelect,
  width,
}: PictureProps & { width: number }): JSX.Element {
  const [under, point] = useState<number | undefined>();
  const scale = new Scale(facts.pieces, axis, width - 2 * PAD, facts.now, span);
  const marks = placeMarks(marksOf(facts), scale, (names, offset) => 12 + CHARACTER * labelOf(names, offset).length);
  const top = (Math.max(...marks.map((mark) => mark.row)) + 1) * LABEL_ROW + 14;
  const height = top + BARS + AXIS;
  const largest = Math.max(1, ...facts.pieces.map((piece) => piece.bytes));
  const full = segmentBytes <= 3 * largest ? Math.max(segmentBytes, largest) : largest;
  const tall = (piece: Piece): number => (axis === "bytes" ? BARS : Math.max(4, (BARS * piece.bytes) / full));
  const heat = heats(facts.pieces);
  const shadeOf = new Map(shades.map((shade) => [shade.base, shade]));
  const current = selected ?? facts.pieces.at(-1)?.base;
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = facts.pieces.findIndex((piece) => piece.base === current);
    const next = step ? facts.pieces[at + step] : undefined;
    if (!next) return;
    event.preventDefault();
    onSelect(next.base);
    const group = event.currentTarget as SVGElement;
    requestAnimationFrame(() => group.querySelector<SVGElement>('[tabindex="0"]')?.focus());
  };
  const pointed = under === undefined ? undefined : facts.pieces[under];
  return (
    <>
      <svg
        width={width}
        height={height}
        viewBox={`0 0 ${width} ${height}`}
        role="group"
        aria-label={`${facts.pieces.length} segments, drawn by ${axis}`}
        onKeyDown={move}
        onPointerLeave={() => point(undefined)}
      >
        <defs>
          <pattern id="removed" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <line class="hatch-removed" x1="0" y1="0" x2="0" y2="6" />
          </pattern>
          <pattern id="dirty" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
            <line class="hatch-dirty" x1="0" y1="0" x2="0" y2="6" />
          </pattern>
          <clipPath id="frame">
            <rect x="0" y="0" width={width} height={height} />
          </clipPath>
        </defs>
        <g transform={`translate(${PAD} 0)`}>
          <Grid scale={scale} top={top} />
          <g clip-path="url(#frame)">
            {facts.pieces.map((piece, index) => {
              const { left, width: wide } = scale.box(index);
              if (left + wide < 0) return null;
              const tallness = tall(piece);
              const shade = shadeOf.get(piece.base);
              const place = {
                x: left + 0.5,
                width: Math.max(2, wide - 1),
                y: top + BARS - tallness,
                height: tallness,
                rx: Math.min(3, wide / 3),
              };
              return (
                <g
                  key={String(piece.base)}
                  class={`segment${piece.isActive ? " active" : ""}${piece.base === selected ? " selected" : ""}`}
                  role="button"
                  aria-pressed={piece.base === selected}
                  aria-label={nameOf(piece, shade)}
                  tabIndex={piece.base === current ? 0 : -1}
                  onClick={() => onSelect(piece.base)}
                  onKeyDown={(event) => {
                    if (event.key !== "Enter" && event.key !== " ") return;
                    event.preventDefault();
                    onSelect(piece.base);
                  }}
                  onPointerEnter={() => point(index)}
                  onFocus={() => point(index)}
                  onBlur={() => point(undefined)}
                >
                  <rect class="catch" x={place.x} width={place.width} y={top} height={BARS} />
                  {piece.isActive && axis === "time" && full >= segmentBytes && (
                    <rect
                      class="room"
                      {...place}
                      y={top + BARS - (BARS * segmentBytes) / full}
                      height={(BARS * segmentBytes) / full}
                    />
                  )}
                  <rect
                    class="body"
                    {...place}
                    style={{
                      "--heat": `${Math.round(16 + 44 * (heat[index] ?? 0))}%`,
                    }}
                  />
                  {shade && (
                    <rect
                      class={`shade ${shade.kind}`}
                      {...place}
                      fill={shade.kind === "clean" ? undefined : `url(#${shade.kind})`}
                    />
                  )}
                </g>
              );
            })}
          </g>
          <line class="ground" x1="0" x2={scale.width} y1={top + BARS} y2={top + BARS} />
          {marks.map((mark) => (
            <MarkLine key={mark.names.join()} mark={mark} top={top} />
          ))}
          {facts.damage.map((one) => {
            const at = facts.pieces.findIndex((piece) => piece.base === one.base);
            const piece = facts.pieces[at];
            if (!piece) return null;
            const { left, width: wide } = scale.box(at);
            return (
              <DamageMark
                key={`${one.base}/${one.position}`}
                x={left + (wide * one.position) / Math.max(1, piece.bytes)}
                top={top}
                problem={one.problem}
              />
            );
          })}
          {wanted !== undefined && <Wanted x={scale.offset(wanted)} top={top} />}
        </g>
      </svg>
      {pointed && under !== undefined && (
        <Tip
          piece={pointed}
          shade={shadeOf.get(pointed.base)}
          centre={PAD + scale.box(under).left + scale.box(under).width / 2}
          width={width}
          top={top + BARS}
        />
      )}
    </>
  );
}

function nameOf(piece: Piece, shade: Shade | undefined): string {
  const records = piece.next > piece.base ? `offsets ${count(piece.base)} to ${count(piece.next - 1n)}` : "no records";
  return `${piece.isActive ? "Active segment" : "Segment"} ${piece.base}, ${records}, ${bytes(piece.bytes)}${shade ? `, ${shade.why}` : ""}`;
}

function Grid({ scale, top }: { scale: Scale; top: number }): JSX.Element {
  const ticks = scale.axis === "time" ? timeTicks(scale) : byteTicks(scale).map((at) => ({ at, label: bytes(at) }));
  return (
    <g class="grid-lines" aria-hidden="true">
      {ticks.map(({ at, label }) => {
        const x = scale.x(at);
        const anchor = x < 30 ? "start" : x > scale.width - 30 ? "end" : "middle";
        return (
          <g key={at}>
            <line x1={x} x2={x} y1={top} y2={top + BARS + 4} />
            <text x={x} y={top + BARS + 17} text-anchor={anchor}>
              {label}
            </text>
          </g>
        );
      })}
    </g>
  );
}

function MarkLine({ mark, top }: { mark: PlacedMark; top: number }): JSX.Element {
  const y = top - 16 - mark.row * LABEL_ROW;
  return (
    <g class="mark">
      <line x1={mark.x} x2={mark.x} y1={y - 8} y2={top + BARS} />
      <circle cx={mark.x} cy={top + BARS} r="2.5" />
      <text x={mark.x + (mark.isLeft ? -5 : 5)} y={y} text-anchor={mark.isLeft ? "end" : "start"}>
        {mark.names.join(" = ")} <tspan>{count(mark.offset)}</tspan>
      </text>
    </g>
  );
}

function DamageMark({ x, top, problem }: { x: number; top: number; problem: string }): JSX.Element {
  return (
    <g class="damaged" role="img" aria-label={`Damaged: ${problem}`}>
      <title>{problem}</title>
      <line x1={x} x2={x} y1={top} y2={top + BARS} />
      <path d={`M ${x - 5} ${top + BARS - 5} l 10 10 m 0 -10 l -10 10`} />
    </g>
  );
}

function Wanted({ x, top }: { x: number; top: number }): JSX.Element {
  return (
    <g class="wanted" aria-hidden="true">
      <line x1={x} x2={x} y1={top} y2={top + BARS} />
      <path d={`M ${x - 5} ${top - 2} h 10 l -5 8 z`} />
    </g>
  );
}

function Tip({
  piece,
  shade,
  centre,
  width,
  top,
}: {
  piece: Piece;
  shade: Shade | undefined;
  centre: number;
  width: number;
  top: number;
}): JSX.Element {
  const left = Math.max(0, Math.min(width - 264, centre - 132));
  const records = piece.next - piece.base;
  return (
    <div class="log-tip" style={{ left: `${left}px`, top: `${top + 6}px` }} aria-hidden="true">
      <b>{String(piece.base).padStart(20, "0")}.log</b> {piece.isActive && <span class="tag">active</span>}
      <span>{records > 0n ? `offsets ${count(piece.base)} – ${count(piece.next - 1n)}` : "no records"}</span>
      <span>
        {bytes(piece.bytes)} {records > 0n && `· ${bytes(piece.bytes / Number(records))} an offset`}
      </span>
      {piece.to >= 0 && (
        <span>
          {new Date(piece.from).toLocaleString()} – {new Date(piece.to).toLocaleTimeString()}
        </span>
      )}
      {shade && <span class={shade.kind === "removed" ? "bad" : "warn"}>{shade.why}</span>}
    </div>
  );
}

/** The piece that holds an offset. */
export function holder(facts: LogFacts, offset: bigint): Piece | undefined {
  return facts.pieces[pieceOf(facts.pieces, offset)];
}
