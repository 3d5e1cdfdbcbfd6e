import { grown } from "../../core/grown.ts";
import type { CreatedEntry, Entry, Labels } from "../../core/log.ts";
import type { Arrived, RunHead, RunKey, RunWrite, StoredRun, StoredSession } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { Slot } from "../../core/slots.ts";
import type { LogTail } from "../../core/survey.ts";
import { userOf } from "../../core/user.ts";
import type { Message } from "../../protocol/message.ts";
import type { Link } from "./chain.ts";
import { Chain } from "./chain.ts";
import type { DueEntry, DueHeap } from "./due-heap.ts";
import { RunIndex } from "./run-index.ts";

/** What belongs to one tenant. */
export class Tenant {
  readonly name: string;
  readonly runs = new Map<string, MemoryRun>();
  /** The run that was created last. The others are linked from it. */
  #newest: MemoryRun | null = null;
  readonly idempotencyKeys = new Map<string, MemoryRun>();
  /** In the order of their last change. */
  readonly sessions = new Map<string, MemorySession>();
  /** The ended runs, in the order in which they ended. */
  readonly ended = new Chain<MemoryRun>();
  readonly #index = new RunIndex<MemoryRun>();
  /** How many live runs use a session whose id differs from theirs. */
  readonly users = new Map<string, number>();

  constructor(name: string) {
    this.name = name;
  }

