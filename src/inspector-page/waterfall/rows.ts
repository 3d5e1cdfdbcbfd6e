import type { AdminRun } from "../../admin/records.ts";
import type { QuestionItem, SubRunItem, TimelineItem } from "../../admin/timeline.ts";
import type { Operation, Span } from "./spans.ts";
import { beforeStart, flattened, isOperation, laidOver, questionsBelow, spansOf } from "./spans.ts";

/** A run with what is known of its timeline. */
export interface Told {
  readonly run: AdminRun;
  readonly items: readonly TimelineItem[];
}

type RowIcon = "runs" | "generation" | "step" | "model" | "tool" | "sleep" | "message" | "question";

/** A line of a waterfall: a run, a generation of it, or an operation. */
export interface Row {
  /** The run and the position in its log. */
  readonly id: string;
  /** From 1 on. */
  readonly level: number;
  readonly run: AdminRun;
  /** Null: the run itself. */
  readonly item: TimelineItem | null;
  readonly name: string;
  readonly icon: RowIcon;
  /** What the icon says, in a word. */
  readonly type: string;
  readonly isBad: boolean;
  readonly spans: readonly Span[];
  readonly from: number;
  /** Null: it lasts. */
  readonly to: number | null;
  /** Whether there are lines below it; null: it has none. */
  readonly isOpen: boolean | null;
}

/**
 * The lines of a run, in the order in which its operations began, with the lines of open sub-runs. A question of
 * a sub-run is a line of the run that asks it alone. `turned`: the ids of the lines that the user has opened or closed;
 * otherwise sub-runs are closed, and generations but the last one. `whole`: what the run did in
 * all, without overlaps, up to now.
 */
export function rowsOf(
  root: Told,
  below: ReadonlyMap<string, Told>,
  turned: ReadonlySet<string>,
  whole: readonly Span[],
): readonly Row[] {
  const now = whole.at(-1)?.to ?? 0;
  const rows: Row[] = [];
  const { run, items } = root;
  const from = Date.parse(run.created?.at ?? items[0]?.at ?? "");
  const to = endOf(run);
  rows.push({
    ...{ id: runRowId(run.run_id), level: 1, run, item: null, from, to, isOpen: null, isBad: run.status === "failed" },
    ...{
      name: run.created?.agent_name ?? "cannot be read",
      icon: "runs",
      type: "run",
      spans: fewOf(whole, from, to),
    },
  });
  addRun(root, 2);
  return rows;

  function addRun(told: Told, level: number): void {
    const generations = generationsOf(told.items);
    const questions = questionsBelow(told.items);
    for (const [index, generation] of generations.entries()) {
      const next = generations[index + 1];
      if (generations.length === 1) {
        addItems(told, generation.items, questions, level);
        continue;
      }
      const id = `${told.run.run_id}:g${generation.number}`;
      const isOpen = (next === undefined) !== turned.has(id);
      const from = Date.parse(generation.at);
      const to = next === undefined ? endOf(told.run) : Date.parse(next.at);
      const spans = inAll(ownSpans({ run: told.run, items: generation.items }), from, to, now);
      rows.push({
        ...{ id, level, run: told.run, item: generation.mark, from, to, isOpen, isBad: false, icon: "generation" },
        ...{ name: `generation ${generation.number}`, type: "generation", spans },
      });
      if (isOpen) addItems(told, generation.items, questions, level + 1);
    }
  }

  function addItems(told: Told, items: readonly TimelineItem[], questions: Questions, level: number): void {
    const end = endOf(told.run);
    for (const item of items) {
      if (!isOperation(item) || (item.type === "question" && item.of !== null)) continue;
      const row = rowOf(told.run, item, level, end);
      if (item.type !== "sub_run") {
        rows.push(row);
        continue;
      }
      const child = below.get(item.run_id);
      const isOpen = turned.has(row.id);
      rows.push({ ...row, spans: spansOfSubRun(item, child, questions.get(item.key) ?? [], end), isOpen });
      if (child !== undefined && isOpen) addRun(child, level + 1);
    }
  }
}

/** What a run itself did, in its queue, and in its operations. */
export function ownSpans({ run, items }: Told): readonly Span[] {
  const questions = questionsBelow(items);
  return [
    ...(items[0]?.type === "created" ? beforeStart(items, run.created?.at ?? "") : []),
    ...items.flatMap((item) => {
      if (!isOperation(item) || (item.type === "question" && item.of !== null)) return [];
      const asked = item.type === "sub_run" ? (questions.get(item.key) ?? []).flatMap(spansOf) : [];
      return laidOver(spansOf(item), asked);
    }),
  ];
}

