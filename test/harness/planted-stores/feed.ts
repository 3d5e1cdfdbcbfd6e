import { MemoryStore } from "cadenza";
import type { Expected, FeedPage, FeedQuery, Retention, RunKey, RunPost, RunWrite } from "cadenza/store";
import type { FeedItem, OpenStoresOptions, WatchedEvent } from "../internals.ts";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";

const ADDED = "feed: what creates, appends and posts add, with the run, its agent and the time";
const BLOCKED = "feed: the blocked head of a run adds what its write says, and nothing by itself";
const REFUSED = "feed: a refused write adds nothing";
const PAGES = "feed: reads in pages of any size from any position, each event once";
const ORDER = "feed: nothing is added in front of a position";
const CONDITIONS = "feed: by tenant and by type. What was looked at counts for the limit";
const DELETED = "feed: events stay when their run is deleted";
const PRUNED = "feed: prune deletes the events that are too old, and a position before them is lost";
const LOST = "feed: what is no position of the feed is lost";

/** A feed of its own, written as a user might write it. Without a fault it keeps the contract. */
class OwnFeed extends MemoryStore {
  readonly #clock: OpenStoresOptions["clock"];
  readonly #keepMs: number;
  items: FeedItem[] = [];
  /** How many events were ever added, and how many of them are deleted. */
  count = 0;
  trimmed = 0;

  constructor({ clock, feed }: OpenStoresOptions) {
    super({ clock });
    this.#clock = clock;
    this.#keepMs = feed?.keepMs ?? 0;
  }

