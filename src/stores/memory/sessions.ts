import { copyJson } from "../../core/json.ts";
import type { SessionChange, StoredSession } from "../../core/ports.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import { Chain } from "./chain.ts";
import type { MemoryRun, MemorySession, Tenant } from "./tenant.ts";

const NEVER = Number.NEGATIVE_INFINITY;

/** The sessions of a memory store. */
export class MemorySessions {
  /** In the order of their last change. Sessions that `prune` found in use are left out until their last run ends. */
  readonly #chain = new Chain<MemorySession>();
  readonly #emptied: (tenant: Tenant) => void;

  /** `emptied` is called with a tenant that has lost a session. */
  constructor(emptied: (tenant: Tenant) => void) {
    this.#emptied = emptied;
  }

  /** Makes the session or replaces it whole. */
  put(tenant: Tenant, session_id: string, { history, state, ...marks }: StoredSession, at: number): void {
    this.change(tenant, { session_id, create: true, replaces: true, ...marks, state: { value: state }, at }, history);
  }

  /** Appends the messages that `messagesFor` returned, or puts them in the place of all others, and changes the state. */
  change(tenant: Tenant, change: SessionChange, messages: readonly Message[]): void {
    const session = this.#open(tenant, change);
    if (change.replaces === true) {
      session.history = [];
      session.generation = change.generation;
    }
    for (const message of messages) session.history.push(message);
    if (change.state !== undefined) session.state = change.state.value;
    this.#touch(session, change.at);
  }

  /** A live run uses its session from now on. */
  enter(tenant: Tenant, run: MemoryRun): void {
    const { session_id } = run.created;
    if (session_id !== run.key.run_id) tenant.users.set(session_id, (tenant.users.get(session_id) ?? 0) + 1);
  }

  /** A run that has ended uses its session no longer. */
  leave(tenant: Tenant, run: MemoryRun): void {
    const { session_id } = run.created;
    if (session_id !== run.key.run_id) {
      const left = (tenant.users.get(session_id) ?? 0) - 1;
      if (left > 0) tenant.users.set(session_id, left);
      else tenant.users.delete(session_id);
    }
    if (tenant.sessions.size === 0) return;
    const session = tenant.sessions.get(session_id);
    // `prune` removes sessions from the front, so this one is older than all that are in the chain.
    if (session === undefined || session.inLine) return;
    this.#chain.addFirst(session);
    session.inLine = true;
  }

  /** Deletes sessions that no live run uses and that were last changed before a time. */
  prune(sessionsBefore: number): void {
    for (let session = this.#chain.first; session !== null; session = this.#chain.first) {
      if (session.changed_at >= sessionsBefore) break;
      this.#takeOut(session);
      if (!session.tenant.uses(session.id)) this.#remove(session);
    }
  }

  /** Deletes the sessions of a tenant beyond a number, those that were changed first, unless a live run uses them. */
  limit(tenant: Tenant, maxSessions: number): void {
    let beyond = tenant.sessions.size - maxSessions;
    for (const session of tenant.sessions.values()) {
      if (beyond <= 0) break;
      beyond -= 1;
      this.delete(tenant, session.id);
    }
  }

  /** Deletes a session, unless a live run uses it, and returns whether it does not exist any more. */
  delete(tenant: Tenant, sessionId: string): boolean {
    const session = tenant.sessions.get(sessionId);
    if (session === undefined) return true;
    if (tenant.uses(sessionId)) return false;
    if (session.inLine) this.#takeOut(session);
    this.#remove(session);
    return true;
  }

  /** Deletes the session that a deleted run has made for itself, unless another run is in it. */
  forget(tenant: Tenant, { key: { run_id } }: MemoryRun): void {
    if (tenant.sessions.get(run_id)?.generation === run_id && !tenant.isJoined(run_id)) this.delete(tenant, run_id);
  }

  #takeOut(session: MemorySession): void {
    this.#chain.remove(session);
    session.inLine = false;
  }

  #remove({ tenant, id }: MemorySession): void {
    tenant.sessions.delete(id);
    this.#emptied(tenant);
  }

  #open(tenant: Tenant, { session_id: sessionId, generation, creator }: SessionChange): MemorySession {
    let session = tenant.sessions.get(sessionId);
    if (session === undefined) {
      session = {
        tenant,
        id: sessionId,
        history: [],
        state: null,
        generation,
        creator,
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
    const { sessions } = session.tenant;
    sessions.delete(session.id);
    sessions.set(session.id, session);
    if (session.inLine) this.#chain.remove(session);
    this.#chain.addLast(session);
    session.inLine = true;
  }
}

/** The state of a session. A copy, as of every store: who gets it may change it. */
export function stateOf({ state }: MemorySession): JsonValue {
  return copyJson(state) ?? null;
}

/** The generation and the creator of a session, as a store gives them. */
export function marksOf({ generation, creator }: MemorySession): Pick<StoredSession, "generation" | "creator"> {
  return { ...(generation !== undefined && { generation }), ...(creator !== undefined && { creator }) };
}

/** Whether the session of a new run was created by another user, or by none that is known. */
export function isForeign({ sessions }: Tenant, change: SessionChange | undefined): boolean {
  if (change?.onlyOf === undefined) return false;
  const session = sessions.get(change.session_id);
  return session !== undefined && session.creator !== change.onlyOf;
}

/** The messages of a change, read before anything is written; undefined if the change has no effect. */
export function messagesFor(tenant: Tenant, change: SessionChange | undefined): readonly Message[] | undefined {
  if (change === undefined) return undefined;
  if (!change.create && !tenant.sessions.has(change.session_id)) return undefined;
  return change.messages?.() ?? [];
}
