import type { WatchedEvent } from "../../core/feed.ts";
import type { FeedItem, FeedPage, FeedQuery, RunKey } from "../../core/ports.ts";
import { systemIds } from "../../runtime/log/system.ts";
import { isWanted } from "../feed.ts";

/** From how many deleted events on the list is made anew. */
const COMPACTED_AT = 1_024;

/** The feed of a store in memory: a list of the events that are young enough. */
export class MemoryFeed {
  readonly #keepMs: number;
  /** Positions of another store in memory are none of this one. */
  readonly #id = systemIds.token();
  #items: FeedItem[] = [];
  /** How many of the items at the beginning are deleted. */
  #deleted = 0;
  /** How many events were added before the first item. */
  #before = 0;

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  add(key: RunKey, agent_name: string, events: readonly WatchedEvent[], at: number): void {
    for (const event of events) {
      const position = this.#positionAt(this.#before + this.#items.length + 1);
      this.#items.push({ position, key, agent_name, at, event });
    }
    this.trim(at);
  }

  /** Deletes the events that are too old. */
  trim(now: number): void {
    for (let first = this.#items[this.#deleted]; first !== undefined; first = this.#items[this.#deleted]) {
      if (first.at >= now - this.#keepMs) break;
      this.#deleted += 1;
    }
    if (this.#deleted < COMPACTED_AT || this.#deleted < this.#items.length / 2) return;
    this.#items = this.#items.slice(this.#deleted);
    this.#before += this.#deleted;
    this.#deleted = 0;
  }

  read(query: FeedQuery): FeedPage | undefined {
    const start = this.#before + this.#deleted;
    const end = this.#before + this.#items.length;
    const from = query.from === "start" ? start : query.from === "now" ? end : this.#numberOf(query.from);
    if (from === undefined || from < start || from > end) return undefined;
    const to = Math.min(end, from + query.limit);
    const items = this.#items.slice(from - this.#before, to - this.#before).filter((item) => isWanted(item, query));
    return { items, position: this.#positionAt(to), more: to < end ? "now" : null };
  }

  #positionAt(number: number): string {
    return `${this.#id}.${number}`;
  }

  #numberOf(position: string): number | undefined {
    const number = Number(position.slice(this.#id.length + 1));
    return Number.isSafeInteger(number) && position === this.#positionAt(number) ? number : undefined;
  }
}
