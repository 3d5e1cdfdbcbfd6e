import type { RunKey, Store } from "cadenza/store";
import { expect, it } from "vitest";
import { newerFormatError } from "../../src/core/format.ts";
import type { StoredRun, StoreHint } from "../../src/core/ports.ts";
import { DamagedRuns } from "../../src/durable/recovery/damaged-runs.ts";
import { Follower } from "../../src/durable/recovery/follower.ts";
import { UnloadedRuns } from "../../src/durable/recovery/recovery.ts";
import { Unreceived } from "../../src/durable/recovery/remote-posts.ts";
import { Wakeups } from "../../src/durable/recovery/wakeups.ts";
import type { Worker } from "../../src/durable/recovery/worker.ts";
import { subRunsBegun } from "../../src/durable/replay/history.ts";
import { committedAbove, tellAbove } from "../../src/runtime/runs/committed-above.ts";
import { FakeClock } from "../harness/clock.ts";
import { nextTurn } from "../harness/promises.ts";
import { refusal } from "../harness/runtimes.ts";

/* What a process keeps of each run, for runs of two tenants that have the same id. */

const RED: RunKey = { tenant: "red", run_id: "00000000-0000-4000-8000-000000000001" };
const BLUE: RunKey = { ...RED, tenant: "blue" };
const logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** A part of a worker, as far as one of its parts needs it. */
function partOf(parts: object): Worker {
  return parts as Worker;
}

function found(key: RunKey, head: Partial<StoredRun["head"]> = {}): StoredRun {
  const unowned = { owner: null, due_at: null, blocked: null, holds_slot: false, finished_at: null, takeovers: 0 };
  return {
    key,
    position: 1,
    head: { status: "created", epoch: 1, ...unowned, ...head },
    created: { type: "created", at: 0, agent_name: "agent", session_id: key.run_id, input: [] },
  } as unknown as StoredRun;
}

/** The runs that a process owns in the store, and has loaded. */
function owning(owned: readonly RunKey[], loaded: readonly RunKey[]) {
  const state = { owned, loaded, now: 0 };
  const worker = partOf({
    name: "worker",
    store: { owned: () => state.owned },
    get runs() {
      return state.loaded.map((key) => ({ log: { key } }));
    },
    clock: { now: () => state.now },
    settings: { leaseMs: 1_000 },
  });
  return { state, unloaded: new UnloadedRuns(worker) };
}

it("a run that is not loaded is found beside one that is", async () => {
  const { unloaded } = owning([RED, BLUE], [RED]);
  expect(await unloaded.find(() => false)).toEqual([BLUE]);
});

it("a run that is not loaded is found at once, although another one was found a moment ago", async () => {
  const { state, unloaded } = owning([RED], []);
  expect(await unloaded.find(() => false)).toEqual([RED]);
  state.now += 500;
  state.owned = [RED, BLUE];
  expect(await unloaded.find(() => false)).toEqual([BLUE]);
  state.now += 600;
  expect(await unloaded.find(() => false)).toEqual([RED]);
});

it("each of the followed runs is looked at, at a hint and at a poll", async () => {
  const clock = new FakeClock();
  const asked: RunKey[][] = [];
  let hint: (given: StoreHint) => void = () => {};
  const store = {
    watch: (callback: typeof hint) => {
      hint = callback;
      return () => {};
    },
    moved: (known: readonly { readonly key: RunKey }[]) => {
      asked.push(known.map(({ key }) => key));
      return known.map(({ key }) => ({ key, epoch: 1, position: 5 }));
    },
  };
  const told: string[] = [];
  const follower = new Follower(store as unknown as Store, clock, logger);
  const ends = [RED, BLUE].map((key) =>
    follower.follow({ known: { key, epoch: 1, position: 1 }, onMoved: () => told.push(key.tenant) }),
  );
  hint({ moved: [RED, BLUE] });
  await nextTurn();
  expect(asked).toEqual([[RED, BLUE]]);
  expect(told).toEqual(["red", "blue"]);
  for (const end of ends) end();
});

