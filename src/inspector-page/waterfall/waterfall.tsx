/* biome-ignore-all lint/a11y/useSemanticElements: the lines of a tree are laid out as no table is, and a table that is not laid out as one is none to those who hear it. */
/* biome-ignore-all lint/a11y/useFocusableInteractive: of the cells of a tree the lines have the focus. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { TimelineItem } from "../../admin/timeline.ts";
import type { SeveralEvent } from "../../inspector/api.ts";
import { useFeed } from "../feed.ts";
import { Icon, IconButton } from "../icons.tsx";
import { addressOf } from "../server.ts";
import { count, duration, Notice, now } from "../words.tsx";
import { Overview } from "./overview.tsx";
import type { Row, Told } from "./rows.ts";
import { ownSpans, rowsOf } from "./rows.ts";
import type { Frame } from "./scale.ts";
import { moved, placeIn, ticksIn, zoomed } from "./scale.ts";
import type { Kind, Span } from "./spans.ts";
import { flattened, kindNames, timesOf } from "./spans.ts";

const ROW_HEIGHT = 30;
/** How many rows are in the page above and below those that can be seen. */
const BEYOND = 12;
/** How many sub-runs are followed at a time. */
const MOST_OPEN = 50;
/** How much room a time in the ruler has at least, in pixels. */
const TICK_WIDTH = 72;
/** From how many items on a run is long. */
const LONG = 1_000;
/** How often what a live run did is summed up, in milliseconds. */
const SUM_MS = 1_000;
const LONG_SUM_MS = 10_000;

interface WaterfallProps {
  readonly told: Told;
  /** Whether all items are there. */
  readonly isWhole: boolean;
  /** The id of the line whose details are shown; empty: none. */
  readonly selected: string;
  readonly onSelect: (id: string) => void;
  /** The details of a line, next to the picture. */
  readonly details: (row: Row) => ComponentChildren;
  /** What is there instead while no line is selected. */
  readonly children: ComponentChildren;
}