  add(run: MemoryRun): void {
    this.runs.set(run.key.run_id, run);
    const idempotencyKey = run.extras?.idempotencyKey ?? null;
    if (idempotencyKey !== null) this.idempotencyKeys.set(idempotencyKey, run);
    run.older = this.#newest;
    if (this.#newest !== null) this.#newest.newer = run;
    this.#newest = run;
    this.#index.add(run);
  }

  remove(run: MemoryRun): void {
    this.runs.delete(run.key.run_id);
    this.#index.remove(run);
    const idempotencyKey = run.extras?.idempotencyKey ?? null;
    if (idempotencyKey !== null) this.idempotencyKeys.delete(idempotencyKey);
    if (run.newer === null) this.#newest = run.older;
    else run.newer.older = run.older;
    if (run.older !== null) run.older.newer = run.newer;
  }

  /** The page of a query. */
  list(query: RunQuery): readonly StoredRun[] {
    const found: StoredRun[] = [];
    const after = query.after === undefined ? undefined : this.runs.get(query.after);
    if (after === undefined && query.after !== undefined) return found;
    const before = after?.order ?? Number.POSITIVE_INFINITY;
    let skip = query.offset;
    const namesake = query.session_id === undefined ? undefined : this.runs.get(query.session_id);
    for (const run of this.#index.find(query, namesake) ?? this.newestFirst(after)) {
      if (found.length >= query.limit) break;
      if (run.order < before && matches(run, query) && --skip < 0) found.push(run.stored());
    }
    return found;
  }

  /** The runs that were created before a run, or all, those that were created last first. */
  *newestFirst(after: MemoryRun | undefined): Iterable<MemoryRun> {
    for (let run = after === undefined ? this.#newest : after.older; run !== null; run = run.older) yield run;
  }

  /** Whether a durable run that has not ended may read a sub-run again. One that is not durable never does. */
  needs({ created: { parent: above } }: MemoryRun): boolean {
    const parent = above === undefined ? undefined : this.runs.get(above.run_id);
    return parent !== undefined && parent.head.finished_at === null && parent.created.durable === true;
  }

  /** Whether a run is in the session, other than the one whose id it has. */
  isJoined(sessionId: string): boolean {
    return this.#index.isJoined(sessionId);
  }

  /** Whether a live run uses the session. */
  uses(sessionId: string): boolean {
    if (this.users.has(sessionId)) return true;
    const namesake = this.runs.get(sessionId);
    return namesake?.created.session_id === sessionId && namesake.head.finished_at === null;
  }
}

/** What has arrived, with what the feed gets if it goes into the log without an owner. */
export interface InboxItem extends Arrived {
  readonly isCancel: boolean;
  readonly feed: RunWrite["feed"];
}

/** Properties that few runs have. */
export interface RunExtras {
  readonly slot: OwnSlot | null;
  readonly idempotencyKey: string | null;
  /** How often the run was woken under its present owner. */
  wakes: number;
  /** What has arrived for its owner. Null: nothing. */
  inbox: InboxItem[] | null;
  /** How many entries behind the first one were deleted. */
  trimmed: number;
  /** Its entry in the line of its slot, or else among the runs that have a due time. */
  due: DueEntry<MemoryRun> | null;
  /** Left out for most runs: it takes memory. */
  turn?: OwnTurn;
  /** Its first entry with the version to which it was moved. */
  moved?: CreatedEntry;
}

/** When the turn of a run comes among others. */
export interface OwnTurn {
  readonly priority: number;
  /** The key of its gate. Null: it passes none. */
  readonly gate: string | null;
  /** Its entry at the gate, while it has no owner and a due time. */
  entry: DueEntry<MemoryRun> | null;
  /** Whether this is behind the gate. Such a run is neither in a line nor among the due ones. */
  isBehind: boolean;
}

/** The runs of one gate that have no owner and a due time. */
export interface Gate {
  /** By their due times, which may not have come. */
  readonly through: DueHeap<MemoryRun>;
  /** By the times at which they came. */
  readonly behind: DueHeap<MemoryRun>;
}

/** The slot of a run, and how the run stands to it. Of several it is the one in whose line the run waits, or has waited. */
export interface OwnSlot {
  key: string;
  max: number;
  /**
   * All slots of which the run needs permits, in order: of a run with several, or with a rate. A rate counts a run once, so
   * that it is dropped with the first permits. Left out for most runs: it takes memory.
   */
  limits?: readonly Slot[];
  /** Whether it may be taken without a permit. */
  isForLook: boolean;
  /** The line in which it waits for a permit. */
  line: Line | null;
  /** Its place in that line, which it keeps while it is looked at. */
  rank: number | null;
  /** Whether it waits for a permit under its owner. */
  asks: boolean;
  /** Since when it holds a permit without an owner. */
  since: number | null;
}

/** The permits of a slot: how many are held, and which runs wait for one, in the order of their ranks. */
export interface Line {
  held: number;
  readonly waiting: DueHeap<MemoryRun>;
  /** The highest rank of priority 0 since the slot has been in use. A run of this priority that joins gets a higher one. */
  last: number;
  /** What a rate of the key has given. Left out: nothing. */
  grants?: Grants;
}

/** When permits of a key were given. */
export interface Grants {
  readonly key: string;
  /** The times, in the order of the grants. Those in front of the last `kept` do not count. */
  times: number[];
  /** The highest count of a rate that has given one. */
  kept: number;
  /** Until when one of them counts, at most. */
  until: number;
  /** When the rate gives again, if the first in line waits for that. */
  mark: DueEntry<Grants> | null;
}

/** A run, and its links in the chain of the live or of the ended runs. */
export class MemoryRun implements Link<MemoryRun> {
  readonly key: RunKey;
  /** Higher for runs that were created later. */
  readonly order: number;
  entries: readonly Entry[];
  /** Null until it has a value to hold. */
  extras: RunExtras | null;
  head: RunHead;
  before: MemoryRun | null = null;
  after: MemoryRun | null = null;
  /** The runs of the same tenant that were created just before and just after it. */
  older: MemoryRun | null = null;
  newer: MemoryRun | null = null;

  constructor(key: RunKey, write: RunWrite, idempotencyKey: string | null, order: number) {
    const [created] = write.entries;
    if (created?.type !== "created") throw new TypeError("The first entry of a run is `created`.");
    this.key = key;
    this.order = order;
    this.entries = write.entries.slice();
    const { slots = [] } = write;
    const [slot = null] = slots;
    this.extras = slot === null && idempotencyKey === null ? null : extrasWith(slot, idempotencyKey);
    if (this.extras?.slot && (slots.length > 1 || slot?.rate !== undefined)) this.extras.slot.limits = slots.slice();
    const { priority = 0, gate = null } = write;
    if (priority !== 0 || gate !== null) this.withExtras.turn = { priority, gate, entry: null, isBehind: false };
    this.head = write.head;
  }

  get created(): CreatedEntry {
    if (this.extras?.moved !== undefined) return this.extras.moved;
    return this.entries[0] as CreatedEntry;
  }

  /** The extras, created on first use. */
  get withExtras(): RunExtras {
    this.extras ??= extrasWith(null, null);
    return this.extras;
  }

  get priority(): number {
    return this.extras?.turn?.priority ?? 0;
  }

  /** The slot of which the run needs a permit to go on; null if it needs none, or holds one. */
  get needs(): OwnSlot | null {
    const slot = this.extras?.slot ?? null;
    return slot === null || slot.isForLook || this.head.holds_slot ? null : slot;
  }

  add(entries: readonly Entry[]): void {
    this.entries = grown(this.entries, entries);
  }

  /** The length of the log. */
  get position(): number {
    return this.entries.length + trimmedOf(this);
  }

  read(from: number, limit: number): readonly Entry[] {
    const first = from === 0 ? 0 : Math.max(1, from - trimmedOf(this));
    return this.entries.slice(first, first + limit);
  }

  /** Deletes the entries before a position, but the first one. */
  trim(before: number): void {
    const most = before - 1 - trimmedOf(this);
    if (most <= 0 || before >= this.position) return;
    this.entries = [this.created, ...this.entries.slice(1 + most)];
    this.withExtras.trimmed += most;
  }

  /** The last entries. */
  tail(count: number): LogTail {
    const trimmed = trimmedOf(this);
    const from = Math.max(trimmed === 0 ? 0 : 1, this.entries.length - count);
    return { from: from + trimmed, entries: this.entries.slice(from) };
  }

  stored(): StoredRun {
    return { key: this.key, created: this.created, head: this.head, position: this.position };
  }

  /** What has arrived for its owner. Undefined: nothing. */
  get inbox(): readonly Arrived[] | undefined {
    return this.extras?.inbox?.map(({ id, entries }) => ({ id, entries }));
  }
}

/** How many entries were deleted. Not a private getter of the run, which would take eight bytes of each. */
function trimmedOf({ extras }: MemoryRun): number {
  return extras?.trimmed ?? 0;
}

/** A session, and its links in the chain of sessions, in the order of their last change. */
export interface MemorySession extends Link<MemorySession> {
  readonly tenant: Tenant;
  readonly id: string;
  history: Message[];
  state: StoredSession["state"];
  generation: string | undefined;
  readonly creator: string | undefined;
  changed_at: number;
  /** False for a session that `prune` found in use. It joins the chain again when its last run ends. */
  inLine: boolean;
}

/** What selects runs in a list. */
type Filter = Omit<RunQuery, "tenant" | "after" | "limit" | "offset">;

export function matches({ created, head }: MemoryRun, query: Filter): boolean {
  if (query.agent_name !== undefined && created.agent_name !== query.agent_name) return false;
  if (query.session_id !== undefined && created.session_id !== query.session_id) return false;
  if (query.creator !== undefined && userOf(created.principal) !== query.creator) return false;
  if (query.roots === true && created.parent !== undefined) return false;
  if (query.parents !== undefined && !query.parents.some((id) => id === created.parent?.run_id)) return false;
  if (query.labels !== undefined && !hasLabels(created, query.labels)) return false;
  if (query.createdAfter !== undefined && created.at < query.createdAfter) return false;
  if (query.createdBefore !== undefined && created.at >= query.createdBefore) return false;
  return query.statuses === undefined || query.statuses.includes(head.status);
}

function hasLabels({ labels = {} }: CreatedEntry, wanted: Labels): boolean {
  return Object.entries(wanted).every(([name, value]) => Object.hasOwn(labels, name) && labels[name] === value);
}

function extrasWith(slot: Slot | null, idempotencyKey: string | null): RunExtras {
  const own: OwnSlot | null = slot && {
    key: slot.key,
    max: slot.max ?? Number.POSITIVE_INFINITY,
    isForLook: false,
    line: null,
    rank: null,
    asks: false,
    since: null,
  };
  return { slot: own, idempotencyKey, wakes: 0, inbox: null, trimmed: 0, due: null };
}