  override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
    return this.written(key, write, super.create(key, write, idempotencyKey));
  }

  override append(key: RunKey, expected: Expected, write: RunWrite): Written {
    return this.written(key, write, super.append(key, expected, write));
  }

  override post(key: RunKey, post: RunPost): Conflict {
    return this.written(key, post, super.post(key, post));
  }

  override prune(retention: Retention): number {
    const kept = this.items.findIndex(({ at }) => !this.isOld(at, this.#clock.now() - this.#keepMs));
    const deleted = kept === -1 ? this.items.length : kept;
    this.items.splice(0, deleted);
    this.trimmed += deleted;
    return super.prune(retention);
  }

  override readonly readFeed = (query: FeedQuery): FeedPage | undefined => {
    const page = this.pageOf(query);
    return page && this.changed(page, query);
  };

  protected changed(page: FeedPage, _query: FeedQuery): FeedPage {
    return page;
  }

  protected pageOf(query: FeedQuery): FeedPage | undefined {
    const end = this.trimmed + this.items.length;
    const from = query.from === "start" ? this.trimmed : query.from === "now" ? end : this.numberOf(query.from);
    if (from === undefined || !(from >= this.trimmed && from <= end)) return undefined;
    const looked = this.items.slice(from - this.trimmed, from - this.trimmed + query.limit);
    const more = from + looked.length < end ? "now" : null;
    const items = looked.filter((item) => this.isWanted(item, query));
    return { items, position: this.positionOf(from + looked.length), more };
  }

  protected written<Answer extends Written>(key: RunKey, { feed }: RunWrite | RunPost, conflict: Answer): Answer {
    if (conflict?.conflict === undefined) for (const event of feed ?? []) this.add(key, event);
    return conflict;
  }

  protected add(key: RunKey, event: WatchedEvent): void {
    this.items.push(this.itemOf(key, event));
  }

  protected itemOf(key: RunKey, event: WatchedEvent): FeedItem {
    this.count += 1;
    const agent_name = super.find(key)?.created.agent_name ?? "";
    return { position: this.positionOf(this.count), key, agent_name, at: this.#clock.now(), event };
  }

  protected isOld(at: number, before: number): boolean {
    return at < before;
  }

  protected isWanted({ key, event }: FeedItem, { tenant, types }: FeedQuery): boolean {
    return (tenant === undefined || key.tenant === tenant) && (types?.includes(event.type) ?? true);
  }

  protected positionOf(number: number): string {
    return `feed-${number}`;
  }

  protected numberOf(position: string): number | undefined {
    return /^feed-\d+$/.test(position) ? Number(position.slice(5)) : undefined;
  }
}

/** A store of a user without a fault. */
export const ownFeed = (options: OpenStoresOptions): MemoryStore => new OwnFeed(options);

/** Faults in the feed. */
export const feedFaults: readonly BrokenStore[] = [
  broken(
    "a feed leaves out what posts add",
    ADDED,
    class extends OwnFeed {
      override post(key: RunKey, { feed: _, ...post }: RunPost): Conflict {
        return super.post(key, post);
      }
    },
  ),
  broken(
    "a feed leaves out what creates add",
    ADDED,
    class extends OwnFeed {
      override create(key: RunKey, { feed: _, ...write }: RunWrite, idempotencyKey: string | null): Conflict {
        return super.create(key, write, idempotencyKey);
      }
    },
  ),
  broken(
    "a feed has one event of each write",
    ADDED,
    class extends OwnFeed {
      protected override written<Answer extends Written>(
        key: RunKey,
        write: RunWrite | RunPost,
        conflict: Answer,
      ): Answer {
        return super.written(key, { ...write, feed: write.feed?.slice(0, 1) }, conflict);
      }
    },
  ),
  broken(
    "a feed has the time of the first event in all",
    ADDED,
    class extends OwnFeed {
      protected override itemOf(key: RunKey, event: WatchedEvent): FeedItem {
        return { ...super.itemOf(key, event), at: this.items[0]?.at ?? 1_700_000_000_000 };
      }
    },
  ),
  broken(
    "a feed does not know the agent",
    ADDED,
    class extends OwnFeed {
      protected override itemOf(key: RunKey, event: WatchedEvent): FeedItem {
        return { ...super.itemOf(key, event), agent_name: "echo" };
      }
    },
  ),
  broken(
    "a feed gives one position to the events of a moment",
    ADDED,
    class extends OwnFeed {
      protected override itemOf(key: RunKey, event: WatchedEvent): FeedItem {
        const item = super.itemOf(key, event);
        return { ...item, position: this.items.find(({ at }) => at === item.at)?.position ?? item.position };
      }
    },
  ),
  {
    fault: "each instance has a feed of its own",
    caughtBy: ADDED,
    open: (options) => {
      const first = new OwnFeed(options);
      const second = new OwnFeed(options);
      second.create = (key, write, idempotencyKey) => {
        const conflict = first.create(key, { ...write, feed: undefined }, idempotencyKey);
        return conflict;
      };
      second.append = (key, expected, write) => first.append(key, expected, { ...write, feed: undefined });
      return { first, second };
    },
  },
  broken(
    "a feed tells of blocked runs by itself",
    BLOCKED,
    class extends OwnFeed {
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const isNews = write.head.blocked !== null && write.feed === undefined;
        return super.create(key, isNews ? { ...write, feed: [{ type: "run.blocked" }] } : write, idempotencyKey);
      }
    },
  ),
  broken(
    "a feed is written before the write is checked",
    REFUSED,
    class extends OwnFeed {
      protected override written<Answer extends Written>(
        key: RunKey,
        write: RunWrite | RunPost,
        conflict: Answer,
      ): Answer {
        super.written(key, write, undefined);
        return conflict;
      }
    },
  ),
  broken(
    "a page of a feed begins with the event of its position",
    PAGES,
    class extends OwnFeed {
      protected override numberOf(position: string): number | undefined {
        const number = super.numberOf(position);
        return number === undefined ? undefined : Math.max(this.trimmed, number - 1);
      }
    },
  ),
  broken(
    "a page of a feed skips an event",
    PAGES,
    class extends OwnFeed {
      protected override changed(page: FeedPage): FeedPage {
        if (page.more === null) return page;
        return { ...page, position: this.positionOf((this.numberOf(page.position) ?? 0) + 1) };
      }
    },
  ),
  broken(
    "a feed has the newest events first",
    PAGES,
    class extends OwnFeed {
      protected override add(key: RunKey, event: WatchedEvent): void {
        this.items.unshift(this.itemOf(key, event));
      }
    },
  ),
  broken(
    "a feed is sorted by its runs, so that events come in front of a position",
    ORDER,
    class extends OwnFeed {
      protected override add(key: RunKey, event: WatchedEvent): void {
        super.add(key, event);
        this.items.sort((one, other) => (one.event.type < other.event.type ? -1 : 1));
      }
    },
  ),
  broken(
    "a feed begins at its start, although asked for now",
    ORDER,
    class extends OwnFeed {
      protected override pageOf(query: FeedQuery): FeedPage | undefined {
        return super.pageOf(query.from === "now" ? { ...query, from: "start" } : query);
      }
    },
  ),
  broken(
    "a feed has another position at its end each time",
    ORDER,
    class extends OwnFeed {
      protected override changed(page: FeedPage, { from }: FeedQuery): FeedPage {
        return from === page.position ? { ...page, position: `${page.position}0` } : page;
      }
    },
  ),
  broken(
    "a feed ignores the tenant",
    CONDITIONS,
    class extends OwnFeed {
      protected override isWanted(item: FeedItem, { tenant: _, ...query }: FeedQuery): boolean {
        return super.isWanted(item, query);
      }
    },
  ),
  broken(
    "a feed ignores the types",
    CONDITIONS,
    class extends OwnFeed {
      protected override isWanted(item: FeedItem, { types: _, ...query }: FeedQuery): boolean {
        return super.isWanted(item, query);
      }
    },
  ),
  broken(
    "a feed is over with the first page without an event",
    CONDITIONS,
    class extends OwnFeed {
      protected override changed(page: FeedPage): FeedPage {
        return page.items.length === 0 ? { ...page, more: null } : page;
      }
    },
  ),
  broken(
    "a feed loses the events of deleted runs",
    DELETED,
    class extends OwnFeed {
      protected override isWanted(item: FeedItem, query: FeedQuery): boolean {
        return super.find(item.key) !== undefined && super.isWanted(item, query);
      }
    },
  ),
  broken(
    "a feed is never trimmed",
    PRUNED,
    class extends OwnFeed {
      protected override isOld(): boolean {
        return false;
      }
    },
  ),
  broken(
    "a feed is trimmed a moment too early",
    PRUNED,
    class extends OwnFeed {
      protected override isOld(at: number, before: number): boolean {
        return at <= before;
      }
    },
  ),
  broken(
    "a feed goes on behind a gap",
    PRUNED,
    class extends OwnFeed {
      protected override numberOf(position: string): number | undefined {
        const number = super.numberOf(position);
        return number === undefined ? undefined : Math.max(number, this.trimmed);
      }
    },
  ),
  broken(
    "a feed counts from 1 again when all events are deleted",
    PRUNED,
    class extends OwnFeed {
      override prune(retention: Retention): number {
        const pruned = super.prune(retention);
        if (this.items.length === 0) {
          this.trimmed = 0;
          this.count = 0;
        }
        return pruned;
      }
    },
  ),
  broken(
    "a feed takes any text as a position",
    LOST,
    class extends OwnFeed {
      protected override numberOf(position: string): number {
        return Number(/\d+/.exec(position)?.[0] ?? 0);
      }
    },
  ),
];

function broken(fault: string, caughtBy: string, Faulty: new (options: OpenStoresOptions) => MemoryStore): BrokenStore {
  return { fault, caughtBy, open: (options) => new Faulty(options) };
}
