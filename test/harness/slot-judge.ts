import type { SqliteDatabase } from "cadenza/sqlite";
import type { RunHead, RunKey, RunWrite, Store } from "cadenza/store";
import type { MaybePromise, Rate, Slot } from "./internals.ts";

/** What a store shows of a run. */
interface Shown {
  readonly key: RunKey;
  readonly head: RunHead;
}

/** What a rate has given, by what was seen. */
interface Given {
  readonly rate: Rate;
  times: number[];
  /** Runs have asked for the key with other rates, too: it is not judged. */
  isMixed: boolean;
}

/**
 * Judges by what a store shows whether it keeps the limits of its slots and its rates. It is told which slots a new run
 * has, and looks after each call.
 */
export class SlotJudge {
  readonly #slots = new Map<string, readonly Slot[]>();
  /** The runs that have held permits. */
  readonly #begun = new Set<string>();
  /** By the key of the slot. */
  readonly #given = new Map<string, Given>();

  onCreated(key: RunKey, slots: readonly Slot[] = []): void {
    this.#slots.set(nameOf(key), slots);
    this.#begun.delete(nameOf(key));
    for (const { key: name, rate } of slots) {
      if (rate === undefined) continue;
      const given = this.#given.get(name);
      if (given === undefined) this.#given.set(name, { rate, times: [], isMixed: false });
      else given.isMixed ||= given.rate.count !== rate.count || given.rate.perMs !== rate.perMs;
    }
  }

