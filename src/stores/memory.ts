import type { Entry } from "../core/log.ts";
import type {
  Expected,
  Retention,
  RunHead,
  RunKey,
  RunQuery,
  RunWrite,
  SessionChange,
  SessionKey,
  Store,
  StoreConflict,
  StoredRun,
  StoredSession,
} from "../core/ports.ts";
import type { Counters } from "../core/statistics.ts";
import type { Message } from "../protocol/message.ts";
import { Chain } from "./chain.ts";
import type { MemorySession } from "./memory-tenant.ts";
import { MemoryRun, Tenant } from "./memory-tenant.ts";

const NEVER = Number.NEGATIVE_INFINITY;

/** Keeps runs in the memory of the process, and answers at once. It is the default store. */
export class MemoryStore implements Store {
  readonly persistent = false;
  readonly #tenants = new Map<string, Tenant>();
  readonly #owners = new Map<string, Owner>();
  readonly #counters = new Map<string, Tally>();
  /** The runs that have not ended, in the order in which they were created. */
  readonly #live = new Chain<MemoryRun>();
  /** The runs that have ended, in the order in which they did. */
  readonly #ended = new Chain<MemoryRun>();
  /** The sessions in the order of their last change, but for those that `prune` found in use: they come back with their last run. */
  readonly #sessions = new Chain<MemorySession>();
  /** How many live runs have no owner and do not wait. */
  #ownerless = 0;
  /** No question that is shown expires before this time. */
  #nextDeadline = Number.POSITIVE_INFINITY;

  create(key: RunKey, write: RunWrite, idempotencyKey: string | null): StoreConflict | undefined {
    const tenant = this.#tenant(key.tenant);
    if (tenant.runs.has(key.run_id)) return { conflict: "exists" };
    if (idempotencyKey !== null) {
      const other = tenant.idempotencyKeys.get(idempotencyKey);
      if (other !== undefined) return { conflict: "key_used", run_id: other.key.run_id };
    }
    const run = new MemoryRun(key, write, idempotencyKey);
    const messages = messagesFor(tenant, write.session);
    tenant.add(run);
    if (write.head.finished_at === null) this.#begin(tenant, run);
    else this.#ended.addLast(run);
    this.#settle(tenant, run, write, messages);
    return undefined;
  }

  append(key: RunKey, expected: Expected, write: RunWrite): StoreConflict | undefined {
    const tenant = this.#tenants.get(key.tenant);
    const run = tenant?.runs.get(key.run_id);
    if (tenant === undefined || run === undefined) return { conflict: "missing" };
    const changed = changes(run, expected);
    if (changed !== undefined) return changed;
    const messages = messagesFor(tenant, write.session);
    run.add(write.entries);
    this.#replaceHead(tenant, run, write.head);
    this.#settle(tenant, run, write, messages);
    return undefined;
  }

