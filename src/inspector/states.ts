import type { AdminFiguresQuery } from "../admin/figures.ts";
import type { AdminBlocked, AdminRun } from "../admin/records.ts";
import { isoTime } from "../core/time.ts";
import type { FiguresEvent, HistoryEvent, StuckEvent } from "./api.ts";
import type { Feed } from "./feed.ts";
import type { Inspected } from "./inspected.ts";

/** How often figures and what needs an operator are read, in milliseconds. */
const STATE_MS = 1_000;
/** How often figures over time are read, in milliseconds. */
const HISTORY_MS = 2_000;
/** For which share of that time pages share what was read. */
const SHARED = 0.9;
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
async function readFigures({ admin, runtime, clock }: Inspected): Promise<FiguresEvent> {
  const stats = runtime === undefined ? null : await runtime.stats();
  return {
    type: "figures",
    at: isoTime(clock.now()),
    stats,
    versions: await admin.versions(),
    backlog: await admin.backlog(),
    pauses: await admin.pauses(),
    lines: stats?.lines ?? (await admin.lines({ limit: MOST_LINES })).items,
    workers: await admin.workers(),
  };
}

/** An event, and its text, by which it is compared. */
interface Read {
  readonly event: object;
  readonly text: string;
}

/** Figures, now and over time. Pages that show the same share what is computed. */
export class Figures {
  readonly #inspected: Inspected;
  readonly #shared = new Map<string, { readonly at: number; readonly read: Promise<Read> }>();

  constructor(inspected: Inspected) {
    this.#inspected = inspected;
  }

  now(): Feed {
    const read = (): Promise<object> => readFigures(this.#inspected);
    return this.#feed("now", STATE_MS, read);
  }

  overTime(query: AdminFiguresQuery): Feed {
    return this.#feed(JSON.stringify(query), HISTORY_MS, async () => {
      const figures = await this.#inspected.admin.figures(query);
      return { type: "history", figures } satisfies HistoryEvent;
    });
  }

  /** Gives what was read whenever it differs. */
  #feed(name: string, everyMs: number, read: () => Promise<object>): Feed {
    const look = (): Promise<Read> => this.#look(name, everyMs, read);
    return async function* (pause) {
      let before: string | undefined;
      do {
        const { event, text } = await look();
        if (text !== before) yield event;
        before = text;
      } while (await pause(everyMs));
    };
  }

  #look(name: string, everyMs: number, read: () => Promise<object>): Promise<Read> {
    const now = this.#inspected.clock.now();
    for (const [key, { at }] of this.#shared) if (Math.abs(now - at) >= HISTORY_MS) this.#shared.delete(key);
    const known = this.#shared.get(name);
    if (known !== undefined && Math.abs(now - known.at) < SHARED * everyMs) return known.read;
    const fresh = read().then((event) => ({ event, text: JSON.stringify(event) }));
    this.#shared.set(name, { at: now, read: fresh });
    return fresh;
  }
}
