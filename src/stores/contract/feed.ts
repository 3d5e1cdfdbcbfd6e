import type { WatchedEvent } from "../../core/feed.ts";
import type { FeedItem, FeedPage, FeedQuery, Store } from "../../core/ports.ts";
import type { CheckBody, StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, NOW } from "./check.ts";
import {
  append,
  create,
  createEnded,
  ended,
  forget,
  keep,
  over,
  parts,
  runId,
  runKey,
  tryCreate,
  waiting,
  write,
} from "./samples.ts";

/** For how long the stores of these checks keep an event, in milliseconds. */
const KEEP_MS = 60_000;
/** How often a page is read while the store says that more events come soon. */
const ATTEMPTS = 100_000;

const asked: WatchedEvent = { type: "run.awaiting", await_id: "ask#1", of: null };
const settled: WatchedEvent = { type: "question.settled", await_id: "ask#1", how: "answer", of: null };
const completed: WatchedEvent = { type: "run.completed" };
const failed: WatchedEvent = { type: "run.failed" };
const cancelled: WatchedEvent = { type: "run.cancelled" };
const blocked: WatchedEvent = { type: "run.blocked" };

/** The feed: the events of all runs, in one order that readers may rely on. A store that keeps none passes. */
export const feedChecks: readonly StoreCheck[] = [
  feedCheck("feed: what creates, appends and posts add, with the run, its agent and the time", async (stores) => {
    const { first, second, clock } = stores;
    const strange = { run_id: runId(1), await_id: 'ask "\u0000\ud800#1' };
    const ofSub: WatchedEvent = { type: "run.awaiting", await_id: `run:sub#1/${strange.await_id}`, of: strange };
    await create(first, 1, { tenant: "", created: { agent_name: "ask" }, head: waiting(), feed: [asked, ofSub] });
    clock.set(NOW + 5);
    await create(second, 2);
    await append(second, runKey(2), 1, write([ended()], { head: over(), feed: [settled, completed] }));
    clock.set(NOW + 9);
    const ways = (["answer", "default", "declined", "expired", "withdrawn"] as const).map(
      (how): WatchedEvent => ({ ...settled, how, of: strange }),
    );
    const all = [settled, ...ways, completed, failed, cancelled, blocked];
    await first.post(runKey(1, ""), { entries: parts("a"), feed: all });
    const one = { key: runKey(1, ""), agent_name: "ask" };
    const other = { key: runKey(2), agent_name: "echo" };
    const expected = [
      { ...one, at: NOW, event: asked },
      { ...one, at: NOW, event: ofSub },
      { ...other, at: NOW + 5, event: settled },
      { ...other, at: NOW + 5, event: completed },
      ...all.map((event) => ({ ...one, at: NOW + 9, event })),
    ];
    for (const store of [first, second]) {
      const { items } = await page(store);
      expectSame(items.map(withoutPosition), expected, "the events");
      expectSame(
        new Set(items.map(({ position }) => position)).size,
        expected.length,
        "how many positions the events have",
      );
    }
  }),

  feedCheck("feed: the blocked head of a run adds what its write says, and nothing by itself", async ({ first }) => {
    const mismatch = { position: 1, expected: "a", asked: "b" };
    await create(first, 1);
    await append(first, runKey(1), 1, { entries: [], head: waiting(null, { blocked: mismatch }), feed: [blocked] });
    await create(first, 2, { head: waiting(null, { blocked: mismatch }) });
    expectSame(await typesIn(first), ["run.blocked"], "the events");
  }),

  feedCheck("feed: a refused write adds nothing", async ({ first }) => {
    await create(first, 1, { idempotencyKey: "key" });
    await append(first, runKey(1), 1, write(parts("a")));
    const late = { ...write(parts("b")), feed: [asked] };
    const at1 = { epoch: 1, position: 1 };
    expectConflict(
      await first.append(runKey(1), at1, late),
      { conflict: "changed", epoch: 1, position: 2 },
      "a late one",
    );
    expectConflict(await first.append(runKey(9), at1, late), { conflict: "missing" }, "an append to a missing run");
    expectConflict(await first.post(runKey(9), late), { conflict: "missing" }, "a post to a missing run");
    expectConflict(await tryCreate(first, 1, { feed: [asked] }), { conflict: "exists" }, "a run that exists");
    const used = await tryCreate(first, 3, { idempotencyKey: "key", feed: [asked] });
    expectConflict(used, { conflict: "key_used", run_id: runId(1) }, "a key that was used");
    expectSame(await typesIn(first), [], "the events");
  }),

  feedCheck("feed: reads in pages of any size from any position, each event once", async ({ first, second }) => {
    await create(first, 1);
    for (let n = 1; n <= 7; n++)
      await append(n % 2 === 0 ? first : second, runKey(1), n, write(parts("a"), { feed: [questionOf(n)] }));
    const all = (await page(first)).items;
    expectSame(
      all.map(({ event }) => event),
      [1, 2, 3, 4, 5, 6, 7].map(questionOf),
      "the events, in the order of the writes",
    );
    for (const limit of [1, 2, 3, 7, 8])
      expectSame(await readOn(first, { limit }), all.map(withoutPosition), `pages of ${limit}`);
    for (const [index, { position }] of all.entries())
      expectSame((await page(second, { from: position })).items, all.slice(index + 1), `behind event ${index + 1}`);
  }),

  feedCheck("feed: nothing is added in front of a position", async ({ first, second }) => {
    await create(first, 2, { feed: [failed] });
    await page(first);
    const start = await page(first, { from: "now" });
    expectSame(start.items, [], "the events of `now`");
    await create(first, 1, { feed: [asked] });
    const { position } = await page(first, { from: start.position });
    await append(second, runKey(1), 1, write(parts("a"), { feed: [settled] }));
    expectSame(await typesIn(first, { from: position }), ["question.settled"], "what comes behind the first page");
    expectSame(await typesIn(second, { from: start.position }), ["run.awaiting", "question.settled"], "behind `now`");
    // All of them can be read by now.
    const { position: now } = await page(second, { from: "now" });
    expectSame(await page(first, { from: now }), { items: [], position: now, more: null }, "the page at the end");
  }),

  feedCheck("feed: by tenant and by type. What was looked at counts for the limit", async ({ first }) => {
    for (const n of [1, 2, 3, 4, 5, 6])
      await create(first, n, { tenant: n % 2 === 0 ? "" : "acme", feed: n % 3 === 0 ? [asked, failed] : [completed] });
    const ids = async (query: Partial<FeedQuery>): Promise<readonly unknown[]> =>
      (await readOn(first, { limit: 2, ...query })).map(({ key, event }) => [key.run_id, event.type]);
    expectSame(
      await ids({ types: ["run.failed", "run.awaiting"], tenant: "" }),
      [
        [runId(6), "run.awaiting"],
        [runId(6), "run.failed"],
      ],
      "of the tenant '', two types",
    );
    expectSame(
      await ids({ tenant: "acme", types: ["run.completed"] }),
      [
        [runId(1), "run.completed"],
        [runId(5), "run.completed"],
      ],
      "of a tenant, one type",
    );
    expectSame(await ids({ tenant: "nowhere" }), [], "of a tenant without runs");
    const rare = await page(first, { limit: 2, types: ["run.failed"] });
    expectSame([rare.items.length, rare.more], [0, "now"], "a page without events of the type, which is not the last");
  }),

  feedCheck("feed: runs of two tenants with the same id have events of their own", async ({ first }) => {
    await create(first, 1, { tenant: "", feed: [asked] });
    await create(first, 1, { tenant: "acme", feed: [completed] });
    await append(first, runKey(1, ""), 1, write([], { head: waiting(), feed: [settled] }));
    const items = await readOn(first, { limit: 9 });
    const told = items.map(({ key, event }) => [key.tenant, event.type]);
    const expected = [
      ["", "run.awaiting"],
      ["acme", "run.completed"],
      ["", "question.settled"],
    ];
    expectSame(told, expected, "the events");
  }),

  feedCheck("feed: events stay when their run is deleted", async ({ first }) => {
    await createEnded(first, 1, NOW, { feed: [asked] });
    await createEnded(first, 2, NOW, { feed: [asked] });
    const before = await page(first);
    await first.delete([runKey(1)]);
    await first.prune(forget);
    expectSame(await page(first), before, "the feed");
  }),

  feedCheck("feed: prune deletes the events that are too old, and a position before them is lost", async (stores) => {
    const { first, second, clock } = stores;
    const start = (await page(first, { from: "now" })).position;
    for (let n = 1; n <= 250; n++) await create(first, n, { feed: [completed] });
    const { items } = await page(first);
    clock.set(NOW + 10);
    await create(first, 300, { feed: [failed] });
    clock.set(NOW + KEEP_MS);
    await second.prune(keep);
    const { items: all, position: newest } = await page(second);
    expectSame(all.length, 251, "how many are left when none is too old");
    clock.set(NOW + KEEP_MS + 1);
    await second.prune(keep);
    expectSame(await typesIn(first), ["run.failed"], "what is left");
    expectSame(
      await typesIn(first, { from: items.at(-1)?.position ?? "" }),
      ["run.failed"],
      "behind the last deleted one",
    );
    for (const from of [start, items[0]?.position ?? "", items[248]?.position ?? ""])
      expectSame(await first.readFeed?.({ from, limit: 10 }), undefined, "behind a position before deleted events");
    clock.set(NOW + KEEP_MS + 11);
    await second.prune(keep);
    const { position } = await page(first);
    expectSame(await typesIn(first), [], "what is left of all");
    await create(second, 301, { feed: [asked] });
    for (const from of [position, newest])
      expectSame(await typesIn(first, { from }), ["run.awaiting"], "what comes after all were deleted");
  }),

  feedCheck("feed: what is no position of the feed is lost", async ({ first }) => {
    await create(first, 1, { feed: [asked, completed] });
    const [item] = (await page(first)).items;
    for (const from of [
      "",
      "x",
      "1.2",
      "1.2.3",
      `${item?.position}0x`,
      `x${item?.position}`,
      `${item?.position}.1`,
      "x".repeat(1_000),
    ])
      expectSame(await first.readFeed?.({ from, limit: 10 }), undefined, `the page behind ${from.slice(0, 60)}`);
  }),

  feedCheck("feed: a persistent store keeps its feed and its positions when it is opened again", async (stores) => {
    const { first, reopen } = stores;
    if (reopen === undefined) return;
    await create(first, 1, { feed: [asked] });
    await append(first, runKey(1), 1, write(parts("a"), { feed: [settled] }));
    const before = await page(first);
    const again = await reopen();
    expectSame(await page(again.first), before, "the feed");
    const from = before.items[0]?.position ?? "";
    await append(again.second, runKey(1), 2, write([ended()], { head: over(), feed: [completed] }));
    expectSame(
      await typesIn(again.first, { from }),
      ["question.settled", "run.completed"],
      "behind an event from before",
    );
  }),

  check("feed: a write with events is made by a store that keeps no feed, too", async ({ first }) => {
    await create(first, 1, { feed: [asked] });
    await append(first, runKey(1), 1, write(parts("a"), { head: waiting(), feed: [settled] }));
    expectSame(
      await first.post(runKey(1), { entries: parts("b"), feed: [settled] }),
      undefined,
      "the answer to a post",
    );
    expectSame((await first.read(runKey(1), 0, 10))?.length, 3, "the length of the log");
  }),
];

