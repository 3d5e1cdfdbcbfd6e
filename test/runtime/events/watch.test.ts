import { setImmediate as inNextTurn } from "node:timers";
import type { AgentFunction, DetailedEvent, Watch, Watched } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { FeedQuery, RunPost, RunWrite, Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { describe, expect, expectTypeOf, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { HintingStore } from "../../harness/planted-stores/hinting-store.ts";
import { withMembers } from "../../harness/port-proxy.ts";
import { refusal } from "../../harness/runtimes.ts";
import { hookedStore, lateStore } from "../../harness/store-proxy.ts";

const DAY_MS = 86_400_000;

interface Options {
  readonly keepMs?: number;
  readonly Opened?: typeof MemoryStore;
  /** What is put around the store. */
  readonly around?: (store: MemoryStore) => Store;
}

/** A runtime whose store keeps a feed. */
function setUp({ keepMs = DAY_MS, Opened = MemoryStore, around = (store) => store }: Options = {}) {
  const clock = new FakeClock();
  const kept = new Opened({ clock, feed: { keepMs } });
  const store = around(kept);
  const warnings: string[] = [];
  const ignore = (): void => {};
  const warn = (message: string): void => void warnings.push(message);
  const runtime = new AgentRuntime({ clock, store, logger: { debug: ignore, info: ignore, warn, error: ignore } });
  runtime.register("echo", (input) => input);
  runtime.register("asks", async (_input, { ask }) => JSON.stringify(await ask("Well?")));
  const echo = async (times = 1): Promise<void> => {
    for (let n = 0; n < times; n++) await runtime.createRun({ agent_name: "echo", input: "" });
  };
  return { clock, store, kept, runtime, warnings, echo };
}

/** A store that counts how often its feed is read, and how. */
function counted() {
  const reads: FeedQuery[] = [];
  const around = (store: MemoryStore): Store =>
    withMembers<Store>(store, {
      readFeed: (query) => {
        reads.push(query);
        return store.readFeed?.(query);
      },
    });
  return { reads, around };
}

/** A watch whose events are taken one after the other as they come. */
function follow(watch: Watch) {
  const all: Watched[] = [];
  const over = (async () => {
    for await (const one of watch) all.push(one);
  })();
  over.catch(() => {});
  return {
    all,
    over,
    get told() {
      return all.map(inShort);
    },
  };
}

/** What a watch gives until it waits. */
async function watched(clock: FakeClock, watch: Watch): Promise<readonly Watched[]> {
  const { all, over } = follow(watch);
  await clock.settle();
  await watch.return?.();
  await over;
  return all;
}

async function seen(clock: FakeClock, watch: Watch): Promise<readonly string[]> {
  return (await watched(clock, watch)).map(inShort);
}

function inShort({ event }: Watched): string {
  if (event.type === "run.awaiting") return `${event.await_id}?${event.of === null ? "" : ` of ${event.of.await_id}`}`;
  return event.type === "question.settled" ? `${event.await_id}: ${event.how}` : event.type;
}

describe("the events of a run", () => {
  it("say who, when and what, and nothing of what was said", async () => {
    const { runtime, clock } = setUp();
    const acme = runtime.scope({ tenant: "acme" });
    const { run_id } = await acme.createRun({ agent_name: "asks", input: "secret" });
    await clock.advance(1_000);
    await acme.resume({ run_id, await_resume: { secret: true } });

    const all = await watched(clock, acme.watch());

    const origin = { tenant: "acme", run_id, agent_name: "asks" };
    expect(all.map(({ position: _, at: __, ...one }) => one)).toEqual([
      { ...origin, event: { type: "run.awaiting", await_id: "ask#1", of: null } },
      { ...origin, event: { type: "question.settled", await_id: "ask#1", how: "answer", of: null } },
      { ...origin, event: { type: "run.completed" } },
    ]);
    expect(Date.parse(all[1]?.at ?? "") - Date.parse(all[0]?.at ?? "")).toBe(1_000);
    expect(JSON.stringify(all)).not.toContain("secret");
  });

  const twoQuestions: readonly (readonly [
    title: string,
    end: (runtime: AgentRuntime, run_id: string, clock: FakeClock) => unknown,
    told: readonly string[],
  ])[] = [
    [
      "answered",
      (runtime, run_id) => runtime.resume({ run_id, await_id: "ask#2", await_resume: { a: 1 } }),
      ["ask#2: answer"],
    ],
    [
      "declined",
      (runtime, run_id) => runtime.resume({ run_id, await_id: "ask#2", decline: {} }),
      ["ask#2: declined", "ask#1: withdrawn", "run.failed"],
    ],
    ["past its deadline with a default", (_runtime, _run_id, clock) => clock.advance(1_000), ["ask#1: default"]],
    [
      "past its deadline without one",
      (_runtime, _run_id, clock) => clock.advance(2_000),
      ["ask#1: default", "ask#2: expired", "run.failed"],
    ],
    [
      "cancelled with the run",
      (runtime, run_id) => runtime.cancel(run_id, { wait: true }),
      ["ask#1: withdrawn", "ask#2: withdrawn", "run.cancelled"],
    ],
  ];

  it.each(twoQuestions)("tell of two questions of which one is %s", async (_title, end, told) => {
    const { runtime, clock } = setUp();
    runtime.register("both", async (_input, { ask }) => {
      const soon = ask("Soon?", { timeoutMs: 1_000, default: { ok: true } });
      await Promise.all([soon, ask("Late?", { timeoutMs: 2_000 })]);
    });
    const { run_id } = await runtime.createRun({ agent_name: "both", input: "" });
    const { all } = follow(runtime.watch());
    await end(runtime, run_id, clock);
    await clock.settle();

    expect(all.map(inShort)).toEqual(["ask#1?", "ask#2?", ...told]);
  });

  it("are those that its details tell, with a question that is asked and answered in one write", async () => {
    const { runtime, clock } = setUp();
    runtime.register("child", (_input, { ask }) => ask("Child?", { timeoutMs: 50, default: { ok: 1 } }).then(() => ""));
    runtime.register("all", async (_input, { ask, run }) => {
      const signal = AbortSignal.abort();
      await ask("Never?", { signal }).catch(() => {});
      await Promise.all([run("child", ""), ask("A?"), ask("B?", { timeoutMs: 10, default: { ok: 2 } })]);
    });
    const { run_id } = await runtime.createRun({ agent_name: "all", input: "" });
    await clock.advance(100);
    const { await_requests } = await runtime.details(run_id);
    await runtime.resume({ run_id, await_id: await_requests[0]?.await_id, await_resume: { a: 1 } });

    const all = await watched(clock, runtime.watch());
    for (const id of new Set(all.map((one) => one.run_id))) {
      const details: DetailedEvent[] = [];
      for await (const event of runtime.events(id, { detail: true, until: "end" })) details.push(event);
      const expected = details.flatMap((event) => {
        if (event.type === "question.asked") return [`${event.question.await_id}?`];
        if (event.type === "question.settled") return [`${event.await_id}: ${event.how}`];
        return event.type === "run.completed" ? [event.type] : [];
      });
      const told = all.filter((one) => one.run_id === id).map((one) => inShort(one).replace(/ of .*/, ""));
      expect(told).toEqual(expected);
    }
    expect(all.map(inShort)).toContain("run:child#1/ask#1? of ask#1");
  });

  it("are none of what a fork has taken over", async () => {
    const { runtime, clock } = setUp({ around: (store) => durable(store) });
    const agent: AgentFunction = async (_input, { ask, step }) => {
      await ask("First?");
      await step("pay", () => Promise.reject(new Error("The bank is down.")));
    };
    runtime.register("refund", { durable: true }, agent);
    const { run_id } = await runtime.createRun({ agent_name: "refund", input: "" });
    const failed = await runtime.resume({ run_id, await_resume: { ok: true } });
    expect(failed.status).toBe("failed");
    const { position } = (await watched(clock, runtime.watch())).at(-1) ?? {};
    const fork = await runtime.fork(run_id);

    expect(await seen(clock, runtime.watch({ from: position }))).toEqual(["run.failed"]);
    expect((await watched(clock, runtime.watch({ from: position })))[0]?.run_id).toBe(fork.run_id);
  });
});

describe("a watch", () => {
  it("gives the events of the wanted types, with the type that they have", async () => {
    const { runtime, clock, echo } = setUp();
    await runtime.createRun({ agent_name: "asks", input: "" });
    await echo();
    for await (const { event } of runtime.watch({ types: ["run.awaiting"] })) {
      expectTypeOf(event.await_id).toEqualTypeOf<string>();
      expect(event.await_id).toBe("ask#1");
      break;
    }
    const both = runtime.watch({ types: ["run.completed", "run.failed"] });
    expectTypeOf((await both.next()).value?.event.type).toEqualTypeOf<"run.completed" | "run.failed" | undefined>();
    expect(await seen(clock, both as Watch)).toEqual([]);
  });

  it("goes on behind a position, in another runtime too", async () => {
    const { runtime, clock, store } = setUp();
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
    const [first] = await watched(clock, runtime.watch());
    await runtime.cancel(run_id, { wait: true });
    await runtime.close();

    const next = new AgentRuntime({ clock, store });
    expect(await seen(clock, next.watch({ from: first?.position }))).toEqual(["ask#1: withdrawn", "run.cancelled"]);
    expect(await seen(clock, next.watch())).toHaveLength(3);
    expect(await seen(clock, next.watch({ from: "now" }))).toEqual([]);
  });

  it("from now on gives what happens after its first read", async () => {
    const { runtime, clock, echo } = setUp();
    await echo(3);
    const { all } = follow(runtime.watch({ from: "now" }));
    await clock.settle();
    await echo(2);
    await clock.settle();
    expect(all).toHaveLength(2);
  });

  it("has the tenant of its scope. An operator sees all tenants, or one", async () => {
    const { runtime, clock, echo } = setUp();
    for (const tenant of ["a", "b"]) await runtime.scope({ tenant }).createRun({ agent_name: "echo", input: "" });
    await echo();
    const admin = createAdmin(runtime);
    const tenants = async (watch: Watch) => (await watched(clock, watch)).map(({ tenant }) => tenant);
    expect(await tenants(runtime.watch())).toEqual([""]);
    expect(await tenants(runtime.scope({ tenant: "b" }).watch())).toEqual(["b"]);
    expect(await tenants(runtime.scope({ tenant: "c" }).watch())).toEqual([]);
    expect(await tenants(admin.watch())).toEqual(["a", "b", ""]);
    expect(await tenants(admin.watch({ tenant: "a" }))).toEqual(["a"]);
  });

  it("gives events to concurrent calls in order, and each watch has all of them", async () => {
    const { runtime, echo } = setUp();
    await echo(3);
    const [one, other] = [runtime.watch(), runtime.watch()];
    const results = await Promise.all([one.next(), one.next(), one.next()]);
    const positions = results.map(({ value }) => value?.position);
    expect(new Set(positions).size).toBe(3);
    for (const position of positions) expect((await other.next()).value?.position).toBe(position);
  });

  it("gives events of its own: what an application does with them changes none of another watch", async () => {
    const { runtime, clock } = setUp();
    runtime.register("shows", async (_input, { run }) => void (await run("asks", "")));
    const open = await runtime.createRun({ agent_name: "shows", input: "" });
    await runtime.resume({ run_id: open.run_id, await_resume: { ok: true } });
    const before = JSON.stringify(await watched(clock, runtime.watch()));

    for (const { event } of await watched(clock, runtime.watch())) {
      if ("of" in event && event.of !== null) Object.assign(event.of, { run_id: "another" });
      Object.assign(event, { type: "run.failed", note: "mine" });
    }

    expect(before).toContain('"of":{');
    expect(JSON.stringify(await watched(clock, runtime.watch()))).toBe(before);
  });

  it("tells the position behind what has been dealt with, over events of other types", async () => {
    const { runtime, clock, echo } = setUp();
    await runtime.createRun({ agent_name: "asks", input: "" });
    await echo(2);
    const all = await watched(clock, runtime.watch());
    const watch = runtime.watch({ types: ["run.awaiting"] });
    expect(watch.position).toBeUndefined();
    await watch.next();
    expect(watch.position).toBeUndefined();
    const next = watch.next();
    await clock.settle();
    expect(watch.position).toBe(all.at(-1)?.position);
    await watch.return?.();
    expect(await next).toEqual({ done: true, value: undefined });
  });

  it("reads many events in pages, with turns of the event loop in between", async () => {
    const { reads, around } = counted();
    const readIn: number[] = [];
    const { runtime, clock, kept } = setUp({
      around: (store) =>
        hookedStore((call, method) => {
          if (method === "readFeed") readIn.push(turns);
          return call();
        }, around(store)),
    });
    for (let n = 0; n < 1_200; n++) {
      const run_id = `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
      const created = { type: "created", at: 0, agent_name: "echo", session_id: run_id, input: [] } as const;
      const head = { ...idle, status: "completed", finished_at: 0 } as const;
      kept.create({ tenant: "", run_id }, { entries: [created], head, feed: [{ type: "run.completed" }] }, null);
    }
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns += 1;
      if (!isOver) inNextTurn(count);
    };
    count();
    const all = await watched(clock, runtime.watch());
    expect(all).toHaveLength(1_200);
    expect(new Set(all.map(({ run_id }) => run_id)).size).toBe(1_200);
    isOver = true;
    expect(reads.map(({ limit }) => limit)).toEqual([500, 500, 500, 500]);
    expect(new Set(readIn.slice(0, 3)).size).toBe(3);
  });
});

const idle = { epoch: 1, owner: null, due_at: null, blocked: null, holds_slot: false, takeovers: 0 } as const;

describe("a watch that has read all", () => {
  it("is told of a commit of its process at once, without a timer", async () => {
    const { runtime, clock, echo } = setUp({ around: lateStore });
    const { all } = follow(runtime.watch());
    await clock.settle();
    for (let n = 1; n <= 3; n++) {
      await echo();
      await clock.settle();
      expect(all).toHaveLength(n);
    }
  });

  it("is told by hints of the store, and polls a store that gives some every second, another one every 200 ms", async () => {
    for (const { Opened, pollMs } of [
      { Opened: HintingStore, pollMs: 1_000 },
      { Opened: MemoryStore, pollMs: 200 },
    ]) {
      const { reads, around } = counted();
      const { runtime, clock, store } = setUp({ Opened, around });
      const other = new AgentRuntime({ clock, store }).register("echo", (input) => input);
      const { all } = follow(runtime.watch());
      await clock.settle();
      await other.createRun({ agent_name: "echo", input: "" });
      await clock.settle();
      expect(all).toHaveLength(Opened === HintingStore ? 1 : 0);
      await clock.advance(pollMs);
      expect(all).toHaveLength(1);
      reads.length = 0;
      await clock.advance(10 * pollMs);
      expect(reads).toHaveLength(10);
    }
  });

  it("shares its reads and its timer with all others", async () => {
    const { reads, around } = counted();
    const { runtime, clock, echo } = setUp({ around });
    const follows = ["", "a", "b"].flatMap((tenant) =>
      Array.from({ length: 100 }, () => follow(runtime.scope({ tenant }).watch())),
    );
    await clock.settle();
    expect(clock.timers).toBe(1);
    reads.length = 0;
    await echo();
    await clock.settle();
    await clock.advance(1_000);
    // One that finds the event, one that finds no more, and five polls.
    expect(reads.length).toBeLessThan(10);
    expect(follows.map(({ all }) => all.length)).toEqual(
      Array.from({ length: 300 }, (_, index) => Number(index < 100)),
    );
  });

  it("reads soon again while an open transaction holds events back, and less often the longer it does", async () => {
    const { reads, around } = counted();
    let isHeld = true;
    const { runtime, clock, echo } = setUp({
      around: (store) =>
        withMembers<Store>(around(store), {
          readFeed: (query) => {
            const { position } = store.readFeed?.({ from: "now", limit: 1 }) ?? { position: "" };
            if (!isHeld || query.from === "now") return store.readFeed?.(query);
            reads.push(query);
            return { items: [], position: query.from === "start" ? position : query.from, more: "soon" };
          },
        }),
    });
    const { all } = follow(runtime.watch({ from: "now" }));
    await clock.settle();
    await echo();
    await clock.settle();
    reads.length = 0;
    await clock.advance(10 + 20 + 40 + 80);
    expect(reads).toHaveLength(4);
    await clock.advance(10_000);
    expect(reads.length).toBeLessThan(4 + 52);
    isHeld = false;
    await clock.advance(200);
    expect(all).toHaveLength(1);
  });

  it("goes on when the store has failed, also at its first read", async () => {
    let isDown = true;
    const { runtime, clock, echo, warnings } = setUp({
      around: (store) =>
        hookedStore((call, method) => {
          if (isDown && method === "readFeed") throw new Error("The disk is full.");
          return call();
        }, store),
    });
    await echo();
    const { all } = follow(runtime.watch());
    await clock.advance(1_000);
    expect(all).toHaveLength(0);
    expect(warnings).toContain("The store failed to read the feed. It is read again.");
    isDown = false;
    await clock.advance(5_000);
    expect(all).toHaveLength(1);
    isDown = true;
    await echo();
    await clock.advance(60_000);
    isDown = false;
    await clock.advance(5_000);
    expect(all).toHaveLength(2);
    expect(warnings.length).toBeLessThan(30);
  });
});

describe("a watch ends", () => {
  it("with its signal, before and while it waits", async () => {
    const { runtime, clock, echo } = setUp();
    const controller = new AbortController();
    const { all, over } = follow(runtime.watch({ signal: controller.signal }));
    await echo();
    await clock.settle();
    controller.abort();
    await over;
    expect(all).toHaveLength(1);
    // That of the retention.
    expect(clock.timers).toBe(1);
    const late = runtime.watch({ signal: controller.signal });
    expect(await late.next()).toEqual({ done: true, value: undefined });
  });

  it("when its runtime is closed, and no longer keeps the process open", async () => {
    const { runtime, clock } = setUp();
    await runtime.createRun({ agent_name: "asks", input: "" });
    const { all, over } = follow(runtime.watch());
    await clock.settle();
    expect(clock.holds).toBe(1);
    await runtime.close({ drainMs: 0 });
    await over;
    expect(all.map(inShort)[0]).toBe("ask#1?");
    expect(clock.holds).toBe(0);
    expect(await refusal(runtime.watch())).toMatchObject({ code: "runtime_closed" });
  });

  it("with `events_lost` if the events behind its position were deleted", async () => {
    const { runtime, clock, echo } = setUp({ keepMs: 1_000 });
    await echo(2);
    const [first, second] = await watched(clock, runtime.watch());
    await clock.advance(2_000);
    await echo();
    const lost = runtime.watch({ from: first?.position });
    expect(await refusal(lost)).toMatchObject({ code: "events_lost" });
    expect(await lost.next()).toEqual({ done: true, value: undefined });
    expect(await seen(clock, runtime.watch({ from: second?.position }))).toEqual(["run.completed"]);
    expect(await refusal(runtime.watch({ from: "what is this?" }))).toMatchObject({ code: "events_lost" });
    const elsewhere = setUp();
    expect(await refusal(elsewhere.runtime.watch({ from: second?.position }))).toMatchObject({ code: "events_lost" });
  });

  it.each<[title: string, options: object | null]>([
    ["no object", null],
    ["an unknown option", { type: "run.awaiting" }],
    ["an unknown type", { types: ["run.created"] }],
    ["no type", { types: [] }],
    ["types that are no list", { types: "run.awaiting" }],
    ["a position that is no text", { from: 7 }],
    ["an empty position", { from: "" }],
    ["a signal that is none", { signal: {} }],
  ])("at once with `invalid_argument`, given %s", async (_title, options) => {
    const { runtime } = setUp();
    expect(await refusal(runtime.watch(options as never))).toMatchObject({ code: "invalid_argument" });
  });

  it("at once, and says why, if the store keeps no feed", async () => {
    const error = await refusal(new AgentRuntime().watch());
    expect(error).toMatchObject({ code: "invalid_argument" });
    expect(error.message).toContain("feed: { keepMs }");
  });
});

it("a store refuses a feed that is none", () => {
  for (const feed of [null, true, {}, { keepMs: -1 }, { keepMs: "1" }, { keepMs: Number.NaN }])
    expect(() => new MemoryStore({ feed: feed as never })).toThrow("feed: expected { keepMs }");
});

it("a store that keeps no feed gets no write with events", async () => {
  const fed: unknown[] = [];
  const store = hookedStore((call, method, parameters) => {
    const write = parameters.find((one) => typeof one === "object" && one !== null && "entries" in one);
    if (write !== undefined && "feed" in (write as RunWrite | RunPost)) fed.push(method);
    return call();
  });
  const runtime = new AgentRuntime({ store }).register("asks", async (_input, { ask }) => void (await ask("Well?")));
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
  await runtime.resume({ run_id, await_resume: { ok: true } });
  expect(fed).toEqual([]);
});

it("a store in memory forgets old events by itself", async () => {
  const { runtime, clock, kept, echo } = setUp({ keepMs: 1_000 });
  for (let n = 0; n < 50; n++) {
    await echo(50);
    await clock.advance(500);
  }
  const page = kept.readFeed?.({ from: "start", limit: 10_000 });
  expect(page?.items.length).toBeLessThanOrEqual(150);
  await runtime.close();
});
