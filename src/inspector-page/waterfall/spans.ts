import type { QuestionItem, StepItem, TimelineItem } from "../../admin/timeline.ts";

/** What a run did in a span of its time. */
export type Kind = "work" | "failed" | "lost" | "people" | "slot" | "sleep" | "message" | "pause";

export const kindNames: Readonly<Record<Kind, string>> = {
  work: "work",
  failed: "work that failed",
  lost: "interrupted",
  people: "waits for people",
  slot: "waits for a slot",
  sleep: "sleeps",
  message: "waits for a message",
  pause: "pauses before another attempt",
};

/** Times are in milliseconds since 1970. */
export interface Span {
  readonly kind: Kind;
  readonly from: number;
  /** Null: it lasts. */
  readonly to: number | null;
}

/** An item that has a begin and an end: what the rows of a waterfall show. */
export type Operation = Extract<TimelineItem, { readonly ended_at: string | null }>;

export function isOperation(item: TimelineItem): item is Operation {
  return "ended_at" in item;
}

const made = new WeakMap<Operation, readonly Span[]>();

/** The spans of an operation, the earliest first. They are made once for an item: an item that changes is another one. */
export function spansOf(item: Operation): readonly Span[] {
  let spans = made.get(item);
  if (spans === undefined) {
    spans = [...queued(item.at, item.type === "step" ? item.attempts[0]?.queued_ms : item.queued_ms), ...make(item)];
    made.set(item, spans);
  }
  return spans;
}

function make(item: Operation): readonly Span[] {
  const [from, to] = [Date.parse(item.at), timeOf(item.ended_at)];
  switch (item.type) {
    case "step":
      return item.attempts.length === 0 ? [{ kind: "work", from, to }] : attemptsOf(item);
    case "question":
      return [{ kind: "people", from, to }];
    case "sleep":
      return [{ kind: "sleep", from, to }];
    case "receive":
      return [{ kind: "message", from, to }];
    case "sub_run":
      return [{ kind: item.error === null && item.status !== "failed" ? "work" : "failed", from, to }];
  }
}

function attemptsOf({ attempts, ended_at, retry_at }: StepItem): readonly Span[] {
  return attempts.flatMap((attempt, index): readonly Span[] => {
    const next = attempts[index + 1];
    const from = Date.parse(attempt.started_at);
    const ended = timeOf(attempt.ended_at);
    const nextFrom = next === undefined ? null : Date.parse(next.started_at) - (next.queued_ms ?? 0);
    // When an attempt ended that was interrupted is not recorded.
    const to = ended ?? nextFrom ?? timeOf(ended_at);
    const kind = attempt.error !== null ? "failed" : ended === null && next !== undefined ? "lost" : "work";
    const worked: Span = { kind, from, to };
    if (next === undefined)
      return to !== null && retry_at !== null ? [worked, { kind: "pause", from: to, to: null }] : [worked];
    const paused: readonly Span[] = ended === null ? [] : [{ kind: "pause", from: ended, to: nextFrom }];
    return [worked, ...paused, ...queued(next.started_at, next.queued_ms)];
  });
}

/** The time in a queue before something began. */
function queued(at: string, ms: number | undefined): readonly Span[] {
  const to = Date.parse(at);
  return ms === undefined || ms === 0 ? [] : [{ kind: "slot", from: to - ms, to }];
}

/** When a run was in no process yet: from its creation to its start. */
export function beforeStart(items: readonly TimelineItem[], createdAt: string): readonly Span[] {
  const started = items.find(({ type }) => type === "started");
  const from = Date.parse(createdAt);
  const to = started === undefined ? null : Date.parse(started.at);
  return to !== null && to <= from ? [] : [{ kind: "slot", from, to }];
}

/** While the runs below a run wait for people, by the key of the sub-run through which they do. */
export function questionsBelow(items: readonly TimelineItem[]): ReadonlyMap<string, readonly QuestionItem[]> {
  const subRuns = new Set(items.flatMap((item) => (item.type === "sub_run" ? [item.key] : [])));
  const found = new Map<string, QuestionItem[]>();
  for (const item of items) {
    if (item.type !== "question" || item.of === null) continue;
    // The key of a question of a sub-run begins with the key of the sub-run, and either may hold a slash.
    for (let end = item.key.lastIndexOf("/"); end > 0; end = item.key.lastIndexOf("/", end - 1)) {
      const key = item.key.slice(0, end);
      if (!subRuns.has(key)) continue;
      found.set(key, [...(found.get(key) ?? []), item]);
      break;
    }
  }
  return found;
}

/** Spans, and others in their place where both are. */
export function laidOver(spans: readonly Span[], over: readonly Span[]): readonly Span[] {
  if (over.length === 0) return spans;
  const holes = [...over].sort((one, other) => one.from - other.from);
  const left = spans.flatMap((span) => {
    const rests: Span[] = [];
    let { from } = span;
    const end = span.to ?? Number.POSITIVE_INFINITY;
    for (const hole of holes) {
      if (hole.from > from) rests.push({ ...span, from, to: Math.min(hole.from, end) });
      from = Math.max(from, hole.to ?? Number.POSITIVE_INFINITY);
      if (from >= end) break;
    }
    if (from < end) rests.push({ ...span, from });
    return rests.filter((rest) => rest.from < (rest.to ?? Number.POSITIVE_INFINITY));
  });
  return [...left, ...holes];
}

/** What is said to be done while several things are done at once: the first of these. */
const first: readonly Kind[] = ["work", "failed", "lost", "slot", "pause", "people", "message", "sleep"];

/**
 * What was done at each moment of a time, without overlaps. What lies between operations is work of the agent's own code.
 * A `to` of null is `end`.
 */
export function flattened(spans: readonly Span[], from: number, end: number): readonly Span[] {
  const depths = first.map(() => 0);
  const found: { kind: Kind; from: number; to: number }[] = [];
  let before = from;
  const add = (to: number): void => {
    if (to <= before) return;
    const kind = first[depths.findIndex((depth) => depth > 0)] ?? "work";
    const last = found.at(-1);
    if (last?.kind === kind) last.to = to;
    else found.push({ kind, from: before, to });
    before = to;
  };
  for (const edge of edgesOf(spans, from, end)) {
    const code = edge % CODES;
    add(Math.min(end, (edge - code) / CODES));
    const kind = code >> 1;
    depths[kind] = (depths[kind] ?? 0) + (code % 2 === 0 ? 1 : -1);
  }
  add(end);
  return found;
}

/** More than there are kinds of begins and ends. */
const CODES = 16;

/** The begins and ends of spans in their order, each as one number: a long run has tens of thousands, and numbers are sorted fast. */
function edgesOf(spans: readonly Span[], from: number, end: number): Float64Array {
  const edges = new Float64Array(spans.length * 2);
  for (const [index, span] of spans.entries()) {
    const code = first.indexOf(span.kind) * 2;
    edges[2 * index] = Math.round(Math.max(from, span.from)) * CODES + code;
    edges[2 * index + 1] = Math.round(Math.max(from, Math.min(end, span.to ?? end))) * CODES + code + 1;
  }
  return edges.sort();
}

/** How long what was done, in milliseconds, the longest first. */
export function timesOf(spans: readonly Span[]): readonly (readonly [Kind, number])[] {
  const times = new Map<Kind, number>();
  for (const { kind, from, to } of spans) times.set(kind, (times.get(kind) ?? 0) + (to ?? from) - from);
  return [...times].sort(([, one], [, other]) => other - one);
}

function timeOf(at: string | null): number | null {
  return at === null ? null : Date.parse(at);
}
