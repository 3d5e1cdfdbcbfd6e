/** A member of at most one chain at a time. Only the chain writes these properties. */
export interface Link<T> {
  before: T | null;
  after: T | null;
}

/** A linked list. Members join at either end and leave from anywhere, in constant time and without an allocation. */
export class Chain<T extends Link<T>> {
  #first: T | null = null;
  #last: T | null = null;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): T | null {
    return this.#first;
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let member = this.#first; member !== null; member = member.after) yield member;
  }

  addLast(member: T): void {
    member.before = this.#last;
    if (this.#last === null) this.#first = member;
    else this.#last.after = member;
    this.#last = member;
    this.#size += 1;
  }

  addFirst(member: T): void {
    member.after = this.#first;
    if (this.#first === null) this.#last = member;
    else this.#first.before = member;
    this.#first = member;
    this.#size += 1;
  }

  remove(member: T): void {
    const { before, after } = member;
    if (before === null) this.#first = after;
    else before.after = after;
    if (after === null) this.#last = before;
    else after.before = before;
    member.before = null;
    member.after = null;
    this.#size -= 1;
  }
}
