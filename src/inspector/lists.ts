import type { Admin } from "../admin/admin.ts";
import type { AdminChange, AdminRun, AdminWorker } from "../admin/records.ts";
import type { AdminRunQuery } from "../admin/several-runs.ts";
import type { Clock } from "../core/ports.ts";
import type { ListEvent } from "./api.ts";
import { runItemId } from "./api.ts";
import type { Feed } from "./feed.ts";

/** What belongs to a run. */
type OfRun = Pick<AdminRun, "tenant" | "run_id">;

/** A list of items that belong to runs. */
export interface List<Item extends OfRun> {
  readonly query: AdminRunQuery;
  /** How many runs it shows. */
  readonly limit: number;
  readonly showsWorkers: boolean;
  /** The items of these runs, those of the first run first. */
  read(runs: readonly AdminRun[]): Promise<readonly Item[]>;
  idOf(item: Item): string;
}

/*
 * How many runs are read at a time, as a page, one by one, or to compare them. After each the event loop has a turn: a
 * store in this process answers at once, and so would hold it up.
 */
const PAGE = 50;
const SINGLE = 10;
const COMPARED = 200;
/** How many pages are read for a list at most, where few of the runs match. */
const MAX_PAGES = 100;
/** How many of the newest runs each look reads. */
const NEWEST = 20;
/**
 * After how long a whole list is read again, since a run that it does not have may begin to match: in milliseconds, and
 * as a multiple of the time that it took.
 */
const RELOAD_MS = 5_000;
const RELOAD_SHARE = 20;
/** For which share of the time between two looks pages share one. */
const SHARED = 0.9;

/** The runs of a list, the newest first, and what is shown of each. */
interface Shown<Item> {
  readonly runs: readonly AdminRun[];
  readonly items: ReadonlyMap<string, readonly Item[]>;
}

const none = { type: "change", changed: [], added: [], gone: [] } as const;

/** What is known of a list at a time. */
interface Look<Item> {
  readonly at: number;
  readonly shown: Shown<Item>;
  readonly more: boolean;
  readonly workers: readonly AdminWorker[];
}

/** Lists that are kept up to date. Pages that show the same list share what is looked up. */
export class Lists {
  readonly #admin: Admin;
  readonly #clock: Clock;
  /** For how long a look is shared, in milliseconds. */
  readonly #sharedMs: number;
  readonly #watched = new Map<string, WatchedList<OfRun>>();

  constructor(admin: Admin, clock: Clock, refreshMs: number) {
    this.#admin = admin;
    this.#clock = clock;
    this.#sharedMs = SHARED * refreshMs;
  }

  /** `name`: what the list shows of its runs. */
  feed<Item extends OfRun>(name: string, list: List<Item>): Feed {
    const watched = this.#watch(JSON.stringify([name, list.query, list.limit, list.showsWorkers]), list);
    return async function* (pause) {
      watched.readers += 1;
      try {
        let before = await watched.look(0);
        yield pageOf(before);
        while (await pause()) {
          const after = await watched.look();
          const event = eventOf(before, after, list);
          before = after;
          if (event !== undefined) yield event;
        }
      } finally {
        watched.readers -= 1;
      }
    };
  }

  #watch<Item extends OfRun>(key: string, list: List<Item>): WatchedList<Item> {
    for (const [name, { readers }] of this.#watched) if (readers === 0) this.#watched.delete(name);
    const known = this.#watched.get(key) as WatchedList<Item> | undefined;
    const watched = known ?? new WatchedList(this.#admin, this.#clock, list, this.#sharedMs);
    this.#watched.set(key, watched as unknown as WatchedList<OfRun>);
    return watched;
  }
}

/** A list that pages show. */
class WatchedList<Item extends OfRun> {
  /** How many feeds follow it. */
  readers = 0;
  readonly #admin: Admin;
  readonly #clock: Clock;
  readonly #list: List<Item>;
  readonly #reader: ListReader<Item>;
  readonly #sharedMs: number;
  #last: { readonly begun: number; readonly look: Promise<Look<Item>> } | undefined;
  /** When the whole list was read last, and how long that took. */
  #loaded = { at: Number.NEGATIVE_INFINITY, tookMs: 0 };

