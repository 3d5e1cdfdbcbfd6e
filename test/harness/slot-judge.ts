import type { SqliteDatabase } from "cadenza/sqlite";
import type { RunHead, RunKey, RunWrite, Store } from "cadenza/store";
import type { MaybePromise, Slot } from "./internals.ts";

/** What a store shows of a run. */
interface Shown {
  readonly key: RunKey;
  readonly head: RunHead;
}

/** Judges by what a store shows whether it keeps the limits of its slots. It is told which slot a new run has. */
export class SlotJudge {
  readonly #slots = new Map<string, Slot>();

  onCreated(key: RunKey, slot: Slot | undefined): void {
    if (slot === undefined) this.#slots.delete(nameOf(key));
    else this.#slots.set(nameOf(key), slot);
  }

  /** What is wrong with the live runs among these, which are all that the store has. */
  complaints(runs: readonly Shown[]): readonly string[] {
    const held = new Map<string, { holders: number; max: number }>();
    for (const { key, head } of runs) {
      const slot = this.#slots.get(nameOf(key));
      if (slot === undefined || head.finished_at !== null || !head.holds_slot) continue;
      const counted = held.get(slot.key) ?? { holders: 0, max: 0 };
      // The limit is that of the run that gets a permit. The run that got its permit last has one of these.
      held.set(slot.key, {
        holders: counted.holders + 1,
        max: Math.max(counted.max, slot.max ?? Number.POSITIVE_INFINITY),
      });
    }
    const beyond = [...held].filter(([, { holders, max }]) => holders > max);
    return beyond.map(([key, { holders, max }]) => `${holders} runs hold ${key}, which has ${max} permits`);
  }
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
    const taken = await take();
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
    FULL JOIN (SELECT slot, count(*) AS held FROM cadenza_runs WHERE ${heldRuns} GROUP BY slot) r ON r.slot = s.key
    WHERE ifnull(s.held, 0) <> ifnull(r.held, 0)`,
  "is in a line in which it does not wait": `SELECT run_id AS what FROM cadenza_runs WHERE line IS NOT NULL AND
    (line IS NOT slot OR finished_at IS NOT NULL OR holds_slot OR look OR rank IS NULL OR (owner IS NULL AND due_at IS NULL))`,
  "has a run behind the last rank": `SELECT r.line AS what FROM cadenza_runs r LEFT JOIN cadenza_slots s ON s.key = r.line
    WHERE r.line IS NOT NULL AND r.rank > ifnull(s.last, r.rank - 1)`,
  "has a free permit for the first in line": `SELECT r.line AS what FROM cadenza_runs r LEFT JOIN cadenza_slots s ON s.key = r.line
    WHERE ifnull(s.held, 0) < r.slot_max AND r.id = (SELECT id FROM cadenza_runs WHERE line = r.line ORDER BY rank, id LIMIT 1)`,
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
