import type { Retention, RuleRetention } from "../core/ports.ts";
import { labelsOf } from "../core/retention.ts";
import { digestOf } from "../runtime/log/system.ts";
import type { EndedPlace, PassedRuns } from "./kept-runs.ts";

/** The rules of a retention, and after them one without conditions, for the runs that no rule matches. */
export type Rules = readonly RuleRetention[];

/** Ended runs behind one place and up to another one. */
export interface Stretch<Id> {
  readonly from: EndedPlace<Id>;
  readonly to: EndedPlace<Id>;
}

/** A stretch of which the runs of some rules are deleted. */
export interface Walk<Id> extends Stretch<Id> {
  /** The numbers of these rules. */
  readonly of: readonly number[];
  /**
   * For each rule up to which time its runs were passed over before. Sub-runs that stayed then, because their parents had not
   * ended, are deleted when the parents are passed.
   */
  readonly passed: readonly number[];
}

/** What a store does in one statement or transaction, with as many runs as that takes. */
export interface EndedRuns<Id> extends PassedRuns<Id> {
  /** The first runs of a stretch: the last of them, and those that a rule with a number counts for. Undefined: there are none. */
  count(rules: Rules, stretch: Stretch<Id>): Promise<Counted<Id> | undefined>;
  /**
   * Deletes runs of the first ones of a stretch. `last`: how far it came; undefined: to the end. `hasSkipped`: runs stay that
   * another transaction locks.
   */
  prune(
    rules: Rules,
    walk: Walk<Id>,
  ): Promise<{ readonly deleted: number; readonly last: EndedPlace<Id> | undefined; readonly hasSkipped: boolean }>;
}

/** Ended runs in the order of their ends. */
export interface Counted<Id> {
  readonly last: EndedPlace<Id>;
  readonly found: readonly (EndedPlace<Id> & { readonly rule: number })[];
}

/** How far the walks came. Places are those of ended runs; what is left out begins in front of all. */
interface Progress<Id> {
  /** When the walks began, by the store's clock. */
  readonly since: number;
  /** Up to where runs are counted. */
  readonly head?: EndedPlace<Id>;
  /** By the numbers of rules: what was counted. */
  readonly tallies: Readonly<Record<number, Tally<Id>>>;
  /** By the numbers of rules: up to where all runs that were too old or too many are deleted. */
  readonly tails: Readonly<Record<number, EndedPlace<Id>>>;
}

/** How many runs were counted for a rule, and which ones some of them were. */
interface Tally<Id> {
  readonly total: number;
  /** The first is the newest of the runs after which enough others ended, if there is one. */
  readonly marks: readonly (EndedPlace<Id> & { readonly number: number })[];
}

/** So many marks are kept of a number of runs, at least; of a lower number each run is one. */
const MARKS = 64;
/** Within this time other processes may still write ends, in milliseconds: such runs are counted later. */
const LATE_END_MS = 60_000;
/** Runs that are written so long after their ends are met by all walks, in milliseconds. */
const LATEST_END_MS = 600_000;
/** After this time all runs are walked over anew, in milliseconds: 30 days. */
const ANEW_MS = 30 * 86_400_000;
/** So many stretches are walked before the place is written. */
const UNSAVED = 16;

/**
 * Deletes ended runs by rules. Each pass goes on where the last one ended, and passes over what has ended, or has become too
 * old, since then. What it costs does not depend on how many runs are kept. The places are in the store, under a key of their
 * own for each set of rules: a process that lives for a moment continues the work of others, and processes with other rules
 * do not disturb it.
 */
export class RuleWalks<Id> {
  readonly #runs: EndedRuns<Id>;

  constructor(runs: EndedRuns<Id>) {
    this.#runs = runs;
  }

  /** Deletes what the rules of a retention allow, and answers how many runs. */
  async prune({ rules: given = [], endedBefore }: Retention): Promise<number> {
    const rules: Rules = [...given, { endedBefore, maxRuns: Number.POSITIVE_INFINITY }];
    const record = new ProgressRecord<Id>(this.#runs, await keyOf(rules));
    await record.load();
    const tallies = await this.#count(rules, record);
    let deleted = 0;
    for (const { to, of } of this.#bordersOf(rules, tallies)) deleted += await this.#walk(rules, record, to, of);
    return deleted;
  }

  /** Counts the runs that have ended since the last pass. */
  async #count(rules: Rules, record: ProgressRecord<Id>): Promise<Progress<Id>["tallies"]> {
    if (rules.every(({ maxRuns }) => !Number.isFinite(maxRuns))) return {};
    const [start, end] = this.#runs.ends;
    const settled: EndedPlace<Id> = { at: record.now - LATE_END_MS, id: start.id };
    for (;;) {
      const { head: from = start } = record.progress;
      const counted = await this.#runs.count(rules, { from, to: settled });
      if (counted === undefined) break;
      await record.change((progress) => {
        const { head = start, tallies } = progress;
        // Another process has counted them.
        if (!isSame(head, from)) return progress;
        return { ...progress, head: counted.last, tallies: tallied(rules, tallies, counted) };
      });
    }
    let { head: from = start, tallies } = record.progress;
    for (;;) {
      const counted = await this.#runs.count(rules, { from, to: end });
      if (counted === undefined) return tallies;
      tallies = tallied(rules, tallies, counted);
      from = counted.last;
    }
  }

  /** The places up to which runs are deleted, each with its rules. */
  #bordersOf(
    rules: Rules,
    tallies: Progress<Id>["tallies"],
  ): Iterable<{ readonly to: EndedPlace<Id>; readonly of: number[] }> {
    const [start] = this.#runs.ends;
    const borders = new Map<string, { readonly to: EndedPlace<Id>; readonly of: number[] }>();
    for (const [rule, { endedBefore, maxRuns }] of rules.entries()) {
      const tally = tallies[rule];
      const mark = tally?.marks[0];
      const beyond = tally !== undefined && mark !== undefined && mark.number <= tally.total - maxRuns ? mark : start;
      // In front of all runs that ended at the time itself.
      const to = beyond.at >= endedBefore ? { at: beyond.at, id: beyond.id } : { at: endedBefore, id: start.id };
      const border = borders.get(`${to.at} ${to.id}`);
      if (border !== undefined) border.of.push(rule);
      else if (to.at > start.at) borders.set(`${to.at} ${to.id}`, { to, of: [rule] });
    }
    return borders.values();
  }