/** A run as a picture: a line for each operation, with its time. */
export function Waterfall({ told, isWhole, selected, onSelect, details, children }: WaterfallProps) {
  const { run } = told;
  const [turned, setTurned] = useState<ReadonlySet<string>>(new Set());
  const [open, setOpen] = useState<readonly string[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const [below, onBelow] = useBelow();
  const [chosen, setChosen] = useState<Frame | null>(null);
  const all = wholeOf(told);
  const whole = useWhole(told, isWhole, all);
  const rows = useMemo(() => rowsOf(told, below, turned, whole), [told, below, turned, whole]);
  const frame = chosen ?? all;
  const row = rows.find(({ id }) => id === selected);

  const turn = (one: Row): void => {
    const id = one.item?.type === "sub_run" ? one.item.run_id : undefined;
    const isClosing = turned.has(one.id);
    if (id !== undefined && !isClosing && open.length === MOST_OPEN) {
      setProblem(`${MOST_OPEN} sub-runs are open. Close one before you open another.`);
      return;
    }
    setProblem(null);
    setTurned((before) => new Set(isClosing ? [...before].filter((other) => other !== one.id) : [...before, one.id]));
    if (id !== undefined) setOpen((before) => (isClosing ? before.filter((other) => other !== id) : [...before, id]));
  };
  const zoom = (by: number, around = 0.5): void => setChosen(keptBelow(zoomed(frame, by, around, all), all));
  const pan = (share: number): void => setChosen(keptBelow(moved(frame, share, all), all));
  const onKey = (event: KeyboardEvent): void => {
    const act = zoomKeys[event.key];
    if (act === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (act === "all") setChosen(null);
    else if (act[0] === "zoom") zoom(act[1]);
    else pan(act[1]);
  };
  return (
    <div class="picture">
      {open.length > 0 && <Below tenant={run.tenant} run_ids={open} onEvent={onBelow} />}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the keys of the rows and buttons inside come here. */}
      <div class="waterfall" onKeyDown={onKey}>
        <Times spans={whole} />
        <div class="tools">
          <Overview rows={rows} all={all} frame={frame} onChoose={(next) => setChosen(keptBelow(next, all))} />
          <IconButton is="zoomIn" label="Zoom in" title="Show less time (+)" onClick={() => zoom(0.5)} />
          <IconButton
            is="zoomOut"
            label="Zoom out"
            title="Show more time (-)"
            onClick={() => zoom(2)}
            disabled={chosen === null}
          />
          <button
            type="button"
            class="ghost"
            title="Show all (0)"
            onClick={() => setChosen(null)}
            disabled={chosen === null}
          >
            All
          </button>
        </div>
        {problem !== null && <Notice kind="info">{problem}</Notice>}
        <Grid
          rows={rows}
          frame={frame}
          begin={all.from}
          selected={selected}
          onSelect={onSelect}
          onTurn={turn}
          onZoom={zoom}
          onPan={pan}
        />
      </div>
      <aside class="details" aria-label="Details">
        {row === undefined || row.item === null ? (
          children
        ) : (
          <>
            <IconButton is="close" label="Close the details" class="ghost close" onClick={() => onSelect("")} />
            {details(row)}
          </>
        )}
      </aside>
    </div>
  );
}

const zoomKeys: Readonly<Record<string, "all" | readonly ["zoom" | "pan", number]>> = {
  "+": ["zoom", 0.5],
  "=": ["zoom", 0.5],
  "-": ["zoom", 2],
  "0": "all",
  "[": ["pan", -0.25],
  "]": ["pan", 0.25],
};

/** The whole time follows a live run, a part of it stays where it is. */
function keptBelow(frame: Frame, all: Frame): Frame | null {
  return frame.to - frame.from >= all.to - all.from ? null : frame;
}

/** The time of a run. What a fork has taken over was before. */
function wholeOf({ run, items }: Told): Frame {
  const from = Date.parse(run.created?.at ?? items[0]?.at ?? "") || now.value;
  const to =
    run.finished_at === null
      ? Math.max(now.value, Date.parse(items.at(-1)?.at ?? "") || 0)
      : Date.parse(run.finished_at);
  return { from, to: Math.max(from + 1, to) };
}

/** What the run did in all. For a long run that is at work, or is being read, it is summed up seldom. */
function useWhole(told: Told, isWhole: boolean, { from, to }: Frame): readonly Span[] {
  const last = useRef<{ readonly told: Told; readonly to: number; readonly spans: readonly Span[] } | null>(null);
  const { current } = last;
  const isAtRest = isWhole && told.run.finished_at !== null;
  const isShort = told.items.length <= LONG;
  const isDue =
    current === null ||
    (current.told !== told && (isAtRest || isShort)) ||
    (!isAtRest && to - current.to >= (isShort ? SUM_MS : LONG_SUM_MS));
  if (isDue) last.current = { told, to, spans: flattened(ownSpans(told), from, to) };
  return last.current?.spans ?? [];
}

/** What is known of the sub-runs that are open, by their ids. */
function useBelow(): readonly [ReadonlyMap<string, Told>, (event: SeveralEvent) => void] {
  const [below, setBelow] = useState<ReadonlyMap<string, Told>>(new Map());
  const items = useRef(new Map<string, Map<number, TimelineItem>>());
  const onEvent = ({ run, items: changed }: SeveralEvent): void => {
    const its = items.current.get(run.run_id) ?? new Map<number, TimelineItem>();
    items.current.set(run.run_id, its);
    for (const item of changed) its.set(item.position, item);
    const inOrder = [...its.values()].sort((one, other) => one.position - other.position);
    setBelow((before) => new Map(before).set(run.run_id, { run, items: inOrder }));
  };
  return [below, onEvent];
}

/** Follows the sub-runs that are open. */
function Below({
  tenant,
  run_ids,
  onEvent,
}: {
  readonly tenant: string;
  readonly run_ids: readonly string[];
  readonly onEvent: (event: SeveralEvent) => void;
}) {
  const refused = useFeed<SeveralEvent>(addressOf("feed/several", { tenant, run_ids: run_ids.join() }), onEvent);
  return refused === null ? null : <Notice>{refused}</Notice>;
}

/** How long the run did what, and what the colours mean. */
function Times({ spans }: { readonly spans: readonly Span[] }) {
  const times = useMemo(() => timesOf(spans), [spans]);
  return (
    <ul class="legend" aria-label="Time">
      {times.map(([kind, ms]) => (
        <li key={kind}>
          <span class={`swatch ${kind}`} />
          {kindNames[kind]} <b>{duration(ms)}</b>
        </li>
      ))}
    </ul>
  );
}

interface GridProps {
  readonly rows: readonly Row[];
  readonly frame: Frame;
  readonly begin: number;
  readonly selected: string;
  readonly onSelect: (id: string) => void;
  readonly onTurn: (row: Row) => void;
  readonly onZoom: (by: number, around: number) => void;
  readonly onPan: (share: number) => void;
}

/** The lines, of which only those near the view are in the page. */
function Grid({ rows, frame, begin, selected, onSelect, onTurn, onZoom, onPan }: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [fitting, setFitting] = useState(30);
  const [ticks, setTicks] = useState(8);
  const [active, setActive] = useState("");
  /** The row that gets the focus once it is in the page. */
  const wanted = useRef<string | null>(null);
  const acts = useRef({ onZoom, onPan });
  acts.current = { onZoom, onPan };

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const measure = (): void => {
      setFirst(Math.max(0, Math.floor(element.scrollTop / ROW_HEIGHT) - BEYOND));
      setFitting(Math.ceil(element.clientHeight / ROW_HEIGHT) + 2 * BEYOND);
    };
    const measureWidth = (): void => {
      measure();
      const width = element.querySelector(".ruler .track")?.clientWidth ?? 0;
      setTicks(Math.max(2, Math.min(8, Math.floor(width / TICK_WIDTH))));
    };
    const onWheel = (event: WheelEvent): void => {
      const track = element.querySelector(".ruler .track")?.getBoundingClientRect();
      if (track === undefined || !(event.ctrlKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)))
        return;
      event.preventDefault();
      if (event.ctrlKey) {
        const around = Math.min(1, Math.max(0, (event.clientX - track.left) / track.width));
        acts.current.onZoom(event.deltaY > 0 ? 1.25 : 0.8, around);
      } else acts.current.onPan((event.deltaX || event.deltaY) / track.width);
    };
    measureWidth();
    const size = new ResizeObserver(measureWidth);
    size.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => {
      size.disconnect();
      element.removeEventListener("scroll", measure);
      element.removeEventListener("wheel", onWheel);
    };
  }, []);
  const at = Math.max(
    0,
    rows.findIndex(({ id }) => id === active),
  );
  useLayoutEffect(() => {
    if (wanted.current === null) return;
    const element = document.getElementById(`row-${wanted.current}`);
    wanted.current = null;
    element?.focus({ preventScroll: true });
  });
  const goTo = (index: number): void => {
    const next = Math.min(rows.length - 1, Math.max(0, index));
    const row = rows[next];
    const element = box.current;
    if (row === undefined || element === null) return;
    const top = next * ROW_HEIGHT;
    const room = element.clientHeight - 2 * ROW_HEIGHT;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top > element.scrollTop + room) element.scrollTop = top - room;
    wanted.current = row.id;
    setActive(row.id);
  };
  const onKey = (event: KeyboardEvent): void => {
    const row = rows[at];
    if (row === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, fitting - 2 * BEYOND - 2);
    const to = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      Home: 0,
      End: rows.length - 1,
      PageDown: at + page,
      PageUp: at - page,
    }[event.key];
    if (to !== undefined) goTo(to);
    else if (event.key === "ArrowRight") row.isOpen === false ? onTurn(row) : goTo(at + 1);
    else if (event.key === "ArrowLeft") row.isOpen === true ? onTurn(row) : goTo(parentOf(rows, at));
    else if (event.key === "Enter" || event.key === " ") onSelect(row.id);
    else if (event.key === "Escape" && selected !== "") onSelect("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const last = Math.min(rows.length, first + fitting);
  const shown = rows.slice(Math.min(first, last), last).map((row, index) => [row, first + index] as const);
  // The row that has the focus stays in the page, wherever it is.
  const kept = rows[at];
  if (kept !== undefined && !shown.some(([row]) => row === kept)) shown.push([kept, at]);
  const end = now.value;
  return (
    <div
      class="grid"
      ref={box}
      role="treegrid"
      aria-label="Operations"
      aria-rowcount={rows.length + 1}
      onKeyDown={onKey}
    >
      <div class="ruler" role="row" aria-rowindex={1}>
        <span role="columnheader">{count(rows.length, "line")}</span>
        <span role="columnheader" class="track">
          {ticksIn(frame, begin, ticks).map((tick) => (
            <span key={tick} class="tick" style={{ left: `${placeIn(frame, tick)}%` }}>
              {placeIn(frame, tick) < 92 && tickName(tick - begin)}
            </span>
          ))}
        </span>
      </div>
      <div class="lines" role="rowgroup" style={{ height: `${rows.length * ROW_HEIGHT}px` }}>
        {shown.map(([row, index]) => (
          <Line
            key={row.id}
            row={row}
            index={index}
            frame={frame}
            end={end}
            isSelected={row.id === selected}
            hasFocus={index === at}
            onFocus={() => setActive(row.id)}
            onSelect={() => onSelect(row.id)}
            onTurn={() => onTurn(row)}
          />
        ))}
      </div>
    </div>
  );
}

