import type { AxisOptions, BarChartOptions, ChartRect, Data, LineChartOptions } from "chartist";
import { BarChart, LineChart, Svg } from "chartist";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** The colours of curves, by their names in the style sheet. */
export const colours = ["work", "people", "slot", "good", "pause", "accent", "bad", "sleep", "edge"] as const;
export type Colour = (typeof colours)[number];

/** One curve, or one part of the bars. */
export interface Curve {
  readonly label: string;
  readonly colour: Colour;
  readonly isDashed?: boolean;
  /** One for each time; null: there is none. */
  readonly values: readonly (number | null)[];
  /** What it comes to over all times, in words. */
  readonly sum: string;
}

interface ChartProps {
  readonly title: string;
  /** The beginnings of the steps, in seconds since the epoch. */
  readonly times: readonly number[];
  readonly stepMs: number;
  readonly curves: readonly Curve[];
  /** Bars stand on each other. */
  readonly form: "bars" | "lines";
  readonly shown: (value: number) => string;
  /** The same in few characters, beside the axis. Default: `shown`. */
  readonly onAxis?: (value: number) => string;
}

/** How much room a text below the chart has, in pixels. */
const TEXT_WIDTH = 76;
/** The room at the left of the chart. */
const AXIS_WIDTH = 56;