  async #walk(rules: Rules, record: ProgressRecord<Id>, to: EndedPlace<Id>, of: readonly number[]): Promise<number> {
    const [start] = this.#runs.ends;
    const latest: EndedPlace<Id> = { at: record.now - LATEST_END_MS, id: start.id };
    const tailOf = (rule: number): EndedPlace<Id> => record.progress.tails[rule] ?? start;
    let from = of.map(tailOf).reduce((one, other) => (this.#isBefore(other, one) ? other : one));
    if (!this.#isBefore(from, to)) return 0;
    let deleted = 0;
    let hasSkipped = false;
    for (let count = 1; ; count++) {
      const passed = rules.map((_, rule) => (of.includes(rule) ? from : tailOf(rule)).at);
      const walked = await this.#runs.prune(rules, { from, to, of, passed });
      deleted += walked.deleted;
      hasSkipped ||= walked.hasSkipped;
      from = walked.last ?? to;
      const isOver = walked.last === undefined;
      if (!hasSkipped && (isOver || count % UNSAVED === 0)) {
        const tail = this.#isBefore(latest, from) ? latest : from;
        await record.change((progress) => {
          const moved = of.filter((rule) => this.#isBefore(progress.tails[rule] ?? start, tail));
          const tails = { ...progress.tails, ...Object.fromEntries(moved.map((rule) => [rule, tail])) };
          return moved.length === 0 ? progress : { ...progress, tails };
        });
      }
      if (isOver) return deleted;
    }
  }

  #isBefore(one: EndedPlace<Id>, other: EndedPlace<Id>): boolean {
    return one.at < other.at || (one.at === other.at && Number(one.id) < Number(other.id));
  }
}

/** The progress under a key, which other processes change too. */
class ProgressRecord<Id> {
  readonly #runs: EndedRuns<Id>;
  readonly #key: string;
  #text: string | null = null;
  progress: Progress<Id> = { since: 0, tallies: {}, tails: {} };
  now = 0;

  constructor(runs: EndedRuns<Id>, key: string) {
    this.#runs = runs;
    this.#key = key;
  }

  async load(): Promise<void> {
    const { text, now } = await this.#runs.load(this.#key);
    this.#text = text;
    this.now = now;
    const found = text === null ? undefined : (JSON.parse(text) as Progress<Id>);
    const isOfUse = found !== undefined && Math.abs(now - found.since) < ANEW_MS;
    this.progress = isOfUse ? found : { since: now, tallies: {}, tails: {} };
  }

  /** Changes what is written, also after another process has changed it. */
  async change(of: (progress: Progress<Id>) => Progress<Id>): Promise<void> {
    for (;;) {
      const changed = of(this.progress);
      if (changed === this.progress) return;
      const text = JSON.stringify(changed);
      if (await this.#runs.save(this.#key, this.#text, text)) {
        this.#text = text;
        this.progress = changed;
        return;
      }
      await this.load();
    }
  }
}

function tallied<Id>(rules: Rules, before: Progress<Id>["tallies"], { found }: Counted<Id>): Progress<Id>["tallies"] {
  const tallies: Record<number, { total: number; marks: Tally<Id>["marks"][number][] }> = {};
  for (const { rule, at, id } of found) {
    const { total, marks } = before[rule] ?? { total: 0, marks: [] };
    tallies[rule] ??= { total, marks: [...marks] };
    const tally = tallies[rule];
    const { maxRuns = 0 } = rules[rule] ?? {};
    tally.total += 1;
    if (tally.total % Math.max(1, Math.floor(maxRuns / MARKS)) === 0) tally.marks.push({ at, id, number: tally.total });
    while (Number(tally.marks[1]?.number) <= tally.total - maxRuns) tally.marks.shift();
  }
  return { ...before, ...tallies };
}

function isSame<Id>(one: EndedPlace<Id>, other: EndedPlace<Id>): boolean {
  return one.at === other.at && one.id === other.id;
}

/** A key for the conditions and the numbers of the rules: with others, other runs are counted. */
function keyOf(rules: Rules): Promise<string> {
  const parts = rules.map((rule) => [
    rule.agent_name ?? null,
    rule.tenant ?? null,
    labelsOf(rule),
    Number.isFinite(rule.maxRuns) ? rule.maxRuns : null,
  ]);
  return digestOf(JSON.stringify(parts));
}