it("the messages that wait for one run leave the room of another one", async () => {
  const received = { type: "received", at: 0, name: "mail", data: 1, idempotency_key: null, bytes: 1 };
  const store = { read: ({ tenant }: RunKey) => (tenant === "red" ? Array.from({ length: 4 }, () => received) : []) };
  const unreceived = new Unreceived(store as unknown as Store);
  const limits = { maxWaitingMessages: 4, maxWaitingBytes: 1_000 } as Parameters<Unreceived["check"]>[2];
  const send = (key: RunKey): Promise<void> =>
    unreceived.check({ key, position: key.tenant === "red" ? 4 : 0 } as never, 1, limits);
  await send(RED);
  expect((await refusal(send(RED))).code).toBe("limit_reached");
  for (let sent = 0; sent < 4; sent++) await send(BLUE);
});

it("each run that a newer version has written is logged, and waits for the first pause", async () => {
  const clock = new FakeClock();
  const warned: object[] = [];
  const due: (number | null)[] = [];
  const damaged = new DamagedRuns(
    partOf({
      clock,
      logger: { ...logger, warn: (_message: string, fields: object) => warned.push(fields) },
      store: { append: () => undefined },
      onReleased: (_key: RunKey, head: { due_at: number }) => due.push(head.due_at - clock.now()),
      onSlotFree: () => {},
    }),
  );
  for (const key of [RED, BLUE]) {
    const mismatch = { position: 0, expected: "a step", asked: "this version cannot read it", newer: true } as const;
    damaged.put(found(key), newerFormatError(key.run_id, mismatch));
  }
  await nextTurn();
  expect(warned).toMatchObject([RED, BLUE].map(({ run_id }) => ({ run_id })));
  expect(due[1]).toBe(due[0]);
});

it("a waker is given the tenant of each run, and looks at each run", async () => {
  const clock = Object.assign(new FakeClock(), { machine: new FakeClock() });
  const woken: object[] = [];
  let look: (key: RunKey) => Promise<number | undefined> = async () => undefined;
  let dueAt: number | null = clock.now();
  const wakeups = new Wakeups(
    partOf({
      clock,
      logger,
      name: "worker",
      settings: { scanMs: 60_000 },
      store: { find: (key: RunKey) => found(key, { due_at: dueAt, owner: dueAt === null ? "other" : null }) },
      runs: { registry: { find: () => undefined } },
    }),
    {
      start: (given: typeof look) => {
        look = given;
      },
      wake: (key: RunKey, _at: number, about: object) => void woken.push({ key, about }),
      stop: () => {},
    } as never,
    async () => false,
    () => 1,
    () => {},
  );
  await wakeups.start();
  for (const key of [RED, BLUE]) wakeups.note(key);
  await nextTurn();
  expect(woken).toMatchObject([RED, BLUE].map((key) => ({ key, about: { tenant: key.tenant } })));
  // The agents are not registered here: each run is looked at again, the later the longer it is known.
  dueAt = null;
  const again = async (key: RunKey): Promise<number> => ((await look(key)) ?? 0) - clock.machine.now();
  const first = await again(RED);
  await clock.advance(10_000);
  expect(await again(RED)).toBeGreaterThan(first);
  expect(await again(BLUE)).toBe(first);
});

it("the runs above a sub-run, and those below a run, are of its tenant", async () => {
  const sought: RunKey[] = [];
  const changed: RunKey[] = [];
  const runs = { find: (key: RunKey) => void sought.push(key), shared: { logger, clock: new FakeClock() } };
  const change = async (key: RunKey) => {
    changed.push(key);
    return { created: found(key).created };
  };
  const parent = { run_id: "00000000-0000-4000-8000-000000000002", key: "run:agent#1", depth: 1 };
  const created = { ...found(BLUE).created, parent };
  const above = { tenant: "blue", run_id: parent.run_id };
  expect(committedAbove({ runs, residence: {}, log: { key: BLUE, state: { created } } } as never)).toBeUndefined();
  expect(sought.splice(0)).toEqual([above]);
  const asked = { type: "awaited", at: 0, await_id: "ask#1", parts: [] };
  await tellAbove(runs as never, change as never, BLUE, parent, [{ asked, settled: null } as never]);
  expect([sought, changed]).toEqual([[above], [above]]);

  const intent = { type: "intent", at: 0, key: "run:agent#1", attempt: 1, run_id: parent.run_id } as const;
  expect(subRunsBegun(BLUE, [intent])).toEqual([above]);
});
