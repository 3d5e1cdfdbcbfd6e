import type { AgentContext, Run } from "cadenza";
import type { Entry, Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Deferred } from "../../harness/promises.ts";
import { deferred } from "../../harness/promises.ts";
import { eventsOf, refusal, textsOf, typesOf } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import { codeOf, reasonOf } from "../../harness/waiting-agents.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/*
 * Who validates an answer. It is given at the process that owns the run that asks, at another one with its code, or at
 * one without its code; while the run is at work besides, while it only waits, and when it has left memory; at the run
 * itself and at its grandparent.
 */

const lease = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 };
const FOREVER = 1_000_000;
const schema = z.object({ n: z.number() });

interface Family {
  readonly child: string;
  readonly parent: string;
  readonly root: string;
}

/** Every write takes effect later, as over a network: what is acknowledged before shows. */
function slowly({ clock }: Replicas): Hook {
  const writes = ["create", "append", "post"];
  return (call, method) =>
    writes.includes(method) ? new Promise<void>((resolve) => clock.setTimeout(resolve, 20)).then(call) : call();
}

function register({ runtime }: Replica, work: Deferred<void>): Replica["runtime"] {
  runtime.register("child", { durable: true }, async (input, { ask, step }: AgentContext) => {
    const isBusy = input[0]?.parts[0]?.content === "busy";
    const [answer] = await Promise.all([ask("n?", { schema }), isBusy && step("work", () => work.promise)]);
    return `${answer.n}`;
  });
  runtime.register("parent", { durable: true }, async (input, { run }) => textsOf(await run("child", input)).join());
  runtime.register("root", { durable: true }, async (input, { run }) => textsOf(await run("parent", input)).join());
  return runtime;
}

/** The runs of one family, by their agents. */
async function familyIn(store: Store): Promise<Family> {
  const runs = await store.list({ tenant: "", limit: 10, offset: 0 });
  const idOf = (name: string) => runs.find(({ created }) => created?.agent_name === name)?.key.run_id ?? "";
  return { child: idOf("child"), parent: idOf("parent"), root: idOf("root") };
}

async function logOf(store: Store, run_id: string): Promise<readonly Entry[]> {
  return (await store.read({ tenant: "", run_id }, 0, 1_000)) ?? [];
}

async function typesIn(store: Store, run_id: string, ...among: Entry["type"][]): Promise<string[]> {
  return (await logOf(store, run_id)).map(({ type }) => type).filter((type) => among.includes(type));
}

/** Lets time pass until a promise is settled. */
async function settled<T>({ clock }: Replicas, promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const note = (): void => {
    isSettled = true;
  };
  promise.then(note, note);
  await clock.settle();
  for (let pass = 0; pass < 400 && !isSettled; pass++) await clock.advance(50);
  if (!isSettled) throw new Error("The promise is not settled after 20 s.");
  return promise;
}

const processes = ["a process without the code", "a process with the code", "the owner"] as const;
const states = ["busy", "idle", "evicted"] as const;
const places = ["root", "child"] as const;
const ways = processes.flatMap((process) =>
  states.flatMap((state) => places.map((place) => ({ process, state, place }))),
);

/** A family whose child asks, and the process at which the answer is given. */
async function asking(replicas: Replicas, { process, state, place }: (typeof ways)[number]) {
  const work = deferred();
  const durability = { ...lease, evictAfterMs: state === "evicted" ? 200 : FOREVER };
  const owner = replicas.start({ durability }, slowly(replicas));
  register(owner, work);
  const input = state === "busy" ? "busy" : "";
  await settled(replicas, owner.runtime.createRun({ agent_name: "root", input }));
  const others = processes.slice(0, 2).map((name) => {
    const replica = replicas.start({ durability }, slowly(replicas));
    if (name === "a process with the code") register(replica, work);
    return replica;
  });
  await replicas.clock.advance(1_000);
  const family = await familyIn(owner.store);
  const { live } = await owner.runtime.stats();
  const heads = await owner.store.list({ tenant: "", limit: 10, offset: 0 });
  const owned = heads.filter(({ head }) => head.owner !== null).map(({ created }) => created?.agent_name);
  expect({ live: Object.keys(live).length > 0, owned }).toEqual({
    live: state !== "evicted",
    owned: state === "busy" ? ["child"] : [],
  });
  const at = [...others, owner][processes.indexOf(process)] ?? owner;
  const request = {
    run_id: family[place],
    await_id: place === "root" ? "run:parent#1/run:child#1/ask#1" : "ask#1",
    mode: "async",
  } as const;
  return { owner, at, family, work, request };
}

