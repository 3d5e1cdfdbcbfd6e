import { CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import { never } from "../../harness/promises.ts";
import { setUp, textsOf } from "../../harness/runtimes.ts";
import { failingStore } from "../../harness/store-proxy.ts";
import type { Course } from "../../harness/world/failing-calls.ts";
import {
  courses,
  failedOtherwise,
  failurePoints,
  OUTAGES_MS,
  outagePoints,
  playIn,
} from "../../harness/world/failing-calls.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";
import { scenarios } from "../../harness/world/scenarios.ts";

/** So many failures are tried here for each scenario; `npm run stress -- durable --part failures` tries all, `--part outages` too. */
const TRIED = 4;

it("a replay that reads a session through an outage is not taken for one that does not match", async () => {
  const scenario = scenarios.find(({ name }) => name === "a session with history and state");
  if (scenario === undefined) throw new Error("There is no such scenario.");
  const course: Course = { late: true, alwaysReplay: true };
  const unfailed = await playIn(scenario, course);
  const calls = unfailed.world.processes[0]?.storeCalls ?? [];
  const reads = calls.flatMap((method, index) => (method === "session" ? [index + 1] : []));
  const wrong: string[] = [];
  for (const call of reads.slice(0, 8))
    wrong.push(...(await failedOtherwise(scenario, course, { call, after: false, late: true, ms: 20_000 }, unfailed)));
  expect(wrong).toEqual([]);
});

// The parent is replayed while the sub-run that it has begun is in this process, and not in the store yet.
it("a sub-run that the store has not taken yet is not looked for in vain", async () => {
  const scenario = scenarios.find(({ name }) => name === "sub-runs that wait side by side, below a sub-run");
  if (scenario === undefined) throw new Error("There is no such scenario.");
  const course: Course = { late: false, alwaysReplay: true };
  const unfailed = await playIn(scenario, course);
  const wrong: string[] = [];
  for (let call = 14; call <= 17; call++)
    wrong.push(...(await failedOtherwise(scenario, course, { call, after: false, late: true, ms: 20_000 }, unfailed)));
  expect(wrong).toEqual([]);
});

it.each(scenarios.map((scenario, index) => ({ scenario, index, name: scenario.name })))(
  "a run ends as it must although a call of the store fails: $name",
  async ({ scenario, index }) => {
    const course = courses[index % courses.length] as Course;
    const unfailed = await playIn(scenario, course);
    const calls = unfailed.world.processes[0]?.storeCalls ?? [];
    const points = [...failurePoints(calls), ...OUTAGES_MS.flatMap((ms) => outagePoints(calls, ms))];
    const wrong: string[] = [];
    for (let nth = 0; nth < TRIED; nth++) {
      const point = points[Math.floor(((nth + (index % 7) / 7) / TRIED) * points.length)];
      if (point !== undefined) wrong.push(...(await failedOtherwise(scenario, course, point, unfailed)));
    }
    expect(wrong).toEqual([]);
  },
);

it.each([false, true])("a run that cannot be read for a replay goes on without one (late: %s)", async (late) => {
  const { store, failing } = failingStore({ late });
  const { runtime } = setUp({ store, durability: { alwaysReplay: true } });
  runtime.register("agent", { durable: true }, async function* (_input, { step }) {
    yield await step("one", () => "1");
    yield await step("two", () => "2");
  });
  failing.read = 1;
  const run = await runtime.createRun({ agent_name: "agent", input: "" });
  expect(textsOf(run)).toEqual(["1|2"]);
  expect(failing.read).toBeLessThanOrEqual(0);
});

describe.each([false, true])("a session that cannot be read (late: %s)", (late) => {
  it.each([
    ["in a first execution", {}],
    ["in a replay", { durability: { alwaysReplay: true } }],
  ])("is read again for its agent, %s", async (_when, options) => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock, said } = setUp({ store, ...options });
    runtime.register("agent", { durable: true }, async function* (_input, { session, step }) {
      const before = await session.history();
      yield await step("one", () => `${before.length}`);
      yield JSON.stringify(await session.getState());
      yield `${(await session.history()).length}`;
    });
    const { session_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    failing.session = 3;
    const running = runtime.createRun({ agent_name: "agent", input: "", session_id });
    await clock.advance(1_000);
    expect(textsOf(await running)).toEqual(["2|null|2"]);
    expect(failing.session).toBeLessThanOrEqual(0);
    expect(said.filter(({ message }) => message.startsWith("The session of a run")).length).toBeGreaterThan(0);
    await runtime.close();
  });

  it("does not keep a run that is cancelled", async () => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock } = setUp({ store });
    runtime.register("agent", async (_input, { session }) => `${(await session.history()).length}`);
    const { session_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    failing.session = Number.POSITIVE_INFINITY;
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", session_id, mode: "async" });
    await clock.settle();
    await runtime.cancel(run_id);
    await clock.settle();
    expect((await runtime.getRun(run_id)).status).toBe("cancelled");
    await runtime.close();
  });
});

/* Calls of a store that never answer, or whose answer no reader would get. */

it("a renewal of the lease that the store never answers is asked again, and no run is lost by it", async () => {
  const replicas = inMemory();
  let renewals = 0;
  const first = replicas.start({}, (call, method) => {
    if (method !== "renew") return call();
    renewals += 1;
    return renewals === 3 ? never() : call();
  });
  const done: string[] = [];
  const register = ({ runtime, clock }: typeof first, name: string): void => {
    runtime.register("agent", { durable: true }, async (_input, { step }) => {
      for (const key of ["one", "two"]) {
        await step(key, () => new Promise((resolve) => clock.setTimeout(() => resolve(1), 3_000)));
        done.push(`${name} ${key}`);
      }
    });
  };
  register(first, "first");
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  register(replicas.start(), "second");
  await replicas.clock.advance(10_000);
  expect(renewals).toBeGreaterThan(10);
  expect((await first.runtime.getRun(run_id)).status).toBe("completed");
  expect(done).toEqual(["first one", "first two"]);
  expect(first.said.filter(({ message }) => message === "The store failed to renew the lease.")).not.toEqual([]);
});

it("a reader of a run whose first entry becomes unreadable gets an error, and does not wait", async () => {
  const replicas = onFile();
  let isDamaged = false;
  const first = replicas.start();
  const reader = replicas.start({ work: false }, (call, method) => {
    if (method === "find" && isDamaged) throw new CadenzaError("store_failed", "Entry 0 cannot be read.", { run_id });
    return call();
  });
  first.runtime.register("agent", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
  reader.runtime.declare({ name: "agent", durable: true });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
  const reading = (async () => {
    for await (const _ of reader.runtime.events(run_id, { until: "end" }));
  })().catch((error: unknown) => error);
  await replicas.clock.advance(1_000);
  isDamaged = true;
  const { head, position } = (await first.store.find({ tenant: "", run_id })) ?? {};
  if (head === undefined || position === undefined) throw new Error("The run is missing.");
  await first.store.append(
    { tenant: "", run_id },
    { epoch: head.epoch, position },
    { entries: [], head: { ...head, epoch: head.epoch + 1 } },
  );
  let error: unknown;
  void reading.then((thrown) => {
    error = thrown;
  });
  await replicas.clock.advance(5_000);
  expect(CadenzaError.is(error) && [error.code, error.run_id]).toEqual(["store_failed", run_id]);
});