  constructor(admin: Admin, clock: Clock, list: List<Item>, sharedMs: number) {
    this.#admin = admin;
    this.#clock = clock;
    this.#list = list;
    this.#reader = new ListReader(admin, clock, list);
    this.#sharedMs = sharedMs;
  }

  /** The list as it is now, or as it was so many milliseconds ago at most. */
  look(sharedMs = this.#sharedMs): Promise<Look<Item>> {
    const now = this.#clock.now();
    const last = this.#last;
    if (last !== undefined && Math.abs(now - last.begun) < sharedMs) return last.look;
    // A look after one that has failed begins anew.
    const look =
      last === undefined
        ? this.#load()
        : last.look.then(
            (before) => this.#next(before),
            () => this.#load(),
          );
    this.#last = { begun: now, look };
    return look;
  }

  async #load(before?: Look<Item>): Promise<Look<Item>> {
    const { runs, more, tookMs } = await this.#reader.load();
    const shown =
      before === undefined
        ? { runs, items: await this.#reader.itemsOf(runs) }
        : await this.#reader.update(before.shown, runs);
    const at = this.#clock.now();
    this.#loaded = { at, tookMs };
    return { at, shown, more, workers: await this.#workers() };
  }

  async #next(before: Look<Item>): Promise<Look<Item>> {
    const { runs } = before.shown;
    const fresh = await this.#reader.look(runs);
    const { at, tookMs } = this.#loaded;
    const isDue = this.#clock.now() - at >= Math.max(RELOAD_MS, RELOAD_SHARE * tookMs);
    const mayMiss = this.#list.query.status !== undefined || (before.more && fresh.length < this.#list.limit);
    if (isDue && mayMiss) return this.#load(before);
    const shown = fresh === runs ? before.shown : await this.#reader.update(before.shown, fresh);
    return { ...before, at: this.#clock.now(), shown, workers: await this.#workers() };
  }

  async #workers(): Promise<readonly AdminWorker[]> {
    return this.#list.showsWorkers ? this.#admin.workers() : [];
  }
}

function pageOf<Item extends OfRun>({ shown, more, workers }: Look<Item>): ListEvent<Item> {
  return { type: "page", items: flat(shown), more, workers };
}

/** What has changed between two looks; undefined for nothing. */
function eventOf<Item extends OfRun>(
  before: Look<Item>,
  after: Look<Item>,
  list: List<Item>,
): ListEvent<Item> | undefined {
  const isSame = after.shown === before.shown;
  if (!isSame && isOutOfOrder(before.shown.runs, after.shown.runs)) return pageOf(after);
  const change = isSame ? none : changeOf(before.shown, after.shown, list);
  const isSilent = change.added.length + change.changed.length + change.gone.length === 0;
  const { workers } = after;
  const moved = JSON.stringify(workers) === JSON.stringify(before.workers) ? {} : { workers };
  return isSilent && !("workers" in moved) ? undefined : { ...change, ...moved };
}

/** Reads the runs of a list, and what is shown of them. */
export class ListReader<Item extends OfRun> {
  readonly #admin: Admin;
  readonly #clock: Clock;
  readonly #list: List<Item>;

  constructor(admin: Admin, clock: Clock, list: List<Item>) {
    this.#admin = admin;
    this.#clock = clock;
    this.#list = list;
  }

