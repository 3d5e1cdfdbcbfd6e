/** An item of a heap, with the time at which it is due. Only the heap writes `place`. */
export interface DueEntry<T> {
  readonly item: T;
  readonly due_at: number;
  /** Of two items that are due at the same time, the one with the lower order comes first. */
  readonly order: number;
  place: number;
}

/** Entries in the order in which they are due. They join, and leave from anywhere, in logarithmic time. */
export class DueHeap<T> {
  readonly #entries: DueEntry<T>[] = [];

  get first(): DueEntry<T> | undefined {
    return this.#entries[0];
  }

  get size(): number {
    return this.#entries.length;
  }

  /** In no particular order. */
  get items(): readonly T[] {
    return this.#entries.map(({ item }) => item);
  }

  /** How many entries are due at a time, counted up to a number. Looks at no more than twice as many. */
  count(by: number, most: number): number {
    let found = 0;
    const places = [0];
    for (let place = places.pop(); place !== undefined && found < most; place = places.pop()) {
      const entry = this.#entries[place];
      if (entry === undefined || entry.due_at > by) continue;
      found += 1;
      places.push(2 * place + 1, 2 * place + 2);
    }
    return found;
  }

  add(entry: DueEntry<T>): void {
    this.#entries.push(entry);
    this.#rise(entry, this.#entries.length - 1);
  }

  remove(entry: DueEntry<T>): void {
    const last = this.#entries.pop();
    if (last === undefined || last === entry) return;
    this.#rise(last, entry.place);
    this.#sink(last);
  }

  #rise(entry: DueEntry<T>, from: number): void {
    let place = from;
    while (place > 0) {
      const above = this.#entries[(place - 1) >> 1];
      if (above === undefined || !isBefore(entry, above)) break;
      this.#put(above, place);
      place = (place - 1) >> 1;
    }
    this.#put(entry, place);
  }

  #sink(entry: DueEntry<T>): void {
    let { place } = entry;
    for (;;) {
      const left = this.#entries[2 * place + 1];
      const right = this.#entries[2 * place + 2];
      const below = right !== undefined && left !== undefined && isBefore(right, left) ? right : left;
      if (below === undefined || !isBefore(below, entry)) break;
      const next = below.place;
      this.#put(below, place);
      place = next;
    }
    this.#put(entry, place);
  }

  #put(entry: DueEntry<T>, place: number): void {
    this.#entries[place] = entry;
    entry.place = place;
  }
}

function isBefore<T>(one: DueEntry<T>, other: DueEntry<T>): boolean {
  return one.due_at < other.due_at || (one.due_at === other.due_at && one.order < other.order);
}
