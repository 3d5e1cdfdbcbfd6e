import type { Figures, Result } from "./figures.ts";
import { median, medianOf, valuesOf } from "./figures.ts";
import type { Measure } from "./plan.ts";
import { measures, PEERS } from "./plan.ts";
import { format, rangeOf, row } from "./rows.ts";
import { targetTable } from "./targets.ts";

/** The subjects that ratios refer to. */
const REFERENCES = ["bare-duties", "zod"];
const names: Readonly<Record<string, string>> = {
  "bare-duties": "`bare-duties`",
  bare: "`bare`",
  cadenza: "**Cadenza**",
  "cadenza, late store": "Cadenza, store that answers with promises",
  "cadenza, asking": "Cadenza, waiting in `context.ask`",
  zod: "`zod` alone",
  a2a: "A2A SDK",
  langgraph: "LangGraph",
  mastra: "Mastra",
  xstate: "XState",
};

/** All figures and their conditions, in Markdown. */
export function fullTable(figures: Figures): string {
  const tables: Readonly<Record<string, (figures: Figures) => string[]>> = {
    growth: growthTable,
    postgres: targetTable,
  };
  const lines = (tables[figures.plan] ?? measureTable)(figures);
  return `${conditions(figures)}\n\n${lines.join("\n")}`;
}

/** The medians of the library, the floor with the same duties and the peers, in Markdown. */
export function shortTable(figures: Figures): string {
  const { rounds, date, node, machine } = figures;
  const cells = (subject: string): string[] =>
    shortColumns.map(([, name, figure]) => {
      const value = medianOf(figures, name, subject, figure);
      return value === undefined ? "–" : format(value);
    });
  return [
    `Medians of ${rounds} rounds, ${date}, Node ${node}, ${machine.processor}, ${machine.cores} cores:`,
    "",
    row(["", ...shortColumns.map(([title]) => title)]),
    row(["---", ...shortColumns.map(() => "---:")]),
    ...["cadenza", ...PEERS, "bare-duties"].map((subject) => row([names[subject] ?? subject, ...cells(subject)])),
  ].join("\n");
}

const shortColumns: readonly (readonly [title: string, name: string, figure: string])[] = [
  ["runs/s", "runs", "in turn"],
  ["asked and answered, runs/s", "awaits", "in turn"],
  ["streamed, parts/s", "streams", "1,000 parts"],
  ["a run that waits, bytes", "waiting", "bytes"],
  ["import, ms", "imports", "milliseconds"],
  ["packages", "installed", "packages"],
  ["MB", "installed", "megabytes"],
];

/** When, where and what was measured. */
function conditions({ date, machine, node, packages, commit, rounds }: Figures): string {
  const { processor, cores, system, load } = machine;
  const versions = Object.entries(packages).map(([name, version]) => `${name} ${version}`);
  return [
    `${date}, ${processor}, ${cores} cores, ${system}, load ${load} before. Node ${node}, commit ${commit}.`,
    `${rounds} rounds. ${versions.join(", ")}.`,
  ].join("\n");
}

function measureTable(figures: Figures): string[] {
  const head = ["| | | median | min – max | ratio |", "| --- | --- | ---: | ---: | ---: |"];
  return [...head, ...measures.flatMap((measure) => rowsOf(figures, measure))];
}

/** One row for each subject that has the figure. */
function rowsOf(figures: Figures, measure: Measure): string[] {
  const { case: name, figure, title, unit } = measure;
  const subjects = figures.results.filter((result) => result.case === name && result.figure === figure);
  return subjects.map(({ subject, values }, index) => {
    const reference = medianOf(figures, name, referenceOf(subject, subjects), figure) ?? Number.NaN;
    const ratio = median(values) / reference;
    return row([
      index === 0 ? `${title}, ${unit}` : "",
      names[subject] ?? subject,
      format(median(values)),
      rangeOf(values),
      ratio < 0.1 ? ratio.toPrecision(2) : ratio.toFixed(2),
    ]);
  });
}

/**
 * What a subject's ratio refers to: for a variant of the library its default, for all others the first reference with a
 * figure.
 */
function referenceOf(subject: string, results: readonly Result[]): string {
  if (subject.startsWith("cadenza, ")) return "cadenza";
  return REFERENCES.find((name) => results.some((result) => result.subject === name)) ?? "cadenza";
}

/** Which figures of which case show how a cost grows, and with what. */
const curves: readonly (readonly [name: string, prefix: string, title: string])[] = [
  ["growth-live", "", "A run, with so many at work at once"],
  ["growth-waiting", "run ", "A run, with so many others waiting"],
  ["growth-waiting", "answer ", "Ask and answer, with so many others waiting"],
  ["growth-remembered", "", "A run, with so many ended ones remembered"],
  ["growth-listeners", "", "A run, with so many listeners to its end"],
  ["growth-parts", "", "A part, in a stream of so many"],
];

/** The costs of each curve for the library and the floor, in microseconds, and their growth. */
function growthTable(figures: Figures): string[] {
  const rows = curves.flatMap(([name, prefix, title]) => {
    const counts = figures.results
      .filter((result) => result.case === name && result.subject === "cadenza" && result.figure.startsWith(prefix))
      .map(({ figure }) => Number(figure.slice(prefix.length)))
      .filter((count) => !Number.isNaN(count))
      .toSorted((a, b) => a - b);
    const cells = (subject: string, count: number): string[] => {
      const values = valuesOf(figures, name, subject, prefix + count);
      const first = medianOf(figures, name, subject, prefix + counts[0]);
      if (values === undefined || first === undefined) return ["", "", ""];
      return [format(median(values)), rangeOf(values), (median(values) / first).toFixed(2)];
    };
    return counts.map((count, index) =>
      row([
        index === 0 ? title : "",
        count.toLocaleString("en"),
        ...cells("cadenza", count),
        ...cells("bare-duties", count),
      ]),
    );
  });
  const columns = "µs | min – max | to the first";
  return [
    `| | how many | ${columns} | \`bare-duties\`, ${columns} |`,
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ...rows,
  ];
}