/** A check of stores that are asked to keep a feed. */
function feedCheck(name: string, body: CheckBody): StoreCheck {
  return check(name, async (stores) => (stores.first.readFeed === undefined ? undefined : body(stores)), {
    keepMs: KEEP_MS,
  });
}

function questionOf(n: number): WatchedEvent {
  return { type: "run.awaiting", await_id: `ask#${n}`, of: null };
}

/** A page, once no transaction beside the check holds events back any more. */
async function page(store: Store, query: Partial<FeedQuery> = {}): Promise<FeedPage> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await store.readFeed?.({ from: "start", limit: 1_000, ...query });
    if (found === undefined) throw new Error(`the feed behind ${query.from ?? "start"}: expected a page, it was lost`);
    if (found.more !== "soon") return found;
  }
  throw new Error(`the feed behind ${query.from ?? "start"}: expected all events, some were held back for too long`);
}

async function typesIn(store: Store, query: Partial<FeedQuery> = {}): Promise<readonly string[]> {
  return (await page(store, query)).items.map(({ event }) => event.type);
}

/** The events of all pages. */
async function readOn(store: Store, query: Partial<FeedQuery>): Promise<readonly Omit<FeedItem, "position">[]> {
  const found: Omit<FeedItem, "position">[] = [];
  let from = "start";
  for (let pages = 0; pages < 100; pages++) {
    const { items, position, more } = await page(store, { ...query, from });
    found.push(...items.map(withoutPosition));
    if (more !== "now") return found;
    from = position;
  }
  throw new Error("reading the feed in pages: expected an end, there was none after 100 pages");
}

function withoutPosition({ position: _, ...item }: FeedItem): Omit<FeedItem, "position"> {
  return item;
}
