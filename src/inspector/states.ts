import type { AdminFigures, AdminFiguresQuery } from "../admin/figures.ts";
import type { AdminBlocked, AdminRun } from "../admin/records.ts";
import { isoTime } from "../core/time.ts";
import type { FiguresEvent, HistoryEvent, StuckEvent } from "./api.ts";
import type { Feed } from "./feed.ts";
import type { Inspected } from "./inspected.ts";

/** How often figures and what needs an operator are read, in milliseconds. */
const STATE_MS = 1_000;
/** How often figures over time are read, in milliseconds. */
const HISTORY_MS = 2_000;
/** For how long pages share what was read. */
const SHARED_MS = 1_900;
/** How many runs of each kind are shown. */
const MOST = 500;
/** How many slots that runs wait for are shown. */
const MOST_LINES = 100;
/** How many pages are looked at for the blocked runs of one tenant. */
const MAX_PAGES = 20;

/** What needs an operator, whenever it differs. */
export function stuckFeed(inspected: Inspected, tenant: string | undefined): Feed {
  return async function* (pause) {
    let before: string | undefined;
    do {
      const event: StuckEvent = {
        type: "stuck",
        blocked: await blockedRuns(inspected, tenant),
        unregistered: tenant === undefined ? await inspected.admin.unregistered() : null,
        lost: await lostRuns(inspected, tenant),
      };
      const text = JSON.stringify(event);
      if (text !== before) yield event;
      before = text;
    } while (await pause(STATE_MS));
  };
}

async function blockedRuns({ admin, clock }: Inspected, tenant: string | undefined): Promise<readonly AdminBlocked[]> {
  const found: AdminBlocked[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES && found.length < MOST; page++) {
    const { items, next } = await admin.blocked({ cursor, limit: 100 });
    found.push(...items.filter((run) => tenant === undefined || run.tenant === tenant));
    if (next === null) break;
    cursor = next;
    await clock.turn();
  }
  return found.slice(0, MOST);
}

/** The runs of processes whose leases have ended. */
async function lostRuns({ admin, store }: Inspected, tenant: string | undefined): Promise<readonly AdminRun[]> {
  const found: AdminRun[] = [];
  for (const { worker, is_alive, runs } of await admin.workers()) {
    if (is_alive || runs === 0) continue;
    const keys = (await store.owned(worker, MOST)).filter((key) => tenant === undefined || key.tenant === tenant);
    const { items } = await admin.runs({ among: keys.slice(0, MOST - found.length) });
    found.push(...items.filter((run) => run.worker === worker));
  }
  return found;
}

/** The figures, once a second. */
export function figuresFeed({ admin, runtime, clock }: Inspected): Feed {
  return async function* (pause) {
    do {
      const stats = runtime === undefined ? null : await runtime.stats();
      const event: FiguresEvent = {
        type: "figures",
        at: isoTime(clock.now()),
        stats,
        versions: await admin.versions(),
        backlog: await admin.backlog(),
        pauses: await admin.pauses(),
        lines: stats?.lines ?? (await admin.lines({ limit: MOST_LINES })).items,
        workers: await admin.workers(),
      };
      yield event;
    } while (await pause(STATE_MS));
  };
}

/** Figures over time, whenever they differ. Pages that show the same share what is computed. */
export class Histories {
  readonly #inspected: Inspected;
  readonly #shared = new Map<string, { readonly at: number; readonly text: Promise<string> }>();

  constructor(inspected: Inspected) {
    this.#inspected = inspected;
  }

  feed(query: AdminFiguresQuery): Feed {
    const read = (): Promise<string> => this.#read(query);
    return async function* (pause) {
      let before: string | undefined;
      do {
        const text = await read();
        if (text !== before)
          yield { type: "history", figures: JSON.parse(text) as AdminFigures } satisfies HistoryEvent;
        before = text;
      } while (await pause(HISTORY_MS));
    };
  }

  #read(query: AdminFiguresQuery): Promise<string> {
    const { admin, clock } = this.#inspected;
    const now = clock.now();
    for (const [name, { at }] of this.#shared) if (Math.abs(now - at) >= SHARED_MS) this.#shared.delete(name);
    const name = JSON.stringify(query);
    const known = this.#shared.get(name);
    if (known !== undefined) return known.text;
    const text = admin.figures(query).then((figures) => JSON.stringify(figures));
    this.#shared.set(name, { at: now, text });
    return text;
  }
}
