import { useMemo, useRef, useState } from "preact/hooks";
import { now } from "../words.tsx";
import type { Row } from "./rows.ts";
import type { Frame } from "./scale.ts";
import { placeIn } from "./scale.ts";
import type { Kind } from "./spans.ts";

/** How many columns there are. */
const COLUMNS = 200;
/** What a column shows where there are several. */
const order: readonly Kind[] = ["failed", "lost", "work", "people", "slot", "pause", "message", "sleep"];

/**
 * The whole time in one strip, from which a part is chosen by dragging over it. Buttons and keys do the same, so that it is
 * left out for those who hear the page.
 */
export function Overview({
  rows,
  all,
  frame,
  onChoose,
}: {
  readonly rows: readonly Row[];
  readonly all: Frame;
  readonly frame: Frame;
  readonly onChoose: (frame: Frame) => void;
}) {
  const strip = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<readonly [number, number] | null>(null);
  const { from, to } = all;
  const columns = useMemo(() => columnsOf(rows, { from, to }), [rows, from, to]);
  const timeAt = (event: PointerEvent): number => {
    const { left, width } = strip.current?.getBoundingClientRect() ?? { left: 0, width: 1 };
    return all.from + (all.to - all.from) * Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const shown = drag === null ? frame : { from: Math.min(...drag), to: Math.max(...drag) };
  const left = placeIn(all, shown.from);
  return (
    <div
      class="overview"
      ref={strip}
      aria-hidden="true"
      onPointerDown={(event) => {
        strip.current?.setPointerCapture(event.pointerId);
        setDrag([timeAt(event), timeAt(event)]);
      }}
      onPointerMove={(event) => drag !== null && setDrag([drag[0], timeAt(event)])}
      onPointerUp={() => {
        if (drag === null) return;
        setDrag(null);
        // A click without a drag chooses nothing.
        if (shown.to - shown.from > (all.to - all.from) / 100) onChoose(shown);
      }}
      onPointerCancel={() => setDrag(null)}
    >
      <div class="strip" style={{ background: gradientOf(columns) }} />
      <div class="chosen" style={{ left: `${left}%`, width: `${placeIn(all, shown.to) - left}%` }} />
    </div>
  );
}

/** What each column shows. */
function columnsOf(rows: readonly Row[], all: Frame): readonly (Kind | undefined)[] {
  const changes = new Map<Kind, Int32Array>();
  for (const { spans, item } of rows) {
    if (item === null) continue;
    for (const { kind, from, to } of spans) {
      const change = changes.get(kind) ?? new Int32Array(COLUMNS + 1);
      changes.set(kind, change);
      const [first, last] = [columnOf(all, from), columnOf(all, to ?? now.peek())];
      change[first] = (change[first] ?? 0) + 1;
      change[last + 1] = (change[last + 1] ?? 0) - 1;
    }
  }
  const shown = new Array<Kind | undefined>(COLUMNS).fill(undefined);
  for (const kind of [...order].reverse()) {
    let depth = 0;
    for (let column = 0; column < COLUMNS; column++) {
      depth += changes.get(kind)?.[column] ?? 0;
      if (depth > 0) shown[column] = kind;
    }
  }
  return shown;
}

function columnOf(all: Frame, at: number): number {
  return Math.min(COLUMNS - 1, Math.max(0, Math.floor((placeIn(all, at) / 100) * COLUMNS)));
}

/** One background for all columns, of the colours of the page. */
function gradientOf(columns: readonly (Kind | undefined)[]): string {
  const stops: string[] = [];
  for (let column = 0; column < COLUMNS; ) {
    const kind = columns[column];
    let end = column;
    while (end < COLUMNS && columns[end] === kind) end += 1;
    const colour = kind === undefined ? "transparent" : `var(--${kind})`;
    stops.push(`${colour} ${column / 2}% ${end / 2}%`);
    column = end;
  }
  return `linear-gradient(to right, ${stops.join(", ")})`;
}
