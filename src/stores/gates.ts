/*
 * A gate: of the runs of one customer, few stand among the due ones and in lines at a time. docs/project/own-store.md has the rules.
 */

/** So many runs of a gate are through it at most: a run that becomes due then stays behind it. */
export const MOST_THROUGH = 64;
/** Where no more than this are left of them, a `take` that has given some lets others through. */
export const FEW_THROUGH = 32;
/** A `take` that has found fewer runs than it may give looks at so many gates that have runs behind them. */
export const MAX_GATES = 16;
