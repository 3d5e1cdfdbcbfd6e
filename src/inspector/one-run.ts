import type { AdminRun } from "../admin/records.ts";
import { adminRun } from "../admin/records.ts";
import type { TimelineItem } from "../admin/timeline.ts";
import { TimelineFold } from "../admin/timeline-fold.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Entry } from "../core/log.ts";
import type { FoundRun, RunKey } from "../core/ports.ts";
import type { RunEvent, SessionEvent, SeveralEvent } from "./api.ts";
import type { Feed } from "./feed.ts";
import type { Inspected } from "./inspected.ts";
import { isExecuted, isLost, noSuchRun } from "./inspected.ts";

/** How many entries are read, and so about how many items are sent, at a time. */
const CHUNK = 500;
/** How many of the last runs of a session are shown. */
const TURNS = 50;

/** The timeline of a run, which reads only the entries that it does not have. */
export class Reading {
  readonly #inspected: Pick<Inspected, "store">;
  readonly #key: RunKey;
  readonly fold = new TimelineFold();
  /** The log is damaged, or a newer version of the library has written it. What was read before is shown. */
  isUnreadable = false;

  constructor(inspected: Pick<Inspected, "store">, key: RunKey) {
    this.#inspected = inspected;
    this.#key = key;
  }

  /** Reads the next entries, and gives the items that have begun or changed. Undefined: the run was deleted. */
  async next(): Promise<readonly TimelineItem[] | undefined> {
    const from = this.fold.position;
    const entries = await this.#read(from);
    for (const entry of entries ?? []) this.fold.add(entry);
    return entries && this.fold.items.filter((item) => item.last_position >= from);
  }

  async #read(from: number): Promise<readonly Entry[] | undefined> {
    this.isUnreadable = false;
    try {
      return await this.#inspected.store.read(this.#key, from, CHUNK);
    } catch (error) {
      if (!CadenzaError.is(error) || error.run_id === undefined) throw error;
      this.isUnreadable = true;
      return [];
    }
  }
}

/** A run: its record, its timeline, and whether its worker is there. */
export function runFeed(inspected: Inspected, key: RunKey): Feed {
  return async function* (pause) {
    const { admin } = inspected;
    const reading = new Reading(inspected, key);
    let run = await recordOf(inspected, key);
    if (run === undefined) throw noSuchRun(key);
    let lost: boolean | undefined;
    do {
      const before: boolean | undefined = lost;
      const [moved] = before === undefined ? [run] : await admin.changes([run]);
      if (moved !== undefined) run = await recordOf(inspected, key);
      if (run === undefined) break;
      lost = isLost(run, isExecuted(run.status) ? await admin.workers() : []);
      if (moved === undefined && lost === before) continue;
      let whole = false;
      while (!whole) {
        const items = await reading.next();
        if (items === undefined) break;
        const { position, usage } = reading.fold;
        whole = position >= run.position || reading.isUnreadable;
        yield { type: "run", run, lost, items, position, usage, whole } satisfies RunEvent;
      }
    } while (await pause());
    if (run === undefined) yield { type: "gone" } satisfies RunEvent;
  };
}

/** The record of a run; undefined: it does not exist. */
export async function recordOf({ store }: Inspected, key: RunKey): Promise<AdminRun | undefined> {
  const run = await store.find(key);
  return run && adminRun(run);
}

/** The timelines of several runs. Those that do not exist are left out, unless none does. */
export function severalFeed(inspected: Inspected, keys: readonly RunKey[]): Feed {
  return async function* (pause) {
    const { admin, clock } = inspected;
    const known: { run: AdminRun; readonly reading: Reading }[] = [];
    for (const key of keys) {
      const run = await recordOf(inspected, key);
      if (run?.created != null) known.push({ run, reading: new Reading(inspected, key) });
    }
    const [first] = keys;
    if (known.length === 0 && first !== undefined) throw noSuchRun(first);
    let changed = known;
    do {
      for (const one of changed) {
        one.run = (await recordOf(inspected, one.run)) ?? one.run;
        do {
          const items = await one.reading.next();
          if (items === undefined) break;
          yield { type: "several", run: one.run, items, usage: one.reading.fold.usage } satisfies SeveralEvent;
          await clock.turn();
        } while (one.reading.fold.position < one.run.position && !one.reading.isUnreadable);
      }
      if (!(await pause())) return;
      const moved = new Set((await admin.changes(known.map(({ run }) => run))).map(({ run_id }) => run_id));
      changed = known.filter(({ run }) => moved.has(run.run_id));
    } while (!inspected.isClosed());
  };
}

/** The last runs of a session, each with its timeline. */
export function sessionFeed(inspected: Inspected, tenant: string, session_id: string): Feed {
  return async function* (pause) {
    const { store, clock } = inspected;
    const known = new Map<string, { readonly reading: Reading; run: AdminRun }>();
    let isFirst = true;
    do {
      const page = await store.list({ tenant, session_id, roots: true, limit: TURNS, offset: 0 });
      const runs: SessionEvent["runs"][number][] = [];
      for (const found of page.toReversed()) {
        const shown = await turnOf(found);
        if (shown !== undefined) runs.push(shown);
      }
      if (isFirst || runs.length > 0) yield { type: "session", runs } satisfies SessionEvent;
      isFirst = false;
    } while (await pause());

    /** A run with all its items; undefined: it is as it was. */
    async function turnOf(found: FoundRun): Promise<SessionEvent["runs"][number] | undefined> {
      const run = adminRun(found);
      const before = known.get(run.run_id);
      if (before?.run.position === run.position && before.run.epoch === run.epoch) return undefined;
      const reading = before?.reading ?? new Reading(inspected, found.key);
      known.set(run.run_id, { reading, run });
      if (found.created === null) return { run, items: [] };
      while (reading.fold.position < run.position && !reading.isUnreadable && (await reading.next()) !== undefined)
        await clock.turn();
      return { run, items: reading.fold.items };
    }
  };
}