/** A round time since the begin. */
function tickName(ms: number): string {
  if (ms === 0) return "0";
  return ms < 60_000 && ms % 1_000 === 0 ? `${ms / 1_000} s` : duration(ms);
}

function parentOf(rows: readonly Row[], at: number): number {
  const level = rows[at]?.level ?? 1;
  for (let index = at - 1; index >= 0; index--) if ((rows[index]?.level ?? 1) < level) return index;
  return 0;
}

function Line({
  row,
  index,
  frame,
  end,
  isSelected,
  hasFocus,
  onFocus,
  onSelect,
  onTurn,
}: {
  readonly row: Row;
  readonly index: number;
  readonly frame: Frame;
  /** The end of what lasts. */
  readonly end: number;
  readonly isSelected: boolean;
  readonly hasFocus: boolean;
  readonly onFocus: () => void;
  readonly onSelect: () => void;
  readonly onTurn: () => void;
}) {
  const { id, level, name, icon, type, isBad, isOpen, from, to } = row;
  const spans = row.spans.filter((span) => span.from <= frame.to && (span.to ?? end) >= frame.from);
  const isBefore = spans.length === 0 && from < frame.from;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the keys of the grid do the same.
    <div
      class={`line${isBad ? " bad" : ""}${isSelected ? " selected" : ""}`}
      id={`row-${id}`}
      role="row"
      aria-level={level}
      aria-rowindex={index + 2}
      aria-selected={isSelected}
      aria-expanded={isOpen ?? undefined}
      tabIndex={hasFocus ? 0 : -1}
      data-row
      style={{ top: `${index * ROW_HEIGHT}px` }}
      onFocus={onFocus}
      onClick={onSelect}
    >
      <span role="gridcell" class="what" style={{ paddingLeft: `${(level - 1) * 16}px` }}>
        {isOpen === null ? (
          level > 1 && <span class="fold" />
        ) : (
          <button
            type="button"
            class={`fold${isOpen ? " open" : ""}`}
            tabIndex={-1}
            onClick={(event) => {
              event.stopPropagation();
              onTurn();
            }}
          >
            <Icon is="fold" />
            <span class="unseen">
              {isOpen ? "Close" : "Open"} {name}
            </span>
          </button>
        )}
        <Icon is={icon} />
        <span class="unseen">{type} </span>
        <span class="title">{name}</span>
        <span class={`number faint${to === null ? " running" : ""}`}>{duration(Math.max(0, (to ?? end) - from))}</span>
      </span>
      <span role="gridcell" class={`track${row.type === "run" || row.type === "generation" ? " whole" : ""}`}>
        {spans.map((span) => (
          <Bar key={`${span.kind} ${span.from}`} span={span} frame={frame} end={end} />
        ))}
        {spans.length === 0 && <span class={`away ${isBefore ? "before" : "after"}`}>{isBefore ? "‹" : "›"}</span>}
        <span class="unseen">{sentence(row.spans, end)}</span>
      </span>
    </div>
  );
}

/** A span, as far as it is in the frame. */
function Bar({ span, frame, end }: { readonly span: Span; readonly frame: Frame; readonly end: number }) {
  const left = Math.max(-1, placeIn(frame, span.from));
  const right = Math.min(101, placeIn(frame, span.to ?? end));
  const style = { left: `${left}%`, width: `${Math.max(0, right - left)}%` };
  const title = `${kindNames[span.kind]}: ${duration(Math.max(0, (span.to ?? end) - span.from))}`;
  return <span class={`bar ${span.kind}${span.to === null ? " lasts" : ""}`} style={style} title={title} />;
}

/** How many spans those hear who cannot see them. */
const HEARD = 6;

function sentence(spans: readonly Span[], end: number): string {
  const said = [...spans]
    .sort((one, other) => one.from - other.from)
    .slice(0, HEARD)
    .map(({ kind, from, to }: { kind: Kind; from: number; to: number | null }) => {
      return `${kindNames[kind]} ${duration(Math.max(0, (to ?? end) - from))}`;
    });
  return said.join(", ");
}
