import type { CreatedEntry } from "../core/log.ts";
import type { RunQuery } from "../core/run-query.ts";

/** Finds the runs of one tenant by their labels and by their parent, without a look at the others. */
export class RunIndex<Run extends { readonly order: number }> {
  /** The runs with a label, and the runs with a parent, each in the order in which they were created. */
  readonly #labelled = new Map<string, Set<Run>>();
  readonly #children = new Map<string, Set<Run>>();

  add(run: Run, { parent, labels }: CreatedEntry): void {
    if (parent !== undefined) addTo(this.#children, parent.run_id, run);
    if (labels === undefined) return;
    for (const label of Object.entries(labels)) addTo(this.#labelled, keyOf(label), run);
  }

  remove(run: Run, { parent, labels }: CreatedEntry): void {
    if (parent !== undefined) removeFrom(this.#children, parent.run_id, run);
    if (labels === undefined) return;
    for (const label of Object.entries(labels)) removeFrom(this.#labelled, keyOf(label), run);
  }

  /** The runs of which the query selects some, the newest first. Undefined: those may be any. */
  find({ parents, labels = {} }: RunQuery): readonly Run[] | undefined {
    let fewest: ReadonlySet<Run> | undefined = parents && this.#below(parents);
    for (const label of Object.entries(labels)) {
      const found: ReadonlySet<Run> = this.#labelled.get(keyOf(label)) ?? none;
      if (fewest === undefined || found.size < fewest.size) fewest = found;
    }
    return fewest && [...fewest].reverse();
  }

  #below(parents: readonly string[]): ReadonlySet<Run> {
    const sets = [...new Set(parents)].flatMap((id) => this.#children.get(id) ?? []);
    const [only = none] = sets;
    if (sets.length <= 1) return only;
    return new Set(sets.flatMap((set) => [...set]).toSorted((one, other) => one.order - other.order));
  }
}

const none: ReadonlySet<never> = new Set();

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
