import { AgentRuntime, MemoryStore } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { setUp } from "../../harness/runtimes.ts";
import { TIMERS, unlessReplayed } from "../../harness/unless-replayed.ts";

const answer = (run_id: string) =>
  ({
    run_id,
    await_resume: { type: "message", message: { role: "user", parts: [{ content: "yes" }] } },
    mode: "async",
  }) as const;

it("in memory, runs of a paused agent wait as they are, and go on in their order when it is resumed", async () => {
  const { runtime, clock } = setUp();
  const began: string[] = [];
  runtime.register("agent", (input) => void began.push(input[0]?.parts[0]?.content ?? ""));
  const admin = createAdmin(runtime);
  await admin.pause({ agent_name: "agent" });
  const runs: string[] = [];
  for (const input of ["a", "b", "c"])
    runs.push((await runtime.createRun({ agent_name: "agent", input, mode: "async" })).run_id);
  const waiting = runtime.createRun({ agent_name: "agent", input: "d" });
  await clock.advance(5_000);
  expect(began).toEqual([]);
  expect((await runtime.getRun(runs[0] ?? "")).status).toBe("created");
  await runtime.cancel(runs[1] ?? "");
  await clock.advance(500);
  expect((await runtime.getRun(runs[1] ?? "")).status).toBe("cancelled");
  await admin.resume({ agent_name: "agent" });
  await clock.advance(1_100);
  expect((await waiting).status).toBe("completed");
  expect(began).toEqual(["a", "c", "d"]);
});

it("in memory, a paused run that shows a question keeps its answer, and its question does not expire", async () => {
  const { runtime, clock } = setUp();
  runtime.register("agent", async (_input, { ask }) =>
    JSON.stringify(await ask("Well?", { timeoutMs: 1_000, default: { n: 1 } })),
  );
  const admin = createAdmin(runtime);
  const ids: string[] = [];
  for (let n = 0; n < 2; n++) ids.push((await runtime.createRun({ agent_name: "agent", input: "" })).run_id);
  const [answered = "", expired = ""] = ids;
  await admin.pause({ tenant: "" });
  await runtime.resume(answer(answered));
  await clock.advance(5_000);
  const statuses = async () => Promise.all(ids.map(async (id) => (await runtime.getRun(id)).status));
  expect(await statuses()).toEqual(["in-progress", "awaiting"]);
  await admin.resume({ tenant: "" });
  await clock.advance(100);
  expect(await statuses()).toEqual(["completed", "completed"]);
  expect((await runtime.getRun(expired)).output[0]?.parts[0]?.content).toBe('{"n":1}');
});

unlessReplayed(TIMERS)("in memory, a paused version holds no slot that it shares", async () => {
  const { runtime, clock } = setUp();
  const register = (version: string) =>
    runtime.register("agent", { version, concurrency: { max: 1 } }, async (_input, { ask, step }) => {
      await step("work", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 1_000)));
      return JSON.stringify(await ask("Well?"));
    });
  register("1");
  const create = async () => (await runtime.createRun({ agent_name: "agent", input: "", mode: "async" })).run_id;
  const [atWork, queued] = [await create(), await create()];
  await clock.advance(10);
  const admin = createAdmin(runtime);
  await admin.pause({ agent_name: "agent", version: "1" });
  const paused = await create();
  register("2");
  const free = await create();
  await clock.advance(10_000);
  const statuses = async () =>
    Promise.all([atWork, queued, paused, free].map(async (id) => (await runtime.getRun(id)).status));
  expect(await statuses()).toEqual(["awaiting", "created", "created", "awaiting"]);
  await admin.resume({ agent_name: "agent", version: "1" });
  await clock.advance(10_000);
  expect(await statuses()).toEqual(["awaiting", "awaiting", "awaiting", "awaiting"]);
});

it("in memory, a paused run that was answered can be cancelled, and its agent cleans up", async () => {
  const { runtime, clock } = setUp();
  const done: string[] = [];
  runtime.register("agent", async (_input, { ask }) => {
    try {
      await ask("Well?");
    } finally {
      done.push("cleaned up");
    }
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  await createAdmin(runtime).pause({ agent_name: "agent" });
  await runtime.resume(answer(run_id));
  await clock.advance(100);
  expect(done).toEqual([]);
  await runtime.cancel(run_id);
  await clock.advance(100);
  expect([(await runtime.getRun(run_id)).status, ...done]).toEqual(["cancelled", "cleaned up"]);
});

it("runtimes on one store in memory know the pauses of one another within a second", async () => {
  const clock = new FakeClock();
  const store = new MemoryStore({ clock });
  const [first, second] = [new AgentRuntime({ clock, store }), new AgentRuntime({ clock, store })];
  for (const runtime of [first, second]) runtime.register("agent", () => "done");
  await createAdmin(first).pause({ agent_name: "agent" });
  await clock.advance(1_000);
  const { run_id } = await second.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.advance(5_000);
  expect((await second.getRun(run_id)).status).toBe("created");
  await createAdmin(first).resume({ agent_name: "agent" });
  await clock.advance(1_100);
  expect((await second.getRun(run_id)).status).toBe("completed");
});