/** A chart of steps of time. The arrow keys, or the pointer, say what a step is, and a table has the same numbers. */
export function Chart(props: ChartProps) {
  const { title, times, curves, form, shown, stepMs } = props;
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<BarChart | LineChart | null>(null);
  const [index, setIndex] = useState<number | null>(null);
  const [rect, setRect] = useState<Pick<ChartRect, "x1" | "x2"> | null>(null);
  const drawn = JSON.stringify([form, stepMs, times[0], curves]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `drawn` has what is drawn.
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const data = dataOf(props);
    const width = element.clientWidth;
    if (chart.current === null) {
      const made =
        form === "bars"
          ? new BarChart(element, data, barsOf(props, width))
          : new LineChart(element, data, linesOf(props, width));
      made.on("created", ({ chartRect: { x1, x2 } }: { readonly chartRect: ChartRect }) => setRect({ x1, x2 }));
      chart.current = made;
    } else if (chart.current instanceof BarChart) chart.current.update(data, barsOf(props, width), true);
    else chart.current.update(data, linesOf(props, width), true);
  }, [drawn]);
  useEffect(() => () => void chart.current?.detach(), []);
  const goTo = (to: number): void => setIndex(Math.min(times.length - 1, Math.max(0, to)));
  const keys: Readonly<Record<string, () => void>> = {
    ArrowLeft: () => goTo((index ?? times.length) - 1),
    ArrowRight: () => goTo((index ?? -1) + 1),
    Home: () => goTo(0),
    End: () => goTo(times.length - 1),
    Escape: () => setIndex(null),
  };
  // Bars stand in the middle of their steps, and the ends of lines at the ends of the chart.
  const steps = form === "bars" ? times.length : times.length - 1;
  const stepWidth = rect === null ? 0 : (rect.x2 - rect.x1) / steps;
  const shift = form === "bars" ? 0.5 : 0;
  const at = index === null ? null : (times[index] ?? null);
  const textIn = (curve: Curve): string => (index === null ? curve.sum : textOf(curve.values[index], shown));
  const values = curves.map((curve) => `${curve.label} ${textIn(curve)}`);
  const said = `${at === null ? "all times" : timeOf(at, stepMs)}: ${values.join(", ")}`;
  return (
    <figure class="chart card">
      <figcaption>
        <h2>{title}</h2>
        <span class="faint">{at === null ? "" : timeOf(at, stepMs)}</span>
      </figcaption>
      <ul class="curves">
        {curves.map((curve) => (
          <li key={curve.label}>
            <span
              class={`curve ${curve.isDashed ? "dashed" : ""} ${form}`}
              style={{ color: `var(--${curve.colour})` }}
            />
            {curve.label} <b>{textIn(curve)}</b>
          </li>
        ))}
      </ul>
      <div
        class={`plot ${form}`}
        style={{ "--bar": `${Math.min(28, Math.max(1, stepWidth * 0.7))}px` }}
        role="slider"
        tabIndex={0}
        aria-label={`${title}, by time`}
        aria-valuemin={0}
        aria-valuemax={times.length - 1}
        aria-valuenow={index ?? times.length - 1}
        aria-valuetext={said}
        onKeyDown={(event) => {
          const act = keys[event.key];
          if (act === undefined) return;
          event.preventDefault();
          event.stopPropagation();
          act();
        }}
        onPointerMove={({ clientX, currentTarget }) => {
          if (rect === null) return;
          const x = clientX - currentTarget.getBoundingClientRect().left - rect.x1;
          goTo(Math.floor(x / stepWidth + 0.5 - shift));
        }}
        onPointerLeave={() => setIndex(null)}
        onBlur={() => setIndex(null)}
      >
        <div ref={box} />
        {index !== null && rect !== null && (
          <span class="cursor" style={{ left: `${rect.x1 + (index + shift) * stepWidth}px` }} />
        )}
      </div>
      <details>
        <summary>As a table</summary>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what is scrolled has to be reached by keys. */}
        <section class="wide numbers" aria-label={title} tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">From</th>
                {curves.map(({ label }) => (
                  <th key={label} scope="col" class="number">
                    {label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {times.map((time, row) => (
                <tr key={time}>
                  <th scope="row">{timeOf(time, stepMs)}</th>
                  {curves.map(({ label, values }) => (
                    <td key={label} class="number">
                      {textOf(values[row], shown)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      </details>
    </figure>
  );
}

function textOf(value: number | null | undefined, shown: (value: number) => string): string {
  return value == null ? "–" : shown(value);
}

const DAY_MS = 86_400_000;
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", timeZone: "UTC" });
const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

/** When a step begins. Days are those of UTC. */
function timeOf(seconds: number, stepMs: number): string {
  return (stepMs >= DAY_MS ? day : minute).format(seconds * 1_000);
}

function dataOf({ times, curves }: ChartProps): Data<{ className: string; data: (number | null)[] }[]> {
  return {
    labels: [...times],
    series: curves.map(({ colour, isDashed = false, values }) => ({
      className: `of-${colour}${isDashed ? " dashed" : ""}`,
      data: [...values],
    })),
  };
}

function axesOf(props: ChartProps, width: number): { readonly axisX: AxisOptions; readonly axisY: AxisOptions } {
  const { times, curves, shown, onAxis = shown, stepMs } = props;
  const every = labelled(times.length, stepMs, width - AXIS_WIDTH);
  const shift = stepMs >= DAY_MS ? 0 : new Date().getTimezoneOffset() * 60_000;
  const highest = Math.max(0, ...curves.flatMap(({ values }) => values.map((value) => value ?? 0)));
  return {
    axisX: {
      showGrid: false,
      offset: 24,
      // Texts at round times.
      labelInterpolationFnc: (time) =>
        Math.round((Number(time) * 1_000 - shift) / stepMs) % every === 0 ? timeOf(Number(time), stepMs) : null,
    },
    axisY: {
      offset: AXIS_WIDTH - 8,
      labelOffset: { x: 0, y: 6 },
      low: 0,
      ...(highest === 0 && { high: 1 }),
      scaleMinSpace: 30,
      onlyInteger: curves.every(({ values }) => values.every((value) => value === null || Number.isInteger(value))),
      labelInterpolationFnc: (value) => onAxis(Number(value)),
    },
  };
}

/** After how many minutes texts stand. */
const rounds = [1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 720, ...[1, 2, 5, 10].map((days) => days * 1_440)];

/** Every how many steps there is room for a text. */
function labelled(steps: number, stepMs: number, width: number): number {
  const least = (TEXT_WIDTH * steps) / Math.max(width, TEXT_WIDTH);
  const fitting = rounds.map((minutes) => (minutes * 60_000) / stepMs).find((every) => every >= Math.max(1, least));
  return Math.ceil(fitting ?? steps);
}

const common = { height: 170, chartPadding: { top: 14, right: 28, bottom: 0, left: 0 } } as const;

function barsOf(props: ChartProps, width: number): BarChartOptions {
  return { ...common, ...axesOf(props, width), stackBars: true };
}

function linesOf(props: ChartProps, width: number): LineChartOptions {
  const showPoint = props.curves.some(({ values }) => values.includes(null));
  return { ...common, ...axesOf(props, width), fullWidth: true, lineSmooth: false, showPoint };
}

/* The policy of the page refuses styles in attributes, which Chartist writes: as properties they are allowed. */
const setAttributes: unknown = Svg.prototype.attr;
Object.defineProperty(Svg.prototype, "attr", {
  value(this: Svg, attributes: string | Readonly<Record<string, unknown>>, namespace?: string): unknown {
    if (typeof setAttributes !== "function") return this;
    if (typeof attributes === "string") return Reflect.apply(setAttributes, this, [attributes, namespace]);
    const { style, ...others } = attributes;
    if (style !== undefined) this.getNode<SVGElement>().style.cssText = String(style);
    return Reflect.apply(setAttributes, this, [others]);
  },
});

/** A duration in few characters, such as "1.3 min". */
export function fewMs(ms: number): string {
  const [size, unit] = units.find(([size]) => ms >= size * 1.5) ?? ([1, "ms"] as const);
  return `${Math.round((10 * ms) / size) / 10} ${unit}`;
}

const units = [
  [DAY_MS, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
] as const;

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A number in few characters, such as "12.3k". */
export function few(value: number): string {
  if (value < 1_000) return Number.isInteger(value) ? String(value) : value.toFixed(1);
  return compact.format(value);
}