  claim(key: RunKey, expected: Expected, head: RunHead, now: number): StoreConflict | undefined {
    const tenant = this.#tenants.get(key.tenant);
    const run = tenant?.runs.get(key.run_id);
    if (tenant === undefined || run === undefined) return { conflict: "missing" };
    const changed = changes(run, expected);
    if (changed !== undefined) return changed;
    const { owner } = run.head;
    if (owner !== null && (this.#owners.get(owner)?.until ?? NEVER) > now) return { conflict: "owned" };
    this.#replaceHead(tenant, run, head);
    return undefined;
  }

  renew(owner: string, until: number): void {
    this.#owner(owner).until = until;
  }

  release(owner: string): void {
    const known = this.#owners.get(owner);
    if (known === undefined) return;
    known.until = NEVER;
    this.#dropOwner(owner, known);
  }

  find(key: RunKey): StoredRun | undefined {
    return this.#run(key)?.stored();
  }

  read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
    return this.#run(key)?.entries.slice(from, from + limit);
  }

  findByIdempotencyKey(tenant: string, idempotencyKey: string): StoredRun | undefined {
    return this.#tenants.get(tenant)?.idempotencyKeys.get(idempotencyKey)?.stored();
  }

  list(query: RunQuery): readonly StoredRun[] {
    const found: StoredRun[] = [];
    let skip = query.offset;
    let run = this.#tenants.get(query.tenant)?.newest ?? null;
    for (; run !== null && found.length < query.limit; run = run.older) {
      if (matches(run, query) && --skip < 0) found.push(run.stored());
    }
    return found;
  }

  due(now: number, limit: number): readonly StoredRun[] {
    const found: StoredRun[] = [];
    if (!this.#maybeDue(now)) return found;
    let nextDeadline = Number.POSITIVE_INFINITY;
    for (let run = this.#live.first; run !== null; run = run.after) {
      // Those behind have not been looked at: what is known of the deadlines stays as it is.
      if (found.length >= limit) return found;
      if (this.#isDue(run.head, now)) found.push(run.stored());
      nextDeadline = Math.min(nextDeadline, deadlineOf(run.head));
    }
    this.#nextDeadline = nextDeadline;
    return found;
  }

  session(key: SessionKey): StoredSession | undefined {
    const session = this.#tenants.get(key.tenant)?.sessions.get(key.session_id);
    return session && { history: session.history.slice(), state: session.state };
  }

  putSession(key: SessionKey, { history, state }: StoredSession, at: number): void {
    const session = this.#openSession(this.#tenant(key.tenant), key.session_id);
    session.history = history.slice();
    session.state = state;
    this.#touch(session, at);
  }

  counters(agentName: string): Counters | undefined {
    const tally = this.#counters.get(agentName);
    return tally && { ...tally };
  }

  prune({ maxRuns, endedBefore, sessionsBefore }: Retention): number {
    const before = this.#ended.size;
    for (let run = this.#ended.first; run !== null; run = this.#ended.first) {
      if (this.#ended.size <= maxRuns && (run.head.finished_at ?? NEVER) >= endedBefore) break;
      this.#ended.remove(run);
      const tenant = this.#tenant(run.key.tenant);
      tenant.remove(run);
      this.#drop(tenant);
    }
    this.#pruneSessions(sessionsBefore);
    return before - this.#ended.size;
  }

  close(): void {
    // Nothing is held but memory.
  }

  #tenant(name: string): Tenant {
    let tenant = this.#tenants.get(name);
    if (tenant === undefined) {
      tenant = new Tenant(name);
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }

  #run(key: RunKey): MemoryRun | undefined {
    return this.#tenants.get(key.tenant)?.runs.get(key.run_id);
  }

  #owner(name: string): Owner {
    let owner = this.#owners.get(name);
    if (owner === undefined) {
      owner = { until: NEVER, runs: 0 };
      this.#owners.set(name, owner);
    }
    return owner;
  }

  #dropOwner(name: string, owner: Owner): void {
    if (owner.runs === 0 && owner.until === NEVER) this.#owners.delete(name);
  }

  #begin(tenant: Tenant, run: MemoryRun): void {
    this.#live.addLast(run);
    this.#book(run.head, 1);
    const { session_id } = run.created;
    if (session_id !== run.key.run_id) tenant.users.set(session_id, (tenant.users.get(session_id) ?? 0) + 1);
  }