describe.each([
  { on: "in memory", open: () => inMemory() },
  { on: "on a file", open: () => onFile() },
])("$on", ({ open }) => {
  it.each(ways)(
    "an unfit answer at $process to a $state run, at the $place: refused, and nothing changes",
    async (way) => {
      const replicas = open();
      const { owner, at, family, request, work } = await asking(replicas, way);
      const recordsOf = () => Promise.all(Object.values(family).map((run_id) => owner.runtime.getRun(run_id)));
      const before = await recordsOf();
      const answering = refusal(at.runtime.resume({ ...request, await_resume: { n: "many" } }));
      const { code, issues, run_id, await_id } = await settled(replicas, answering);
      expect({ code, run_id, await_id }).toEqual({
        code: "answer_rejected",
        run_id: request.run_id,
        await_id: request.await_id,
      });
      expect(issues).toMatchObject([{ path: ["n"] }]);
      expect(await recordsOf()).toEqual(before);
      expect(before.map(({ status }) => status)).toEqual(["awaiting", "awaiting", "awaiting"]);
      for (const id of Object.values(family))
        expect(await typesIn(owner.store, id, "resumed", "settled", "withdrawn", "ended")).toEqual([]);
      // A fitting one still counts.
      await settled(replicas, at.runtime.resume({ ...request, await_resume: { n: 7 } }));
      work.resolve();
      await replicas.clock.advance(3_000);
      expect(textsOf(await owner.runtime.getRun(family.root))).toEqual(["7"]);
    },
  );

  it.each(ways)("a fitting answer at $process to a $state run, at the $place: taken once", async (way) => {
    const replicas = open();
    const { owner, at, family, request, work } = await asking(replicas, way);
    const answer = { ...request, await_resume: { n: 7 } };
    const answering = at.runtime.resume(answer, { idempotencyKey: "k" });
    // Read as soon as the caller knows.
    const logs = answering.then(() =>
      Promise.all([
        typesIn(owner.store, family.child, "awaited", "resumed"),
        typesIn(owner.store, family.parent, "awaited", "resumed", "settled"),
        typesIn(owner.store, family.root, "awaited", "resumed", "settled"),
      ]),
    );
    // The process of the sub-run and that of its parent may both post `settled`, which counts once.
    expect((await settled(replicas, logs)).map((types) => [...new Set(types)])).toEqual([
      ["awaited", "resumed"],
      ["awaited", "settled"],
      ["awaited", "settled"],
    ]);
    const record: Run = await answering;
    expect([record.run_id, record.status]).toEqual([request.run_id, "in-progress"]);
    // Again, at any process: by its key, and by the id of its question.
    for (const replica of [at, owner]) {
      await settled(replicas, replica.runtime.resume(answer, { idempotencyKey: "k" }));
      await settled(replicas, replica.runtime.resume(answer));
    }
    const other = at.runtime.resume({ ...request, await_resume: { n: 8 } });
    expect((await settled(replicas, refusal(other))).code).toMatch(/^(answer_conflict|not_awaiting)$/);
    work.resolve();
    await replicas.clock.advance(3_000);
    expect(textsOf(await owner.runtime.getRun(family.root))).toEqual(["7"]);
    expect(await typesIn(owner.store, family.child, "resumed")).toEqual(["resumed"]);
    for (const run_id of Object.values(family))
      expect(typesOf(await eventsOf(at.runtime, run_id)).filter((type) => type.startsWith("run."))).toEqual([
        ...["run.created", "run.in-progress", "run.awaiting", "run.in-progress", "run.completed"],
      ]);
  });
});