  /** All runs of the list, up to its limit. */
  async load(): Promise<{ readonly runs: readonly AdminRun[]; readonly more: boolean; readonly tookMs: number }> {
    const { query, limit } = this.#list;
    const beganAt = this.#clock.now();
    let more = true;
    const runs: AdminRun[] = [];
    let cursor: string | undefined;
    const most = Math.max(MAX_PAGES, (2 * limit) / PAGE);
    for (let page = 0; page < most && runs.length < limit; page++) {
      const { items, next } = await this.#admin.runs({ ...query, cursor, limit: Math.min(PAGE, limit - runs.length) });
      runs.push(...items);
      more = next !== null;
      if (next === null) break;
      cursor = next;
      await this.#clock.turn();
    }
    return { runs, more, tookMs: this.#clock.now() - beganAt };
  }

  /** The runs as they are now: without those that no longer match, and with new ones. The same list: as they were. */
  async look(known: readonly AdminRun[]): Promise<readonly AdminRun[]> {
    const moved: AdminChange[] = [];
    for (let from = 0; from < known.length; from += COMPARED) {
      moved.push(...(await this.#admin.changes(known.slice(from, from + COMPARED))));
      await this.#clock.turn();
    }
    const fresh = new Map<string, AdminRun | null>(moved.map((run) => [runItemId(run), null]));
    const there = moved.filter(({ position }) => position > 0);
    for (let from = 0; from < there.length; from += SINGLE) {
      const among = there.slice(from, from + SINGLE);
      for (const run of (await this.#admin.runs({ ...this.#list.query, among })).items) fresh.set(runItemId(run), run);
      await this.#clock.turn();
    }
    const kept = known.flatMap((run) => {
      const now = fresh.get(runItemId(run));
      return now === undefined ? [run] : now === null ? [] : [now];
    });
    const newest = await this.#newest(kept);
    return moved.length + newest.length === 0 ? known : [...newest, ...kept].slice(0, this.#list.limit);
  }

  /**
   * The runs before the first known one. A page that is not full has looked at many runs that do not match, and is the
   * last: to look on would mean to look at all runs each time.
   */
  async #newest(known: readonly AdminRun[]): Promise<readonly AdminRun[]> {
    const { query, limit } = this.#list;
    const ids = new Set(known.map(runItemId));
    const found: AdminRun[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < MAX_PAGES && found.length < limit; page++) {
      const size = page === 0 ? NEWEST : PAGE;
      const { items, next } = await this.#admin.runs({ ...query, cursor, limit: size });
      const end = items.findIndex((run) => ids.has(runItemId(run)));
      found.push(...(end === -1 ? items : items.slice(0, end)));
      if (end !== -1 || next === null || items.length < size) break;
      cursor = next;
      await this.#clock.turn();
    }
    return found;
  }

  /** What is shown of these runs. Only those are read that are new or have changed. */
  async update(before: Shown<Item>, runs: readonly AdminRun[]): Promise<Shown<Item>> {
    const read = await this.itemsOf(changedSince(before.runs, runs));
    const items = new Map(
      runs.map((run) => {
        const id = runItemId(run);
        return [id, read.get(id) ?? before.items.get(id) ?? []];
      }),
    );
    return { runs, items };
  }

  async itemsOf(runs: readonly AdminRun[]): Promise<ReadonlyMap<string, readonly Item[]>> {
    const found = new Map<string, Item[]>(runs.map((run) => [runItemId(run), []]));
    for (let from = 0; from < runs.length; from += SINGLE) {
      if (from > 0) await this.#clock.turn();
      for (const item of await this.#list.read(runs.slice(from, from + SINGLE))) found.get(runItemId(item))?.push(item);
    }
    return found;
  }
}

/** The runs that were not there before, or have changed. */
export function changedSince(before: readonly AdminRun[], runs: readonly AdminRun[]): readonly AdminRun[] {
  const known = new Map(before.map((run) => [runItemId(run), run]));
  return runs.filter((run) => {
    const was = known.get(runItemId(run));
    return run.position !== was?.position || run.epoch !== was.epoch;
  });
}

/** Whether the list is other than the new runs followed by those that were there. */
function isOutOfOrder(before: readonly AdminRun[], after: readonly AdminRun[]): boolean {
  const ids = new Set(after.map(runItemId));
  const kept = before.map(runItemId).filter((id) => ids.has(id));
  const tail = after.slice(after.length - kept.length);
  return !tail.every((run, index) => runItemId(run) === kept[index]);
}

function changeOf<Item extends OfRun>(
  before: Shown<Item>,
  after: Shown<Item>,
  { idOf }: List<Item>,
): ListEvent<Item> & { readonly type: "change" } {
  const old = new Map(flat(before).map((item) => [idOf(item), item]));
  const added: Item[] = [];
  const changed: Item[] = [];
  for (const item of flat(after)) {
    const known = old.get(idOf(item));
    if (known === undefined) added.push(item);
    else if (known !== item && JSON.stringify(known) !== JSON.stringify(item)) changed.push(item);
    old.delete(idOf(item));
  }
  return { type: "change", changed, added, gone: [...old.keys()] };
}

function flat<Item>({ runs, items }: Shown<Item>): readonly Item[] {
  return runs.flatMap((run) => items.get(runItemId(run)) ?? []);
}
