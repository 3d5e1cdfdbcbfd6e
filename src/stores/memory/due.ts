import type { DueEntry } from "./due-heap.ts";
import { DueHeap } from "./due-heap.ts";
import type { MemoryRun } from "./tenant.ts";

const NEVER = Number.NEGATIVE_INFINITY;

/** The runs of one agent and version that have no owner and have a due time. */
export class DueRuns {
  /** Runs that need a permit, under the key of their slot. All others are under null. */
  readonly queues = new Map<string | null, DueHeap<MemoryRun>>();

  add(entry: DueEntry<MemoryRun>, slot: string | null): void {
    let heap = this.queues.get(slot);
    if (heap === undefined) {
      heap = new DueHeap();
      this.queues.set(slot, heap);
    }
    heap.add(entry);
  }

  remove(entry: DueEntry<MemoryRun>, slot: string | null): void {
    const heap = this.queues.get(slot);
    heap?.remove(entry);
    if (slot !== null && heap?.first === undefined) this.queues.delete(slot);
  }
}

/** Runs that need work, in order. */
export interface Source {
  /** The slot of which all of them need a permit; null if they need none. */
  readonly slot: string | null;
  readonly first: MemoryRun | undefined;
  advance(): void;
  /** Ends the use of the source. */
  close(): void;
}

/** The due runs of a heap. Closing the source restores the heap. */
export class HeapSource implements Source {
  readonly slot: string | null;
  readonly #heap: DueHeap<MemoryRun>;
  readonly #now: number;
  readonly #seen: DueEntry<MemoryRun>[] = [];
  #isClosed = false;

  constructor(heap: DueHeap<MemoryRun>, slot: string | null, now: number) {
    this.#heap = heap;
    this.slot = slot;
    this.#now = now;
  }

  get first(): MemoryRun | undefined {
    const entry = this.#heap.first;
    return this.#isClosed || entry === undefined || entry.due_at > this.#now ? undefined : entry.item;
  }

  advance(): void {
    const entry = this.#heap.first;
    if (entry === undefined) return;
    this.#heap.remove(entry);
    this.#seen.push(entry);
  }

  close(): void {
    this.#isClosed = true;
    for (const entry of this.#seen.splice(0)) this.#heap.add(entry);
  }
}

export class ListSource implements Source {
  readonly slot = null;
  readonly #runs: readonly MemoryRun[];
  #index = 0;

  constructor(runs: readonly MemoryRun[]) {
    this.#runs = runs;
  }

  get first(): MemoryRun | undefined {
    return this.#runs[this.#index];
  }

  advance(): void {
    this.#index += 1;
  }

  close(): void {
    this.#index = this.#runs.length;
  }
}

export function firstOf(sources: readonly Source[]): Source | undefined {
  let first: { readonly source: Source; readonly run: MemoryRun } | undefined;
  for (const source of sources) {
    const run = source.first;
    if (run !== undefined && (first === undefined || byDueTime(run, first.run) < 0)) first = { source, run };
  }
  return first?.source;
}

export function byDueTime(one: MemoryRun, other: MemoryRun): number {
  const [a, b] = [one.head.due_at ?? NEVER, other.head.due_at ?? NEVER];
  return a === b ? one.order - other.order : a < b ? -1 : 1;
}
