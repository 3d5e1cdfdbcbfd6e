/** Counts who is at work, and queues up who wants to be. A place has a key: an agent's name, or one of its sessions. */
export class Places {
  readonly #rooms = new Map<string, Room>();
  #queued = 0;

  /** How many wait for a place. */
  get queued(): number {
    return this.#queued;
  }

  /** Whether there is a place at once. */
  isFree(key: string, max: number): boolean {
    return (this.#rooms.get(key)?.taken ?? 0) < max;
  }

  /** Takes a place and calls back, now or when there is one. The answer leaves the queue again; undefined: there was no need to queue up. */
  take(key: string, max: number, callback: () => void): (() => void) | undefined {
    let room = this.#rooms.get(key);
    if (room === undefined) {
      room = { taken: 0, queue: [], next: 0 };
      this.#rooms.set(key, room);
    }
    if (room.taken < max) {
      room.taken += 1;
      callback();
      return undefined;
    }
    const waiting: Waiting = { callback };
    room.queue.push(waiting);
    this.#queued += 1;
    return () => {
      if (waiting.callback === undefined) return;
      waiting.callback = undefined;
      this.#queued -= 1;
    };
  }

  /** Gives a place back; whoever waits longest takes it over, if no more places are taken than there are. */
  give(key: string, max: number): void {
    const room = this.#rooms.get(key);
    if (room === undefined) return;
    const next = room.taken > max ? undefined : nextIn(room);
    if (next === undefined) {
      room.taken -= 1;
      if (room.taken === 0) this.#rooms.delete(key);
      return;
    }
    this.#queued -= 1;
    next();
  }
}

interface Room {
  taken: number;
  queue: Waiting[];
  next: number;
}

interface Waiting {
  /** Undefined once the place is taken, or not wanted any more. */
  callback: (() => void) | undefined;
}

/** Takes whoever waits longest out of the queue, and passes over those that have left it. */
function nextIn(room: Room): (() => void) | undefined {
  for (;;) {
    const waiting = room.queue[room.next];
    if (waiting === undefined) return undefined;
    room.next += 1;
    if (2 * room.next > room.queue.length) {
      room.queue = room.queue.slice(room.next);
      room.next = 0;
    }
    const { callback } = waiting;
    waiting.callback = undefined;
    if (callback !== undefined) return callback;
  }
}
