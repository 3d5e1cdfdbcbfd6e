import type { Admin } from "../admin/admin.ts";
import type { AdminChange, AdminRun } from "../admin/records.ts";
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

/** The runs of a list, the newest first, and what is shown of each. */
interface Shown<Item> {
  readonly runs: readonly AdminRun[];
  readonly items: ReadonlyMap<string, readonly Item[]>;
}

const none = { type: "change", changed: [], added: [], gone: [] } as const;

/** A list, kept up to date. */
export function listFeed<Item extends OfRun>(admin: Admin, clock: Clock, list: List<Item>): Feed {
  return async function* (pause) {
    const reader = new ListReader(admin, clock, list);
    let { runs, more, tookMs } = await reader.load();
    let shown: Shown<Item> = { runs, items: await reader.itemsOf(runs) };
    let workers = list.showsWorkers ? await admin.workers() : [];
    let loadedAt = clock.now();
    yield { type: "page", items: flat(shown), more, workers } satisfies ListEvent<Item>;
    while (await pause()) {
      const before = shown;
      const fresh = await reader.look(shown.runs);
      const isDue = clock.now() - loadedAt >= Math.max(RELOAD_MS, RELOAD_SHARE * tookMs);
      const mayMiss = list.query.status !== undefined || (more && fresh.length < list.limit);
      runs = fresh;
      if (isDue && mayMiss) {
        ({ runs, more, tookMs } = await reader.load());
        loadedAt = clock.now();
      }
      const isSame = runs === before.runs;
      shown = isSame ? before : await reader.update(before, runs);
      const now = list.showsWorkers ? await admin.workers() : [];
      const moved = JSON.stringify(now) === JSON.stringify(workers) ? {} : { workers: now };
      workers = now;
      if (!isSame && isOutOfOrder(before.runs, shown.runs))
        yield { type: "page", items: flat(shown), more, workers } satisfies ListEvent<Item>;
      else {
        const change = isSame ? none : changeOf(before, shown, list);
        const isSilent = change.added.length + change.changed.length + change.gone.length === 0;
        if (!isSilent || "workers" in moved) yield { ...change, ...moved } satisfies ListEvent<Item>;
      }
    }
  };
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
    const known = new Map(before.runs.map((run) => [runItemId(run), run]));
    const stale = runs.filter((run) => !isAsBefore(run, known.get(runItemId(run))));
    const read = await this.itemsOf(stale);
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

function isAsBefore(run: AdminRun, before: AdminRun | undefined): boolean {
  return run.position === before?.position && run.epoch === before.epoch;
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
