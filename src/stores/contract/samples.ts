import type { CreatedEntry, EmittedPart, EndedEntry, Entry, Outcome } from "../../core/log.ts";
import type {
  Retention,
  RunHead,
  RunKey,
  RunWrite,
  SessionKey,
  Store,
  StoreConflict,
  TakeRequest,
} from "../../core/ports.ts";
import type { Slot } from "../../core/slots.ts";
import type { Counters } from "../../core/statistics.ts";
import { noCounters } from "../../core/statistics.ts";
import type { Message } from "../../protocol/message.ts";
import { expectWritten, NOW } from "./check.ts";

/* Runs, sessions and writes as a runtime would make them, for the checks of the store contract. */

/** The tenant of the checks that need only one. */
export const TENANT = "acme";
export const OWNER = "owner-1";
/** The length of the lease of `OWNER`, in milliseconds. */
export const LEASE_MS = 10_000;
/** When that lease ends. */
export const LEASE_END = NOW + LEASE_MS;

const FOREVER = Number.POSITIVE_INFINITY;
/** Keeps everything. */
export const keep: Retention = { maxRuns: FOREVER, endedBefore: -FOREVER, sessionsBefore: -FOREVER };
/** Keeps everything, but of some tenants no more than a number. */
export function keepOf(tenants: readonly string[], most: { maxRuns?: number; maxSessions?: number }): Retention {
  return { ...keep, perTenant: { tenants, maxRuns: FOREVER, maxSessions: FOREVER, ...most } };
}
/** Deletes whatever may be deleted. */
export const forget: Retention = { maxRuns: 0, endedBefore: FOREVER, sessionsBefore: FOREVER };

