import type { Figures } from "./figures.ts";
import { median, medianOf, valuesOf } from "./figures.ts";
import { format, rangeOf, row } from "./rows.ts";

/** A figure on PostgreSQL, and what it has to be: by itself, or as a ratio to another figure of the same command. */
interface Target {
  readonly title: string;
  readonly case: string;
  readonly subject?: string;
  readonly figure: string;
  /** What it is compared with. Left out are the case, the subject and the figure that are the same. */
  readonly beside?: { readonly title: string; readonly subject?: string; readonly figure?: string };
  readonly atLeast?: number;
  readonly atMost?: number;
}

const dbos = { title: "DBOS", subject: "dbos" };
const floor = { title: "floor", subject: "floor" };
const alone = { title: "floor, a statement each", subject: "floor, alone" };

const targets: readonly Target[] = [
  { title: "Runs/s, one process", case: "one process", figure: "runs", beside: dbos, atLeast: 3 },
  { title: "", case: "one process", figure: "runs", beside: floor, atLeast: 0.25 },
  { title: "", case: "one process", figure: "runs", beside: alone },
  { title: "Questions and answers/s, one process", case: "one process", figure: "cycles", beside: dbos, atLeast: 5 },
  { title: "", case: "one process", figure: "cycles", beside: floor, atLeast: 0.35 },
  { title: "", case: "one process", figure: "cycles", beside: alone },
  { title: "Runs/s, four processes", case: "four processes", figure: "runs", beside: dbos, atLeast: 6 },
  {
    title: "Questions and answers/s, four processes",
    case: "four processes",
    figure: "cycles",
    beside: dbos,
    atLeast: 6,
  },
  {
    title: "Appends/s, 50 at a time",
    case: "appends",
    figure: "batched",
    beside: { title: "one at a time", figure: "single" },
    atLeast: 3,
  },
  { title: "HOT share of these, %", case: "appends", figure: "hot", atLeast: 90 },
  {
    title: "Runs/s, in one session",
    case: "sessions",
    subject: "cadenza, one session",
    figure: "runs",
    beside: { title: "in a thousand", subject: "cadenza, sessions" },
    atLeast: 0.6,
  },
  {
    title: "the writes of these alone",
    case: "session writes",
    subject: "cadenza, one session",
    figure: "writes",
    beside: { title: "in a thousand", subject: "cadenza, sessions" },
    atLeast: 0.6,
  },
  {
    title: "Runs/s with hints, which a process hears",
    case: "hints",
    figure: "runs",
    beside: { title: "without", subject: "cadenza, no hints" },
    atLeast: 0.7,
  },
  {
    title: "`take` with nothing due among 500,000 runs, ms",
    case: "looking",
    figure: "take",
    beside: { title: "`list` of the newest 100", figure: "list" },
    atMost: 5,
  },
  { title: "Tables read as a whole meanwhile", case: "looking", figure: "scans", atMost: 0 },
  { title: "A part of a run elsewhere, p99, ms", case: "following", figure: "p99", atMost: 50 },
  { title: "the same without hints", case: "following", subject: "cadenza, no hints", figure: "p99", atMost: 400 },
  { title: "Queries/s for 1,000 silent runs elsewhere", case: "following", figure: "queries", atMost: 6 },
  { title: "the same without hints", case: "following", subject: "cadenza, no hints", figure: "queries", atMost: 6 },
  { title: "`BEGIN` in the server's log", case: "log", figure: "begins", atMost: 0 },
  { title: "Deadlocks of all these", case: "log", figure: "deadlocks", atMost: 0 },
];

/** One row for each target of which the figures were measured, in Markdown. */
export function targetTable(figures: Figures): string[] {
  const rows = targets.flatMap((target) => {
    const { title, case: name, subject = "cadenza", figure, beside } = target;
    const values = valuesOf(figures, name, subject, figure);
    const other = beside && medianOf(figures, name, beside.subject ?? subject, beside.figure ?? figure);
    if (values === undefined || (beside !== undefined && other === undefined)) return [];
    const ratio = other === undefined ? median(values) : median(values) / other;
    const cells = [title, format(median(values)), rangeOf(values)];
    const compared = other === undefined ? ["", "", ""] : [beside?.title ?? "", format(other), ratio.toPrecision(3)];
    return [row([...cells, ...compared, ...verdict(target, ratio)])];
  });
  return [
    "| | median | min – max | beside | its median | ratio | target | met |",
    "| --- | ---: | ---: | --- | ---: | ---: | ---: | --- |",
    ...rows,
  ];
}

function verdict({ atLeast, atMost }: Target, value: number): readonly string[] {
  if (atLeast !== undefined) return [`≥ ${atLeast}`, value >= atLeast ? "yes" : "**no**"];
  if (atMost !== undefined) return [`≤ ${atMost}`, value <= atMost ? "yes" : "**no**"];
  return ["", ""];
}
