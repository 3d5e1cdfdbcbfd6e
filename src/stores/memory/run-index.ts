import type { CreatedEntry } from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import { userOf } from "../../core/user.ts";

/** What the index knows of a run. */
export interface IndexedRun {
  readonly key: RunKey;
  readonly created: CreatedEntry;
  /** Higher for runs that were created later. */
  readonly order: number;
}

/**
 * Finds the runs of one tenant by their labels, their parent, their session and their creator, without a look at the others. It
 * does not hold the run whose id its session has: most runs are the only ones of such a session.
 */
export class RunIndex<Run extends IndexedRun> {
  /** The runs with a label, with a parent, in a session and by their creator. */
  readonly #labelled = new Map<string, Set<Run>>();
  readonly #children = new Map<string, Set<Run>>();
  readonly #inSession = new Map<string, Set<Run>>();
  readonly #created = new Map<string, Set<Run>>();

  add(run: Run): void {
    const { parent, labels, session_id, principal } = run.created;
    const creator = userOf(principal);
    if (creator !== undefined) addTo(this.#created, creator, run);
    if (session_id !== run.key.run_id) addTo(this.#inSession, session_id, run);
    if (parent !== undefined) addTo(this.#children, parent.run_id, run);
    if (labels === undefined) return;
    for (const label of Object.entries(labels)) addTo(this.#labelled, keyOf(label), run);
  }

  remove(run: Run): void {
    const { parent, labels, session_id, principal } = run.created;
    const creator = userOf(principal);
    if (creator !== undefined) removeFrom(this.#created, creator, run);
    if (session_id !== run.key.run_id) removeFrom(this.#inSession, session_id, run);
    if (parent !== undefined) removeFrom(this.#children, parent.run_id, run);
    if (labels === undefined) return;
    for (const label of Object.entries(labels)) removeFrom(this.#labelled, keyOf(label), run);
  }

  /** Whether a run is in the session, other than the one whose id the session has. */
  isJoined(sessionId: string): boolean {
    return this.#inSession.has(sessionId);
  }

  /**
   * The runs of which the query selects some, the newest first. Undefined: those may be any. `namesake`: the run whose id
   * the session of the query has.
   */
  find({ parents, session_id, creator, labels = {} }: RunQuery, namesake: Run | undefined): readonly Run[] | undefined {
    let fewest: ReadonlySet<Run> | undefined;
    if (session_id !== undefined) {
      fewest = this.#inSession.get(session_id) ?? none;
      if (namesake !== undefined) fewest = new Set([namesake, ...fewest]);
    }
    if (creator !== undefined) fewest = fewer(fewest, this.#created.get(creator));
    if (parents !== undefined) fewest = fewer(fewest, this.#below(parents));
    for (const label of Object.entries(labels)) {
      fewest = fewer(fewest, this.#labelled.get(keyOf(label)));
    }
    return fewest && [...fewest].sort((one, other) => other.order - one.order);
  }

  #below(parents: readonly string[]): ReadonlySet<Run> {
    const sets = [...new Set(parents)].flatMap((id) => this.#children.get(id) ?? []);
    const [only = none] = sets;
    if (sets.length <= 1) return only;
    return new Set(sets.flatMap((set) => [...set]));
  }
}

const none: ReadonlySet<never> = new Set();

function fewer<Run>(one: ReadonlySet<Run> | undefined, other: ReadonlySet<Run> = none): ReadonlySet<Run> {
  return one === undefined || other.size < one.size ? other : one;
}

/** A text that no other label has. */
function keyOf(label: readonly [name: string, value: string]): string {
  return JSON.stringify(label);
}

function addTo<Run>(sets: Map<string, Set<Run>>, key: string, run: Run): void {
  const set = sets.get(key);
  if (set === undefined) sets.set(key, new Set([run]));
  else set.add(run);
}

function removeFrom<Run>(sets: Map<string, Set<Run>>, key: string, run: Run): void {
  const set = sets.get(key);
  set?.delete(run);
  if (set?.size === 0) sets.delete(key);
}