  /** A store may forget what a rate has given, once it does not count any more. */
  onPruned(now: number): void {
    for (const given of this.#given.values()) given.times = given.times.filter((at) => at + given.rate.perMs > now);
  }

  /** What is wrong with the live runs among these, which are all that the store has. `now`: its time at the last call. */
  complaints(runs: readonly Shown[], now = 0): readonly string[] {
    const held = new Map<string, { holders: number; max: number }>();
    const complaints: string[] = [];
    for (const { key, head } of runs) {
      const slots = this.#slots.get(nameOf(key)) ?? [];
      if (head.finished_at !== null || !head.holds_slot) continue;
      const isNew = !this.#begun.has(nameOf(key));
      this.#begun.add(nameOf(key));
      for (const slot of slots) {
        const { holders = 0, max = 0 } = held.get(slot.key) ?? {};
        // The limit is that of the run that gets a permit. The run that got its permit last has one of these.
        if (slot.max !== undefined) held.set(slot.key, { holders: holders + 1, max: Math.max(max, slot.max) });
        // A rate counts a run once.
        if (isNew && slot.rate !== undefined) complaints.push(...this.#give(slot.key, now));
      }
    }
    const beyond = [...held].filter(([, { holders, max }]) => holders > max);
    return [
      ...beyond.map(([key, { holders, max }]) => `${holders} runs hold ${key}, which has ${max} permits`),
      ...complaints,
    ];
  }

  /** A rate has given a permit. Each window that holds this time may have as many as the rate allows. */
  #give(key: string, now: number): readonly string[] {
    const given = this.#given.get(key);
    if (given === undefined) return [];
    const { count, perMs } = given.rate;
    given.times.push(now);
    const froms = given.times.filter((at) => at > now - perMs && at <= now);
    const most = Math.max(...froms.map((from) => given.times.filter((at) => at >= from && at < from + perMs).length));
    return most <= count || given.isMixed ? [] : [`${key} was given ${most} times in ${perMs} ms, and allows ${count}`];
  }
}

/** The lines whose first run waits although its slot has a free permit. Whether a rate gives again, only a `take` looks. */
export function unservedLines(lines: Awaited<ReturnType<Store["lines"]>>): readonly string[] {
  const unserved = lines.filter(({ held, max, rate }) => rate === undefined && max !== undefined && held < max);
  return unserved.map(({ key, first }) => `${nameOf(first.key)} waits for ${key}, which is free`);
}

/**
 * Ends everything in a store by what `take` gives, at a time at which all is due, and answers which runs it never gives.
 * A run that waits for an event is ended, too, since it may hold a permit.
 */
export async function forgotten(
  store: Store,
  live: () => MaybePromise<readonly (Shown & { readonly position: number })[]>,
  take: () => MaybePromise<readonly (Shown & { readonly position: number })[]>,
): Promise<readonly string[]> {
  for (;;) {
    const first = await take();
    // What waits behind a gate may be found by the next call.
    const taken = first.length > 0 ? first : await take();
    const ended = taken.length > 0 ? taken : (await live()).filter(({ head }) => isIdle(head));
    if (ended.length === 0) return (await live()).map(({ key }) => nameOf(key));
    for (const { key, head, position } of ended) {
      const over: RunHead = { ...head, status: "completed", owner: null, finished_at: 0 };
      const write: RunWrite = { entries: [], head: over, takes: "all" };
      const answer = await store.append(key, { epoch: head.epoch, position }, write);
      if (answer !== undefined) throw new Error(`Run ${nameOf(key)} could not be ended: ${answer.conflict}`);
    }
  }
}

const heldRuns = "finished_at IS NULL AND holds_slot AND slot IS NOT NULL";
const rules: Readonly<Record<string, string>> = {
  "is held by another number of runs": `SELECT ifnull(s.key, r.slot) AS what FROM cadenza_slots s
    FULL JOIN (SELECT slot, count(*) AS held FROM (
      SELECT slot FROM cadenza_runs WHERE ${heldRuns} AND limits IS NULL UNION ALL
      SELECT json_extract(j.value, '$.key') FROM cadenza_runs r, json_each(r.limits) j
      WHERE ${heldRuns} AND json_extract(j.value, '$.max') IS NOT NULL) GROUP BY slot) r ON r.slot = s.key
    WHERE ifnull(s.held, 0) <> ifnull(r.held, 0)`,
  "is in a line in which it does not wait": `SELECT run_id AS what FROM cadenza_runs WHERE line IS NOT gate AND line IS NOT NULL AND
    (line IS NOT slot OR finished_at IS NOT NULL OR holds_slot OR look OR turn IS NULL OR (owner IS NULL AND due_at IS NULL))`,
  "has a run behind the last rank": `SELECT r.line AS what FROM cadenza_runs r LEFT JOIN cadenza_slots s ON s.key = r.line
    WHERE r.line IS NOT NULL AND r.line IS NOT r.gate AND r.priority = 0 AND r.turn > ifnull(s.last, r.turn - 1)`,
  "has a free permit for the first in line": `SELECT r.line AS what FROM cadenza_runs r LEFT JOIN cadenza_slots s ON s.key = r.line
    WHERE ifnull(s.held, 0) < r.slot_max AND r.limits IS NULL AND r.line IS NOT r.gate AND r.id = (SELECT id FROM cadenza_runs WHERE line = r.line ORDER BY priority DESC, turn, id LIMIT 1)`,
  "is behind a gate without need": `SELECT run_id AS what FROM cadenza_runs WHERE line = gate AND (finished_at IS NOT NULL
    OR owner IS NOT NULL OR blocked IS NOT NULL OR due_at IS NULL OR turn IS NULL OR look OR (slot IS NOT NULL AND holds_slot))`,
};

/** What is wrong with the slots and lines that a SQLite file keeps. */
export function complaintsOf(db: SqliteDatabase): readonly string[] {
  return Object.entries(rules).flatMap(([rule, select]) =>
    (db.prepare(select).all() as readonly { readonly what: string }[]).map(({ what }) => `${what} ${rule}`),
  );
}

function isIdle({ owner, due_at }: RunHead): boolean {
  return owner === null && due_at === null;
}

function nameOf({ tenant, run_id }: RunKey): string {
  return `${tenant}/${run_id}`;
}
