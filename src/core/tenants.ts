/** Counts by tenant. A tenant of which nothing is counted costs nothing. */
export class TenantCounts {
  readonly #counts = new Map<string, number>();
  #total = 0;

  get total(): number {
    return this.#total;
  }

  of(tenant: string): number {
    return this.#counts.get(tenant) ?? 0;
  }

  add(tenant: string, by: 1 | -1): void {
    this.#total += by;
    const count = this.of(tenant) + by;
    if (count === 0) this.#counts.delete(tenant);
    else this.#counts.set(tenant, count);
  }
}

/**
 * How much of a total one tenant may use where its limit is not `given`: half of it, so that no tenant takes all from the
 * others. An application without tenants has the empty one, which may use all.
 */
export function shareOf(tenant: string, given: number | undefined, total: number): number {
  return given ?? (tenant === "" ? total : Math.ceil(total / 2));
}

/** The tenant of the runs that work for operators. No scope that an application makes has it. */
export const OPERATORS = "cadenza:operators";