  #replaceHead(tenant: Tenant, run: MemoryRun, head: RunHead): void {
    const before = run.head;
    run.head = head;
    if (before.finished_at !== null) return;
    if (head.finished_at === null) {
      if (head.owner === before.owner && head.status === before.status && head.deadline === before.deadline) return;
      this.#book(before, -1);
      this.#book(head, 1);
      return;
    }
    this.#book(before, -1);
    this.#live.remove(run);
    this.#ended.addLast(run);
    this.#leave(tenant, run);
  }

  /** Keeps the figures by which `due` sees that nothing is, for a live run that has this head or has it no longer. */
  #book(head: RunHead, by: 1 | -1): void {
    if (head.owner !== null) {
      const owner = this.#owner(head.owner);
      owner.runs += by;
      if (by === -1) this.#dropOwner(head.owner, owner);
    } else if (head.status !== "awaiting") {
      this.#ownerless += by;
    }
    if (by === 1) this.#nextDeadline = Math.min(this.#nextDeadline, deadlineOf(head));
  }

  #maybeDue(now: number): boolean {
    if (this.#ownerless > 0 || this.#nextDeadline <= now) return true;
    for (const owner of this.#owners.values()) if (owner.runs > 0 && owner.until <= now) return true;
    return false;
  }

  #isDue(head: RunHead, now: number): boolean {
    if (deadlineOf(head) <= now) return true;
    if (head.owner === null) return head.status !== "awaiting";
    return (this.#owners.get(head.owner)?.until ?? NEVER) <= now;
  }

  /** What comes with the entries of a write: the session and the counters. */
  #settle(tenant: Tenant, run: MemoryRun, write: RunWrite, messages: readonly Message[] | undefined): void {
    if (write.session !== undefined && messages !== undefined) this.#changeSession(tenant, write.session, messages);
    if (write.counters !== undefined) this.#count(run.created.agent_name, write.counters);
  }

  #count(agentName: string, counters: Counters): void {
    const tally = this.#counters.get(agentName);
    if (tally === undefined) this.#counters.set(agentName, { ...counters });
    else add(tally, counters);
  }

  #changeSession(tenant: Tenant, change: SessionChange, messages: readonly Message[]): void {
    const session = this.#openSession(tenant, change.session_id);
    for (const message of messages) session.history.push(message);
    if (change.state !== undefined) session.state = change.state.value;
    this.#touch(session, change.at);
  }

  #openSession(tenant: Tenant, sessionId: string): MemorySession {
    let session = tenant.sessions.get(sessionId);
    if (session === undefined) {
      session = {
        tenant,
        id: sessionId,
        history: [],
        state: null,
        changed_at: NEVER,
        inLine: false,
        before: null,
        after: null,
      };
      tenant.sessions.set(sessionId, session);
    }
    return session;
  }

  #touch(session: MemorySession, at: number): void {
    session.changed_at = at;
    if (session.inLine) this.#sessions.remove(session);
    this.#sessions.addLast(session);
    session.inLine = true;
  }

  #leave(tenant: Tenant, run: MemoryRun): void {
    const { session_id } = run.created;
    if (session_id !== run.key.run_id) {
      const left = (tenant.users.get(session_id) ?? 0) - 1;
      if (left > 0) tenant.users.set(session_id, left);
      else tenant.users.delete(session_id);
    }
    if (tenant.sessions.size === 0) return;
    const session = tenant.sessions.get(session_id);
    // What `prune` has set aside is older than all that it has left in its place.
    if (session === undefined || session.inLine) return;
    this.#sessions.addFirst(session);
    session.inLine = true;
  }

  #pruneSessions(changedBefore: number): void {
    for (let session = this.#sessions.first; session !== null; session = this.#sessions.first) {
      if (session.changed_at >= changedBefore) break;
      this.#sessions.remove(session);
      session.inLine = false;
      const { tenant } = session;
      if (tenant.uses(session.id)) continue;
      tenant.sessions.delete(session.id);
      this.#drop(tenant);
    }
  }

  #drop(tenant: Tenant): void {
    if (tenant.runs.size === 0 && tenant.sessions.size === 0) this.#tenants.delete(tenant.name);
  }
}

type Tally = { -readonly [Name in keyof Counters]: Counters[Name] };

interface Owner {
  /** When the owner's lease expires. */
  until: number;
  /** How many live runs it has. */
  runs: number;
}

/** The messages of a change, asked for before anything is written; undefined if the change is nothing. */
function messagesFor(tenant: Tenant, change: SessionChange | undefined): readonly Message[] | undefined {
  if (change === undefined) return undefined;
  if (!change.create && !tenant.sessions.has(change.session_id)) return undefined;
  return change.messages?.() ?? [];
}

function changes(run: MemoryRun, expected: Expected): StoreConflict | undefined {
  const { epoch } = run.head;
  const position = run.entries.length;
  if (epoch === expected.epoch && position === expected.position) return undefined;
  return { conflict: "changed", epoch, position };
}

function deadlineOf(head: RunHead): number {
  return head.status === "awaiting" && head.deadline !== null ? head.deadline : Number.POSITIVE_INFINITY;
}

function matches({ created, head }: MemoryRun, query: RunQuery): boolean {
  if (query.agent_name !== undefined && created.agent_name !== query.agent_name) return false;
  if (query.session_id !== undefined && created.session_id !== query.session_id) return false;
  if (query.roots === true && created.parent !== undefined) return false;
  return query.status === undefined || head.status === query.status;
}

/** Written out, since every run that ends comes by here. */
function add(tally: Tally, counters: Counters): void {
  tally.completed += counters.completed;
  tally.failed += counters.failed;
  tally.cancelled += counters.cancelled;
  tally.active_ms += counters.active_ms;
  tally.waiting_ms += counters.waiting_ms;
  tally.reported += counters.reported;
  tally.input_tokens += counters.input_tokens;
  tally.output_tokens += counters.output_tokens;
  tally.total_tokens += counters.total_tokens;
  tally.cached_input_tokens += counters.cached_input_tokens;
  tally.cache_write_tokens += counters.cache_write_tokens;
  tally.reasoning_tokens += counters.reasoning_tokens;
}
