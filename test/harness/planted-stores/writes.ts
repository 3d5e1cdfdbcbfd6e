import { setImmediate as inNextTurn } from "node:timers/promises";
import { MemoryStore } from "cadenza";
import type { Entry, Expected, RunKey, RunWrite, StoredRun, StoredSession } from "cadenza/store";
import { over, runKey } from "../../../src/stores/contract/samples.ts";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken, keepEverything, refusal } from "./broken-store.ts";

const emptySession: StoredSession = { history: [], state: null };

/** Faults in `create` and `append`. */
export const writesFaults: readonly BrokenStore[] = [
  broken(
    "create replaces a run that is there",
    "create: a used id is refused as `exists`, and nothing changes",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        if (this.find(key) === undefined) return super.create(key, write, idempotencyKey);
        const { head, position } = this.find(key) ?? { head: write.head, position: 0 };
        return refusal(super.append(key, { epoch: head.epoch, position }, write));
      }
    },
  ),
  broken(
    "create reads before it waits, and writes after it",
    "create: of several concurrent runs with one id, exactly one is written",
    class extends MemoryStore {
      readonly #seen = new Map<string, RunWrite>();
      // @ts-expect-error The memory store answers at once, this one later.
      override async create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Promise<Conflict> {
        const there = this.find(key) !== undefined;
        await inNextTurn();
        if (!there && this.find(key) !== undefined) this.#seen.set(key.run_id, write);
        else return super.create(key, write, idempotencyKey);
        return undefined;
      }
    },
  ),
  broken(
    "create loses idempotency keys",
    "create: a used idempotency key is refused as `key_used` with its run, and nothing changes",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite): Conflict {
        return super.create(key, write, null);
      }
    },
  ),
  broken(
    "an empty idempotency key counts as none",
    "create: an idempotency key finds its run; runs without a key do not conflict",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, write, idempotencyKey || null);
      }
    },
  ),
  broken(
    "no idempotency key is one like any other",
    "create: an idempotency key finds its run; runs without a key do not conflict",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, write, String(idempotencyKey));
      }
    },
  ),
  broken(
    "idempotency keys are compared without regard to case",
    "create: an idempotency key finds its run; runs without a key do not conflict",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, write, idempotencyKey?.toLowerCase() ?? null);
      }
      override findByIdempotencyKey(tenant: string, idempotencyKey: string): StoredRun | undefined {
        return super.findByIdempotencyKey(tenant, idempotencyKey.toLowerCase());
      }
    },
  ),
  broken(
    "`key_used` names the run that was refused",
    "create: a used idempotency key is refused as `key_used` with its run, and nothing changes",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const answer = super.create(key, write, idempotencyKey);
        return answer?.conflict === "key_used" ? { ...answer, run_id: key.run_id } : answer;
      }
    },
  ),
  broken(
    "a refused create has changed the session already",
    "create: a used id is refused as `exists`, and nothing changes",
    class extends MemoryStore {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const { session, ...rest } = write;
        if (session?.create)
          this.putSession({ tenant: key.tenant, session_id: session.session_id }, emptySession, session.at);
        return super.create(key, session === undefined ? rest : write, idempotencyKey);
      }
    },
  ),
  broken(
    "append ignores the epoch",
    "append: on another epoch it is refused as `changed`, and nothing changes",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        return super.append(key, { ...expected, epoch: this.find(key)?.head.epoch ?? 0 }, write);
      }
    },
  ),
  broken(
    "append takes a higher epoch for good",
    "append: on another epoch it is refused as `changed`, and nothing changes",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const epoch = this.find(key)?.head.epoch ?? 0;
        return super.append(key, { ...expected, epoch: Math.min(epoch, expected.epoch) }, write);
      }
    },
  ),
  broken(
    "append ignores the position",
    "append: on another position it is refused as `changed`, and nothing changes",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        return super.append(key, { ...expected, position: this.find(key)?.position ?? 0 }, write);
      }
    },
  ),
  broken(
    "append ignores the owner",
    "append: under another owner than the expected one it is refused as `changed`",
    class extends MemoryStore {
      override append(key: RunKey, { owner: _owner, ...expected }: Expected, write: RunWrite): Written {
        return super.append(key, expected, write);
      }
    },
  ),
  broken(
    "append takes an expected owner of null for any owner",
    "append: under another owner than the expected one it is refused as `changed`",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        return super.append(key, { ...expected, owner: expected.owner ?? undefined }, write);
      }
    },
  ),
  broken(
    "`changed` gives back what was expected",
    "append: on another position it is refused as `changed`, and nothing changes",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        return answer?.conflict === "changed" ? { ...answer, ...expected } : answer;
      }
    },
  ),
  broken(
    "a refused append has added to the counters already",
    "append: on another position it is refused as `changed`, and nothing changes",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, { counters, ...write }: RunWrite): Written {
        if (counters !== undefined) {
          // The counters are added with a run that is deleted again.
          super.create(
            runKey(999, "elsewhere"),
            { ...write, entries: [createdOf(this, key)], head: over(0), counters },
            null,
          );
          super.prune({ ...keepEverything, endedBefore: 1 });
        }
        return super.append(key, expected, write);
      }
    },
  ),
  broken(
    "a refused append has replaced the head already",
    "append: on another position it is refused as `changed`, and nothing changes",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const run = this.find(key);
        const answer = super.append(key, expected, write);
        if (run === undefined || answer?.conflict !== "changed" || expected.epoch !== run.head.epoch) return answer;
        super.append(
          key,
          { epoch: run.head.epoch, position: run.position },
          { entries: [], head: { ...write.head, epoch: 3 } },
        );
        return answer;
      }
    },
  ),
  broken(
    "the head is merged, not replaced",
    "append: the entries are added to the log, and the head is replaced as a whole",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const takeovers = Math.max(write.head.takeovers, this.find(key)?.head.takeovers ?? 0);
        return super.append(key, expected, { ...write, head: { ...write.head, takeovers } });
      }
    },
  ),
  broken(
    "an append without entries is skipped",
    "append: without entries it replaces the head and changes the session",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        return write.entries.length === 0 ? undefined : super.append(key, expected, write);
      }
    },
  ),
  broken(
    "append reads before it waits, and writes after it",
    "append: of several concurrent writes at one position, exactly one is made",
    class extends MemoryStore {
      // @ts-expect-error The memory store answers at once, this one later.
      override async append(key: RunKey, expected: Expected, write: RunWrite): Promise<Written> {
        const run = this.find(key);
        await inNextTurn();
        if (run?.position !== expected.position || run.head.epoch !== expected.epoch)
          return super.append(key, expected, write);
        const { position = 0, head } = this.find(key) ?? {};
        return super.append(key, { epoch: head?.epoch ?? 0, position }, write);
      }
    },
  ),
  broken(
    "writes overtake each other",
    "append: writes that do not wait for each other are made in the order of the calls",
    class extends MemoryStore {
      // @ts-expect-error The memory store answers at once, this one later.
      override async append(key: RunKey, expected: Expected, write: RunWrite): Promise<Written> {
        await inNextTurn();
        if (expected.position % 2 === 0) await inNextTurn();
        return super.append(key, expected, write);
      }
    },
  ),
  broken(
    "a write that fails has written its entries",
    "a write that fails changes nothing, and the writes before and after it succeed",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const { session, ...first } = write;
        const answer = super.append(key, expected, first);
        if (answer !== undefined || session === undefined) return answer;
        const position = expected.position + write.entries.length;
        const { head } = write;
        return super.append(key, { epoch: head.epoch, position }, { entries: [], head, session });
      }
    },
  ),
  broken(
    "the caller's list of entries is kept",
    "a list that is passed in or returned may be changed afterwards",
    class extends MemoryStore {
      readonly #lists = new Map<string, readonly Entry[]>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#lists.set(key.run_id, write.entries);
        return super.create(key, write, idempotencyKey);
      }
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        const list = this.#lists.get(key.run_id) ?? [];
        const read = super.read(key, from, limit);
        return read && [...list.slice(from, from + limit), ...read.slice(Math.max(list.length - from, 0))];
      }
    },
  ),
  broken(
    "a store that is closed cannot be closed",
    "close: a second call does nothing",
    class extends MemoryStore {
      #isClosed = false;
      override close(): void {
        if (this.#isClosed) throw new Error("the store is not open");
        this.#isClosed = true;
      }
    },
  ),
];

function createdOf(store: MemoryStore, key: RunKey): Entry {
  const run = store.find(key);
  if (run === undefined) throw new Error("there is no such run");
  return run.created;
}
