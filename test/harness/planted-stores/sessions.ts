import { setImmediate as inNextTurn } from "node:timers/promises";
import type { Counters } from "cadenza";
import { MemoryStore } from "cadenza";
import type { Expected, RunKey, RunWrite, SessionKey, Store, StoredSession } from "cadenza/store";
import type { SessionChange, SessionHead } from "../internals.ts";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

type Range = NonNullable<Parameters<Store["session"]>[1]>;

/** Faults in what writes do to sessions and counters. */
export const sessionsFaults: readonly BrokenStore[] = [
  broken(
    "every change makes the session",
    "sessions: without `create`, a change to a missing session is ignored, and its messages are not requested",
    withSession((change) => ({ ...change, create: true })),
  ),
  broken(
    "the messages of a change are always asked for",
    "sessions: without `create`, a change to a missing session is ignored, and its messages are not requested",
    withSession((change) => {
      const messages = change.messages?.();
      return messages === undefined ? change : { ...change, messages: () => messages };
    }),
  ),
  broken(
    "a change without a state sets it to null",
    "sessions: messages join the history in order, and the state is replaced",
    withSession((change) => ({ ...change, state: change.state ?? { value: null } })),
  ),
  broken(
    "a state cannot be set to null",
    "sessions: messages join the history in order, and the state is replaced",
    withSession((change) => ({ ...change, state: change.state?.value === null ? undefined : change.state })),
  ),
  broken(
    "a session that is replaced keeps its messages",
    "sessions: a change with `replaces` takes the place of the history",
    withSession(({ replaces: _, ...change }) => change),
  ),
  broken(
    "a replaced session is written before the write is refused",
    "sessions: a refused write replaces nothing",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const { session } = write;
        if (session?.replaces === true)
          this.putSession(
            { tenant: key.tenant, session_id: session.session_id },
            { history: [], state: null },
            session.at,
          );
        return super.create(key, write, idempotencyKey);
      }
    },
  ),
  broken(
    "a missing session has the length 0",
    "sessions: sessionHead is the number of messages and the state, and undefined without a session",
    class extends MemoryStore {
      override sessionHead(key: SessionKey): SessionHead {
        return super.sessionHead(key) ?? { length: 0, state: null };
      }
    },
  ),
  broken(
    "the length of a session is remembered",
    "sessions: sessionHead is the number of messages and the state, and undefined without a session",
    class extends MemoryStore {
      readonly #lengths = new Map<string, number>();
      override sessionHead(key: SessionKey): SessionHead | undefined {
        const id = JSON.stringify(key);
        const head = super.sessionHead(key);
        const length = this.#lengths.get(id) ?? head?.length;
        if (length === undefined) return undefined;
        this.#lengths.set(id, length);
        return { state: null, ...head, length };
      }
    },
  ),
  broken(
    "a session that is replaced keeps its generation",
    "sessions: a session keeps its generation until it is replaced or deleted",
    class extends MemoryStore {
      override putSession(key: SessionKey, session: StoredSession, at: number): void {
        const { generation } = super.sessionHead(key) ?? session;
        super.putSession(key, { ...session, ...(generation !== undefined && { generation }) }, at);
      }
    },
  ),
  broken(
    "a change that replaces a session keeps its generation",
    "sessions: a session keeps its generation until it is replaced or deleted",
    class extends MemoryStore {
      override create(key: RunKey, { session, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        if (session?.replaces !== true) return super.create(key, { ...write, session }, idempotencyKey);
        const kept = super.sessionHead({ tenant: key.tenant, session_id: session.session_id }) ?? session;
        return super.create(key, { ...write, session: { ...session, generation: kept.generation } }, idempotencyKey);
      }
    },
  ),
  broken(
    "each change gives the session its generation",
    "sessions: a session keeps its generation until it is replaced or deleted",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        const generation = write.session?.generation;
        const sessionKey = { tenant: key.tenant, session_id: write.session?.session_id ?? "" };
        const session = super.session(sessionKey);
        if (answer === undefined && session !== undefined && generation !== undefined)
          super.putSession(sessionKey, { ...session, generation }, write.session?.at ?? 0);
        return answer;
      }
    },
  ),
  broken(
    "putSession adds to the history",
    "sessions: putSession makes the session or replaces it as a whole",
    class extends MemoryStore {
      override putSession(key: SessionKey, { history, state }: StoredSession, at: number): void {
        super.putSession(key, { history: [...(this.session(key)?.history ?? []), ...history], state }, at);
      }
    },
  ),
  broken(
    "a session is read, changed and written back",
    "sessions: runs that end concurrently lose none of their messages",
    class extends MemoryStore {
      // @ts-expect-error The memory store answers at once, this one later.
      override async append(key: RunKey, expected: Expected, { session, ...write }: RunWrite): Promise<Written> {
        if (session === undefined) return super.append(key, expected, write);
        const sessionKey = { tenant: key.tenant, session_id: session.session_id };
        const before = this.session(sessionKey);
        await inNextTurn();
        const answer = super.append(key, expected, write);
        if (answer !== undefined || (before === undefined && !session.create)) return answer;
        const history = [...(before?.history ?? []), ...(session.messages?.() ?? [])];
        this.putSession(sessionKey, { history, state: session.state?.value ?? before?.state ?? null }, session.at);
        return undefined;
      }
    },
  ),
  ...(
    [
      ["a range is ignored", () => undefined],
      ["a range ends behind its last message", ({ from, to }) => ({ from, to: to + 1 })],
      ["a range begins behind its first message", ({ from, to }) => ({ from: from + 1, to })],
    ] satisfies readonly (readonly [string, (range: Range) => Range | undefined])[]
  ).map(([fault, twist]) =>
    broken(
      fault,
      "sessions: with a range only these messages are given",
      class extends MemoryStore {
        override session(key: SessionKey, range?: Range): StoredSession | undefined {
          return super.session(key, range && twist(range));
        }
      },
    ),
  ),
  broken(
    "the history that is read is the stored one",
    "sessions: a list that is passed in or returned may be changed afterwards",
    class extends MemoryStore {
      readonly #read = new Map<string, StoredSession>();
      override session(key: SessionKey): StoredSession | undefined {
        const id = JSON.stringify(key);
        const session = this.#read.get(id) ?? super.session(key);
        if (session !== undefined) this.#read.set(id, session);
        return session;
      }
    },
  ),
  broken(
    "there are always counters",
    "counters: undefined before the first run of the agent has ended",
    class extends MemoryStore {
      override counters(agentName: string): Counters {
        return super.counters(agentName) ?? ({} as Counters);
      }
    },
  ),
  broken(
    "the last counters win",
    "counters: added up, key by key, for each agent and over all tenants",
    class extends MemoryStore {
      readonly #last = new Map<string, Counters>();
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const run = this.find(key);
        if (run !== undefined && write.counters !== undefined) this.#last.set(run.created.agent_name, write.counters);
        return super.append(key, expected, write);
      }
      override counters(agentName: string): Counters | undefined {
        return this.#last.get(agentName) ?? super.counters(agentName);
      }
    },
  ),
  broken(
    "a counter that was added later is not stored",
    "counters: added up, key by key, for each agent and over all tenants",
    class extends MemoryStore {
      override counters(agentName: string): Counters | undefined {
        const counters = super.counters(agentName);
        return counters && { ...counters, reasoning_tokens: 0 };
      }
    },
  ),
];

/** A store that carries out another session change. */
export function withSession(twist: (change: SessionChange) => SessionChange): new () => Store {
  const twisted = (write: RunWrite): RunWrite =>
    write.session === undefined ? write : { ...write, session: twist(write.session) };
  return class extends MemoryStore {
    override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
      return super.create(key, twisted(write), idempotencyKey);
    }
    override append(key: RunKey, expected: Expected, write: RunWrite): Written {
      return super.append(key, expected, twisted(write));
    }
  };
}
