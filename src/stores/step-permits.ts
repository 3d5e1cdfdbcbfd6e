import type { StepUse } from "../core/ports.ts";

/** What a store keeps of an owner's permits of a limit of steps. */
export interface StepPermits extends StepUse {
  readonly owner: string;
  /** How many permits it was given. */
  readonly given: number;
  /** Its place among the owners that wait for one. Null: it does not wait. */
  readonly rank: number | null;
  /** How many may be held at a time, as it has said last. */
  readonly max: number;
}

/**
 * What the owners have once one of them has told its use, and the owners that wait have got what is free. `known`: those
 * whose lease lasts, and the one that tells.
 */
export function permitsAfter(
  known: readonly StepPermits[],
  owner: string,
  max: number,
  use: StepUse,
): readonly StepPermits[] {
  const before = known.find((one) => one.owner === owner);
  if (before !== undefined && before.turn >= use.turn) return known;
  const given = Math.max(before?.given ?? 0, use.used);
  const owners = known.filter((one) => one !== before);
  const waits = given < use.wanted;
  owners.push({ ...use, owner, max, given, rank: waits ? (before?.rank ?? lastRank(known) + 1) : null });
  let held = owners.reduce((sum, one) => sum + one.given - one.over, 0);
  for (let next = firstOf(owners); next !== undefined && held < next.max; next = firstOf(owners)) {
    const more = { ...next, given: next.given + 1 };
    owners[owners.indexOf(next)] = { ...more, rank: more.given < more.wanted ? lastRank(owners) + 1 : null };
    held += 1;
  }
  return owners;
}

/** The owner that waits longest. */
function firstOf(owners: readonly StepPermits[]): StepPermits | undefined {
  let first: StepPermits | undefined;
  for (const one of owners) if (one.rank !== null && one.rank < (first?.rank ?? Number.POSITIVE_INFINITY)) first = one;
  return first;
}

function lastRank(owners: readonly StepPermits[]): number {
  return owners.reduce((last, { rank }) => Math.max(last, rank ?? 0), 0);
}
