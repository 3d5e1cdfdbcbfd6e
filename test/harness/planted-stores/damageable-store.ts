import { CadenzaError, MemoryStore } from "cadenza";
import type { BlockedQuery, Entry, FoundRun, RunKey, RunQuery, StoredRun, TakeRequest } from "cadenza/store";
import type { OpenedStores } from "../internals.ts";

/** A memory store whose entries can be made unreadable. */
export class DamageableStore extends MemoryStore {
  readonly #damaged = new Map<string, Set<number>>();

  damage(key: RunKey, position: number): void {
    const id = JSON.stringify(key);
    this.#damaged.set(id, (this.#damaged.get(id) ?? new Set()).add(position));
  }

  override find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
    return sound(super.find(key, how), (run) => this.look(run));
  }

  override findByIdempotencyKey(tenant: string, idempotencyKey: string): StoredRun | undefined {
    return sound(super.findByIdempotencyKey(tenant, idempotencyKey), (run) => this.look(run));
  }

  override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
    for (const position of this.#damaged.get(JSON.stringify(key)) ?? [])
      if (position >= from && position < from + limit) throw damage(key);
    return super.read(key, from, limit);
  }

  // @ts-expect-error A run of the memory store cannot be damaged, one of this store can.
  override list(query: RunQuery): readonly FoundRun[] {
    return super.list(query).map((run) => this.look(run));
  }

  // @ts-expect-error As above.
  override blocked(query: BlockedQuery): readonly FoundRun[] {
    return super.blocked(query).map((run) => this.look(run));
  }

  // @ts-expect-error As above.
  override take(request: TakeRequest): readonly FoundRun[] {
    return super.take(request).map((run) => this.look(run));
  }

  /** The run as it can be read. */
  protected look(run: StoredRun): FoundRun {
    const isDamaged = this.#damaged.get(JSON.stringify(run.key))?.has(0) === true;
    return isDamaged ? { ...run, created: null, error: damage(run.key) } : run;
  }
}

/** Opens such a store for the contract. */
export function damageable(store: DamageableStore): OpenedStores {
  return {
    first: store,
    second: store,
    damage: (key, position) => store.damage(key, position),
    close: () => store.close(),
  };
}

function sound(run: StoredRun | undefined, look: (run: StoredRun) => FoundRun): StoredRun | undefined {
  if (run === undefined) return undefined;
  const found = look(run);
  if (found.created === null) throw found.error;
  return found;
}

function damage({ run_id }: RunKey): CadenzaError {
  return new CadenzaError("store_failed", `Run ${run_id} is damaged.`, { run_id });
}
