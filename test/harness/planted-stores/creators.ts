import { MemoryStore } from "cadenza";
import type { RunKey, RunQuery, RunWrite, SessionKey, StoredSession } from "cadenza/store";
import type { SessionHead } from "../internals.ts";
import type { BrokenStore, Conflict } from "./broken-store.ts";
import { broken } from "./broken-store.ts";
import { withSession } from "./sessions.ts";

/** Faults in whose the runs and sessions are. */
export const creatorsFaults: readonly BrokenStore[] = [
  broken("a list ignores the creator", lists("has the runs of one creator, the newest first"), listing(all)),
  broken(
    "a list of a creator holds in one tenant what all tenants have",
    lists("has the runs of one creator, the newest first"),
    class extends MemoryStore {
      override list(query: RunQuery): ReturnType<MemoryStore["list"]> {
        const others = query.creator === undefined ? [] : super.list({ ...query, tenant: "other" });
        return [...super.list(query), ...others];
      }
    },
  ),
  broken(
    "the case of a creator does not count",
    "creators: ids are told apart by every character",
    class extends MemoryStore {
      override list(query: RunQuery): ReturnType<MemoryStore["list"]> {
        const { creator } = query;
        if (creator !== "ada") return super.list(query);
        return [...super.list(query), ...super.list({ ...query, creator: "Ada" })];
      }
    },
  ),
  broken(
    "a list of a creator ignores the session",
    "creators: the other conditions of a list hold too, and pages",
    listing(({ session_id: _, ...query }) => query),
  ),
  broken(
    "a list of a creator ignores labels",
    "creators: the other conditions of a list hold too, and pages",
    listing(({ labels: _, ...query }) => query),
  ),
  broken(
    "a list of a creator begins at the newest run",
    "creators: the other conditions of a list hold too, and pages",
    listing(({ after: _, ...query }) => query),
  ),
  broken(
    "a session has no creator",
    "creators: the write that makes a session says its creator, and other writes keep it",
    withSession(({ creator: _, ...change }) => change),
  ),
  broken(
    "the head of a session has no creator",
    "creators: the write that makes a session says its creator, and other writes keep it",
    class extends MemoryStore {
      override sessionHead(key: SessionKey): SessionHead | undefined {
        const head = super.sessionHead(key);
        return head && { length: head.length, state: head.state };
      }
    },
  ),
  broken(
    "a session that is replaced gets another creator",
    "creators: the write that makes a session says its creator, and other writes keep it",
    class extends MemoryStore {
      override async putSession(key: SessionKey, session: StoredSession, at: number): Promise<void> {
        await this.deleteSession(key);
        super.putSession(key, session, at);
      }
    },
  ),
  broken(
    "a session that is made by itself has no creator",
    "creators: the write that makes a session says its creator, and other writes keep it",
    class extends MemoryStore {
      override makeSession(key: SessionKey, { creator: _, ...session }: StoredSession, at: number): boolean {
        return super.makeSession(key, session, at);
      }
    },
  ),
  broken(
    "a run joins the session of any creator",
    "creators: a run that wants a session of its creator is refused as `foreign` in that of another",
    withSession(({ onlyOf: _, ...change }) => change),
  ),
  broken(
    "a run joins a session without a creator",
    "creators: a run that wants a session of its creator is refused as `foreign` in that of another",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const { session } = write;
        const head = session && super.sessionHead({ tenant: key.tenant, session_id: session.session_id });
        if (session === undefined || head === undefined || head.creator !== undefined)
          return super.create(key, write, idempotencyKey);
        return super.create(key, { ...write, session: { ...session, onlyOf: undefined } }, idempotencyKey);
      }
    },
  ),
  broken(
    "a run that is refused as foreign has used its key",
    "creators: a run that wants a session of its creator is refused as `foreign` in that of another",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const answer = super.create(key, write, idempotencyKey);
        if (answer?.conflict === "foreign") super.create(key, { ...write, session: undefined }, idempotencyKey);
        return answer;
      }
    },
  ),
  broken(
    "whose a session is is looked up before the write",
    "creators: of two users who make one session at a time, one is refused",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): never {
        return this.#later(key, write, idempotencyKey) as never;
      }

      async #later(key: RunKey, write: RunWrite, idempotencyKey: string | null): Promise<Conflict> {
        const { session } = write;
        if (session?.onlyOf === undefined) return super.create(key, write, idempotencyKey);
        const head = super.sessionHead({ tenant: key.tenant, session_id: session.session_id });
        await Promise.resolve();
        if (head !== undefined && head.creator !== session.onlyOf) return { conflict: "foreign" };
        return super.create(key, { ...write, session: { ...session, onlyOf: undefined } }, idempotencyKey);
      }
    },
  ),
];

function lists(what: string): string {
  return `creators: a list ${what}`;
}

function all({ creator: _, ...query }: RunQuery): RunQuery {
  return query;
}

/** A store that reads another query in the place of one by a creator. */
function listing(change: (query: RunQuery) => RunQuery): typeof MemoryStore {
  return class extends MemoryStore {
    override list(query: RunQuery): ReturnType<MemoryStore["list"]> {
      return super.list(query.creator === undefined ? query : change(query));
    }
  };
}
