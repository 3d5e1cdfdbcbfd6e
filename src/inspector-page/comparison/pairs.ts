import type { TimelineItem } from "../../admin/timeline.ts";
import { textOf } from "../text-of.ts";

/** What two runs did in the same place. */
export interface Pair {
  readonly key: string;
  /** Null: the run did not come to it. */
  readonly left: TimelineItem | null;
  readonly right: TimelineItem | null;
  readonly isSame: boolean;
}

/** Equal pairs in a row, or one that differs. */
export type Stretch = { readonly equal: readonly Pair[] } | { readonly different: Pair };

/** How many equal pairs are shown before a difference, and how many are few enough to be shown all. */
const AROUND = 2;

/**
 * What two runs did, in pairs, in the order of the first run. Operations are paired by their keys, and output by its
 * number. What only the second run did comes where that run did it.
 */
export function pairsOf(left: readonly TimelineItem[], right: readonly TimelineItem[]): readonly Pair[] {
  const [ones, others] = [keyed(left), keyed(right)];
  const rest = [...others.keys()];
  const paired = new Set<string>();
  const pairs: Pair[] = [];
  let next = 0;
  /** Adds what only the second run did, up to the next operation that the first one comes to later. */
  const addAlone = (): void => {
    for (let key = rest[next]; key !== undefined && (paired.has(key) || !ones.has(key)); key = rest[++next])
      if (!paired.has(key)) pairs.push(pair(key, null, others.get(key)));
  };
  for (const [key, one] of ones) {
    addAlone();
    pairs.push(pair(key, one, others.get(key)));
    paired.add(key);
  }
  addAlone();
  return pairs;
}

/** Pairs, with long stretches of equal ones as one. */
export function stretchesOf(pairs: readonly Pair[]): readonly Stretch[] {
  const stretches: Stretch[] = [];
  let equal: Pair[] = [];
  const flush = (): void => {
    if (equal.length > 0) stretches.push({ equal });
    equal = [];
  };
  for (const one of pairs) {
    if (one.isSame) equal.push(one);
    else {
      flush();
      stretches.push({ different: one });
    }
  }
  flush();
  return stretches.flatMap((stretch): readonly Stretch[] => {
    if (!("equal" in stretch) || stretch.equal.length <= 2 * AROUND) return [stretch];
    const { equal: all } = stretch;
    return [{ equal: all.slice(0, -AROUND) }, ...all.slice(-AROUND).map((one) => ({ equal: [one] }))];
  });
}

/** What became of an item: what is compared, and shown. Times and attempts are no difference. */
export function outcomeOf(item: TimelineItem): unknown {
  switch (item.type) {
    case "created":
      return item.input.map(({ parts }) => textOf(parts)).join("\n");
    case "output":
      return item.objects.length === 0 ? item.text : { text: item.text, objects: item.objects };
    case "step":
      return item.error === null ? (item.result ?? null) : { error: item.error.message };
    case "question":
      return { question: textOf(item.parts), how: item.how, answer: item.answer, reason: item.reason };
    case "sleep":
      return item.how;
    case "receive":
      return { how: item.how, issues: item.issues };
    case "sub_run":
      return { status: item.status, error: item.error?.message ?? null };
    case "message":
      return item.data;
    case "ended":
      return { outcome: item.outcome, error: item.error?.message ?? null };
    case "continued":
      return item.carry;
    default:
      return null;
  }
}

function pair(key: string, left: TimelineItem | null, right: TimelineItem | undefined): Pair {
  const isSame =
    left !== null && right !== undefined && JSON.stringify(outcomeOf(left)) === JSON.stringify(outcomeOf(right));
  return { key, left, right: right ?? null, isSame };
}

/** The items that are compared, by what tells them apart in both runs. */
function keyed(items: readonly TimelineItem[]): ReadonlyMap<string, TimelineItem> {
  const found = new Map<string, TimelineItem>();
  const counts = new Map<string, number>();
  for (const item of items) {
    const name = nameOf(item);
    if (name === null) continue;
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    found.set("key" in item && item.type !== "ended" ? name : `${name}#${count}`, item);
  }
  return found;
}

function nameOf(item: TimelineItem): string | null {
  switch (item.type) {
    case "step":
    case "sleep":
    case "receive":
    case "sub_run":
    case "question":
      return item.key;
    case "created":
      return "input";
    case "ended":
      return "end";
    case "output":
    case "message":
      return item.type;
    case "continued":
      return "generation";
    default:
      return null;
  }
}