/** The n-th run id. */
export function runId(n: number): string {
  return `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
}

/** The n-th session id, which no run has. */
export function sessionId(n: number): string {
  return `11111111-1111-4111-8111-${String(n).padStart(12, "0")}`;
}

export function runKey(n: number, tenant = TENANT): RunKey {
  return { tenant, run_id: runId(n) };
}

export function sessionKey(n: number, tenant = TENANT): SessionKey {
  return { tenant, session_id: sessionId(n) };
}

export function message(text: string): Message {
  return { role: "user", parts: [{ content_type: "text/plain", content_encoding: "plain", content: text }] };
}

/** The first entry of a run, by default of the agent `echo` and in a session of its own. */
export function created(n: number, changes: Partial<CreatedEntry> = {}): CreatedEntry {
  return {
    type: "created",
    at: NOW + n,
    agent_name: "echo",
    durable: true,
    session_id: runId(n),
    history_length: 0,
    input: [message(`input ${n}`)],
    principal: null,
    ...changes,
  };
}

/** The first entry of a run that is not durable. */
export function plainlyCreated(n: number, changes: Partial<CreatedEntry> = {}): CreatedEntry {
  const { durable: _durable, ...entry } = created(n, changes);
  return entry;
}

export function part(text: string, at = NOW): EmittedPart {
  const content = { content_type: "text/plain", content_encoding: "plain", content: text } as const;
  return { type: "emitted", kind: "part", at, part: content };
}

export function parts(...texts: readonly string[]): readonly Entry[] {
  return texts.map((text) => part(text));
}

export function ended(at = NOW, outcome: Outcome = "completed"): EndedEntry {
  return { type: "ended", at, outcome, closes: true };
}

/** The head of a run that `OWNER` executes. */
export function head(changes: Partial<RunHead> = {}): RunHead {
  return {
    status: "in-progress",
    epoch: 1,
    owner: OWNER,
    due_at: null,
    blocked: null,
    holds_slot: false,
    finished_at: null,
    takeovers: 0,
    ...changes,
  };
}

/** The head of a run that waits for an answer, until a time, and has no owner. */
export function waiting(until: number | null = null, changes: Partial<RunHead> = {}): RunHead {
  return head({ status: "awaiting", owner: null, due_at: until, ...changes });
}

/** The head of a run that has ended. */
export function over(at = NOW, changes: Partial<RunHead> = {}): RunHead {
  return head({ status: "completed", epoch: 2, owner: null, finished_at: at, ...changes });
}

export function counters(changes: Partial<Counters>): Counters {
  return { ...noCounters, ...changes };
}

/** A write that adds these entries; the head is that of a run that is executed. */
export function write(entries: readonly Entry[], changes: Partial<RunWrite> = {}): RunWrite {
  return { entries, head: head(), ...changes };
}

interface RunChanges extends Partial<RunWrite> {
  readonly tenant?: string;
  readonly idempotencyKey?: string | null;
  readonly created?: Partial<CreatedEntry>;
  /** Whether the run is not durable. */
  readonly isPlain?: boolean;
  /** The only slot of the run. */
  readonly slot?: Slot | undefined;
}

/** Creates the n-th run. */
export async function tryCreate(store: Store, n: number, changes: RunChanges = {}): Promise<StoreConflict | undefined> {
  const { tenant = TENANT, idempotencyKey = null, created: first = {}, isPlain = false, slot, ...rest } = changes;
  const entry = isPlain ? plainlyCreated(n, first) : created(n, first);
  const slots = slot && { slots: [slot] };
  return store.create(runKey(n, tenant), write([entry], { ...slots, ...rest }), idempotencyKey);
}

/** Creates the n-th run, and fails if it is refused. */
export async function create(store: Store, n: number, changes: RunChanges = {}): Promise<RunKey> {
  expectWritten(await tryCreate(store, n, changes), `creating run ${n}`);
  return runKey(n, changes.tenant);
}

/** Creates the n-th run and ends it, at a time. */
export async function createEnded(store: Store, n: number, at: number, changes: RunChanges = {}): Promise<RunKey> {
  const key = await create(store, n, changes);
  await append(store, key, 1, write([ended(at)], { head: over(at) }));
  return key;
}

/** Appends at a position of a run in epoch 1, and fails if that is refused. */
export async function append(store: Store, key: RunKey, position: number, change: RunWrite, epoch = 1): Promise<void> {
  expectWritten(await store.append(key, { epoch, position }, change), `appending at position ${position}`);
}

/** The owner that takes runs in the checks. */
export const TAKER = "owner-2";

/** Lets a living owner take runs, by default of `echo`, and returns their ids. */
export async function take(
  store: Store,
  { forMs = 1_000_000_000, ...request }: Partial<TakeRequest> & { readonly forMs?: number } = {},
): Promise<readonly string[]> {
  const whole = { owner: TAKER, agents: [{ agent_name: "echo", version: null }], limit: 100, ...request };
  await store.renew(whole.owner, forMs);
  return (await store.take(whole)).map(({ key }) => key.run_id);
}

/** The numbers of the runs, up to a number, that hold their slots and have not ended. */
export async function holders(store: Store, last: number): Promise<readonly number[]> {
  const numbers: number[] = [];
  for (let n = 1; n <= last; n++) {
    const run = await store.find(runKey(n));
    if (run?.head.holds_slot === true && run.head.finished_at === null) numbers.push(n);
  }
  return numbers;
}

/** Everything that a store returns about a run, a session, `echo` and due runs. */
export async function look(store: Store, key: RunKey, session: SessionKey, idempotencyKey = "key"): Promise<unknown> {
  return {
    run: await store.find(key),
    entries: await store.read(key, 0, 1_000),
    session: await store.session(session),
    counters: await store.counters("echo"),
    byKey: await store.findByIdempotencyKey(key.tenant, idempotencyKey),
    list: await store.list({ tenant: key.tenant, limit: 1_000, offset: 0 }),
    owned: await store.owned(OWNER, 1_000),
    blocked: await store.blocked({ limit: 1_000 }),
    backlog: sorted(await store.backlog()),
  };
}

/** A list without a defined order, sorted. */
export function sorted<T>(list: readonly T[]): readonly T[] {
  const texts = list.map((one) => [JSON.stringify(one), one] as const);
  return texts.toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([, one]) => one);
}
