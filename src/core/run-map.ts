import type { RunKey } from "./ports.ts";

/**
 * Values by run. The key is the whole `RunKey`: runs of two tenants may have the same id, and a client may know the id of
 * a run of another tenant. The runs of one tenant keep the order in which they were set.
 */
export class RunMap<V> {
  readonly #tenants = new Map<string, Map<string, V>>();
  /** The tenant that was used last, and its runs. Its map is kept when it is empty: the next run is probably of it too. */
  #tenant: string | undefined;
  #runs: Map<string, V> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** How many values the runs of a tenant have. */
  sizeOf(tenant: string): number {
    return this.#runsOf(tenant)?.size ?? 0;
  }

  get({ tenant, run_id }: RunKey): V | undefined {
    return this.#runsOf(tenant)?.get(run_id);
  }

  has({ tenant, run_id }: RunKey): boolean {
    return this.#runsOf(tenant)?.has(run_id) === true;
  }

  set({ tenant, run_id }: RunKey, value: V): void {
    let runs = this.#runsOf(tenant);
    if (runs === undefined) {
      runs = new Map();
      this.#tenants.set(tenant, runs);
      this.#use(tenant, runs);
    }
    const before = runs.size;
    runs.set(run_id, value);
    this.#size += runs.size - before;
  }

  /** Whether there was a value. */
  delete({ tenant, run_id }: RunKey): boolean {
    if (this.#runsOf(tenant)?.delete(run_id) !== true) return false;
    this.#size -= 1;
    return true;
  }

  clear(): void {
    this.#tenants.clear();
    this.#tenant = undefined;
    this.#runs = undefined;
    this.#size = 0;
  }

  /** The values of the runs of a tenant, in the order in which they were set. */
  valuesOf(tenant: string): Iterable<V> {
    return this.#runsOf(tenant)?.values() ?? [];
  }

  *values(): Generator<V, undefined> {
    for (const runs of this.#tenants.values()) yield* runs.values();
  }

  *entries(): Generator<readonly [key: RunKey, value: V], undefined> {
    for (const [tenant, runs] of this.#tenants) for (const [run_id, value] of runs) yield [{ tenant, run_id }, value];
  }

  #runsOf(tenant: string): Map<string, V> | undefined {
    if (tenant === this.#tenant) return this.#runs;
    const runs = this.#tenants.get(tenant);
    if (runs !== undefined) this.#use(tenant, runs);
    return runs;
  }

  #use(tenant: string, runs: Map<string, V>): void {
    if (this.#tenant !== undefined && this.#runs?.size === 0) this.#tenants.delete(this.#tenant);
    this.#tenant = tenant;
    this.#runs = runs;
  }
}

/** Whether two keys are those of one run. */
export function isSameRun(one: RunKey, other: RunKey): boolean {
  return one.run_id === other.run_id && one.tenant === other.tenant;
}