/** How many operations are named as those that took longest. */
const LONGEST = 3;

/** The lines of the operations of a run that took longest, the longest first. What lasts has lasted up to now. */
export function longestOf({ run, items }: Told, now: number): readonly Row[] {
  const lasted = ({ from, to }: Row): number => (to ?? now) - from;
  const longest: Row[] = [];
  for (const item of items) {
    if (!isOperation(item) || (item.type === "question" && item.of !== null)) continue;
    const row = rowOf(run, item, 2, endOf(run));
    const place = longest.findIndex((other) => lasted(row) > lasted(other));
    longest.splice(place === -1 ? longest.length : place, 0, row);
    longest.length = Math.min(longest.length, LONGEST);
  }
  return longest.filter((row) => lasted(row) > 0);
}

type Questions = ReturnType<typeof questionsBelow>;

/** The id of the line of a run at the top. */
function runRowId(run_id: string): string {
  return `${run_id}:0`;
}

interface Generation {
  readonly number: number;
  /** The mark with which it begins; null for the first one. */
  readonly mark: TimelineItem | null;
  readonly at: string;
  readonly items: TimelineItem[];
}

function generationsOf(items: readonly TimelineItem[]): readonly Generation[] {
  const generations: Generation[] = [{ number: 1, mark: null, at: items[0]?.at ?? "", items: [] }];
  for (const item of items) {
    if (item.type === "continued") generations.push({ number: item.generation, mark: item, at: item.at, items: [] });
    else generations.at(-1)?.items.push(item);
  }
  return generations;
}

function endOf({ finished_at }: AdminRun): number | null {
  return finished_at === null ? null : Date.parse(finished_at);
}

/** A sub-run that was opened tells what it did itself. Of another one it is known while it waits for people. */
function spansOfSubRun(
  item: SubRunItem,
  child: Told | undefined,
  asked: readonly QuestionItem[],
  end: number | null,
): readonly Span[] {
  const spans = spansOf(item).map((span) => ended(span, end));
  const to = spans.at(-1)?.to ?? null;
  const own = child === undefined ? asked.flatMap(spansOf) : ownSpans(child).filter(({ kind }) => kind !== "work");
  return laidOver(
    spans,
    own.map((span) => ended(span, to)),
  );
}

/** How many spans a line has at most that tells what was done below it. */
const MOST_SPANS = 200;

/** What was done in a time, in all. */
function inAll(spans: readonly Span[], from: number, to: number | null, now: number): readonly Span[] {
  return fewOf(flattened(spans, from, to ?? Math.max(from, now)), from, to);
}

function fewOf(spans: readonly Span[], from: number, to: number | null): readonly Span[] {
  return spans.length > MOST_SPANS ? [{ kind: "work", from, to }] : spans;
}

/** The rows of operations. An item that changes is another one, and so is its row. */
const made = new WeakMap<Operation, Row>();

function rowOf(run: AdminRun, item: Operation, level: number, end: number | null): Row {
  const known = made.get(item);
  if (known !== undefined && known.level === level && (known.to !== null || end === null)) return known;
  const spans = spansOf(item).map((span) => ended(span, end));
  const to = item.ended_at === null ? end : Date.parse(item.ended_at);
  const isBad = (item.type === "step" || item.type === "sub_run") && item.error !== null;
  const { name, icon, type } = faceOf(item);
  const from = spans[0]?.from ?? Date.parse(item.at);
  const id = `${run.run_id}:${item.position}`;
  const row = { id, level, run, item, name, icon, type, isBad, spans, from, to, isOpen: null };
  made.set(item, row);
  return row;
}

/** What lasts has ended with its run. */
function ended(span: Span, end: number | null): Span {
  return span.to === null && end !== null ? { ...span, to: end } : span;
}

function faceOf(item: Operation): Pick<Row, "name" | "icon" | "type"> {
  switch (item.type) {
    case "step":
      return {
        name: item.name,
        icon: item.of === "agent" ? "step" : item.of,
        type: item.of === "agent" ? "step" : item.of,
      };
    case "sleep":
      return { name: "sleep", icon: "sleep", type: "sleep" };
    case "receive":
      return { name: item.name, icon: "message", type: "receive" };
    case "sub_run":
      return { name: item.agent_name, icon: "runs", type: "sub-run" };
    case "question":
      return { name: item.name ?? textIn(item.parts), icon: "question", type: "question" };
  }
}

function textIn(parts: Extract<Operation, { type: "question" }>["parts"]): string {
  return parts.find(({ content_type, content }) => content_type === "text/plain" && content)?.content ?? "question";
}
