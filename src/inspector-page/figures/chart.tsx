// biome-ignore assist/source/organizeImports: `language` mends what uPlot fails for as it is loaded.
import { language } from "./language.ts";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

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

const HEIGHT = 170;

/** A chart of steps of time. The arrow keys, or the pointer, say what a step is, and a table has the same numbers. */
export function Chart(props: ChartProps) {
  const { title, times, curves, form, shown, stepMs } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [index, setIndex] = useState<number | null>(null);
  const data = dataOf(props);
  const latest = useRef(data);
  latest.current = data;
  const looks = JSON.stringify([
    form,
    stepMs,
    curves.map(({ values, sum, ...curve }) => [curve, values.includes(null)]),
  ]);
  // A chart that looks otherwise is drawn anew; one with other numbers is told these.
  // biome-ignore lint/correctness/useExhaustiveDependencies: `looks` stands for the properties.
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const made = new uPlot(optionsOf(props, element, setIndex), latest.current, element);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const redraw = (): void => made.redraw();
    dark.addEventListener("change", redraw);
    return () => {
      dark.removeEventListener("change", redraw);
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [looks]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the numbers decide.
  useEffect(() => plot.current?.setData(data), [JSON.stringify(data)]);
  const goTo = (to: number): void => {
    const made = plot.current;
    const time = times[Math.min(times.length - 1, Math.max(0, to))];
    if (made !== null && time !== undefined) made.setCursor({ left: made.valToPos(time, "x"), top: 0 });
  };
  const keys: Readonly<Record<string, () => void>> = {
    ArrowLeft: () => goTo((index ?? times.length) - 1),
    ArrowRight: () => goTo((index ?? -1) + 1),
    Home: () => goTo(0),
    End: () => goTo(times.length - 1),
    Escape: () => plot.current?.setCursor({ left: -10, top: -10 }),
  };
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
        ref={box}
        class="plot"
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
        onBlur={() => keys["Escape"]?.()}
      />
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

/** Bars stand on each other: the first curve has the sum of all, and is drawn first. */
function dataOf({ times, curves, form }: ChartProps): uPlot.AlignedData {
  const values = curves.map((curve) => curve.values);
  if (form === "lines") return [[...times], ...values.map((line) => [...line])];
  const stacked = values.map((_, index) =>
    times.map((_time, at) => values.slice(index).reduce((sum, line) => sum + (line[at] ?? 0), 0)),
  );
  return [[...times], ...stacked];
}

function optionsOf(
  { curves, form, shown, onAxis = shown, stepMs }: ChartProps,
  element: HTMLElement,
  onIndex: (index: number | null) => void,
): uPlot.Options {
  const colourOf = (name: string): string => {
    element.style.color = `var(--${name})`;
    const { color } = getComputedStyle(element);
    element.style.color = "";
    return color;
  };
  const axis = {
    stroke: () => colourOf("faint"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: () => colourOf("line"), width: 1 },
    ticks: { show: false },
  };
  const bars = uPlot.paths.bars?.({ size: [0.7, 32], align: 1 });
  return {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [8, 22, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: form === "lines" } },
    scales: {
      x: { range: (_plot, least, most) => [least, most + (form === "bars" ? stepMs / 1_000 : 0)] },
      y: { range: (_plot, _least, most) => [0, Math.max(1, (most ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis, size: 26, gap: 8, space: 72, values: (_plot, times) => times.map((time) => timeOf(time, stepMs)) },
      { ...axis, size: 56, space: 32, values: (_plot, ticks) => ticks.map(onAxis) },
    ],
    series: [
      {},
      ...curves.map(({ label, colour, values, isDashed = false }): uPlot.Series => {
        // A line has no length between two steps without a value.
        const points = { show: values.includes(null), size: 5 };
        const common = { label, stroke: () => colourOf(colour), points };
        return form === "bars"
          ? { ...common, fill: () => colourOf(colour), width: 0, points: { show: false }, ...(bars && { paths: bars }) }
          : { ...common, width: 2, spanGaps: false, ...(isDashed && { dash: [6, 4] }) };
      }),
    ],
    hooks: { setCursor: [({ cursor: { idx = null, left = -1 } }) => onIndex(left < 0 ? null : idx)] },
  };
}

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

/** A number in few characters, such as "12.3k". */
export function few(value: number): string {
  if (value < 1_000) return Number.isInteger(value) ? String(value) : value.toFixed(1);
  return new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 }).format(value);
}
