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

/** With what the names of all begin that is the runtime's own: its tenant, its agents and the keys of what it creates. */
const OWN = "cadenza:";

/** The tenant of the runtime's own runs: schedules, and acts of operators. No scope that an application makes has it. */
export const OPERATORS = `${OWN}operators`;

/** The name of an agent of the runtime's own. No agent of an application has a name with a colon. */
export function ownName(name: string): string {
  return OWN + name;
}

/** Whether a run is one of the runtime's own. No list, figure or limit of an application has these, unless it names their tenant. */
export function isOwn(tenant: string): boolean {
  return tenant === OPERATORS;
}

/** Whether an agent is one of the runtime's own: the same, where runs are counted by agent. */
export function isOwnAgent(name: string): boolean {
  return name.startsWith(OWN);
}

/**
 * The idempotency key of what the runtime creates, also in tenants of applications. Callers' keys never begin so. Each part has
 * its length before it: no two lists of parts have the same key, whatever characters they are of.
 */
export function ownKey(...parts: readonly string[]): string {
  return OWN + encoded(...parts);
}

/** Whether an idempotency key is reserved for the runtime. */
export function isOwnKey(key: string): boolean {
  return key.startsWith(OWN);
}

/** Several texts as one, which no other list of texts gives. */
export function encoded(...parts: readonly string[]): string {
  return parts.map((part) => `${part.length}:${part}`).join("");
}