describe("an answer that no process can validate", () => {
  const answerTimeoutMs = 2_000;

  async function orphaned() {
    const replicas = inMemory();
    const work = deferred();
    const owner = replicas.start({ durability: lease });
    register(owner, work);
    const { run_id } = await settled(replicas, owner.runtime.createRun({ agent_name: "child", input: "" }));
    owner.kill();
    await replicas.clock.advance(2_000);
    const other = replicas.start({ durability: { ...lease, answerTimeoutMs } });
    return { replicas, other, run_id, work };
  }

  it.each([
    { n: 7, verdict: "completed" },
    { n: "many", verdict: "answer_rejected" },
  ])("is pending after answerTimeoutMs, and again with its key gets its verdict: $verdict", async ({ n, verdict }) => {
    const { replicas, other, run_id, work } = await orphaned();
    const { clock } = replicas;
    const request = { run_id, await_resume: { n } };
    let code: string | undefined;
    const give = () =>
      other.runtime.resume(request, { idempotencyKey: "k" }).then(
        ({ status }) => (code = status),
        (error: unknown) => (code = codeOf(error)),
      );
    for (let time = 0; time < 2; time++) {
      code = undefined;
      const giving = give();
      await clock.advance(answerTimeoutMs - 100);
      expect(code).toBeUndefined();
      await clock.advance(200);
      await giving;
      expect(code).toBe("answer_pending");
    }
    // It was offered once.
    expect(await typesIn(other.store, run_id, "offered", "resumed", "refused")).toEqual(["offered"]);
    expect((await other.runtime.getRun(run_id)).status).toBe("awaiting");
    const third = replicas.start({ durability: lease });
    register(third, work);
    await clock.advance(1_000);
    await settled(replicas, give());
    expect(code).toBe(verdict);
  });

  it("is not another one under its key", async () => {
    const { replicas, other, run_id, work } = await orphaned();
    const give = (n: number) =>
      other.runtime.resume({ run_id, await_resume: { n } }, { idempotencyKey: "k" }).then(
        ({ status }) => status,
        (error: unknown) => codeOf(error),
      );
    expect(await settled(replicas, give(1))).toBe("answer_pending");
    const second = give(2);
    register(replicas.start({ durability: lease }), work);
    expect(await settled(replicas, second)).toBe("idempotency_conflict");
    expect(textsOf(await other.runtime.getRun(run_id))).toEqual(["1"]);
  });

  it("may be declined: that is offered too", async () => {
    const { replicas, other, run_id, work } = await orphaned();
    const declining = other.runtime.resume({ run_id, decline: { reason: "No." } });
    register(replicas.start({ durability: lease }), work);
    expect((await settled(replicas, declining)).status).toBe("failed");
    expect(await typesIn(other.store, run_id, "offered", "declined")).toEqual(["offered", "declined"]);
  });

  it("waits for the verdict on another one, and is given then", async () => {
    const { replicas, other, run_id, work } = await orphaned();
    const give = (await_resume: object) =>
      other.runtime.resume({ run_id, await_id: "ask#1", await_resume: { ...await_resume } }).then(
        ({ status }) => status,
        (error: unknown) => codeOf(error),
      );
    const giving = [give({ n: "many" }), give({ n: 1 }), give({ n: 2 })];
    await replicas.clock.settle();
    register(replicas.start({ durability: lease }), work);
    expect(await settled(replicas, Promise.all(giving))).toEqual(["answer_rejected", "completed", "answer_conflict"]);
    expect(textsOf(await other.runtime.getRun(run_id))).toEqual(["1"]);
  });
});

describe("a sub-run that asks while the code of its parent is registered nowhere", () => {
  it("is shown and answered at its parent", async () => {
    const replicas = inMemory();
    const begun = deferred();
    const durability = lease;
    const registerChild = ({ runtime }: Replica): void =>
      void runtime.register("child", { durable: true }, async (_input, { ask, step }) => {
        await step("prepare", () => begun.promise);
        return `${(await ask("n?", { schema })).n}`;
      });
    const registerParent = ({ runtime }: Replica): void =>
      void runtime.register("parent", { durable: true }, async (_input, { run }) =>
        textsOf(await run("child", "")).join(),
      );
    const first = replicas.start({ durability });
    registerChild(first);
    registerParent(first);
    await first.runtime.createRun({ agent_name: "parent", input: "", mode: "async" });
    await replicas.clock.advance(500);
    const { parent, child } = await familyIn(first.store);
    first.kill();
    begun.resolve();
    const second = replicas.start({ durability });
    registerChild(second);
    const without = replicas.start({ durability });
    await replicas.clock.advance(5_000);
    expect((await without.runtime.getRun(parent)).await_request).toMatchObject({ await_id: "run:child#1/ask#1" });
    const unfit = without.runtime.resume({ run_id: parent, await_resume: { n: "many" } });
    expect((await settled(replicas, refusal(unfit))).code).toBe("answer_rejected");
    const answering = without.runtime.resume({ run_id: parent, await_resume: { n: 7 }, mode: "async" });
    expect(await settled(replicas, answering)).toMatchObject({ run_id: parent, status: "in-progress" });
    await replicas.clock.advance(2_000);
    expect((await without.runtime.getRun(child)).status).toBe("completed");
    expect((await without.runtime.getRun(parent)).status).toBe("in-progress");
    registerParent(second);
    await replicas.clock.advance(2_000);
    const run = await without.runtime.getRun(parent);
    expect([run.status, reasonOf(run), ...textsOf(run)]).toEqual(["completed", undefined, "7"]);
  });
});
