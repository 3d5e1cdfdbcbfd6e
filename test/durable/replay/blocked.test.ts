import type { AgentFunction, CadenzaError, StreamedEvent } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { onDurableStore } from "../../harness/durable-runtime.ts";
import { nextTurn } from "../../harness/promises.ts";
import { drain, refusal, typesOf } from "../../harness/runtimes.ts";
import { openDatabase, withFile } from "../../harness/sqlite-files.ts";
import { World } from "../../harness/world/world.ts";

/*
 * A run whose code does not match its history waits for matching code. Each caller that waits for such a run is told so
 * as soon as the mismatch is found, and each later caller at once.
 */

/** Longer than the time that a replay may make no progress. */
const LONG_MS = 8_000;

/** Ends where its history holds a question: the mismatch is found at once. */
const endsEarly: AgentFunction = (_input, { step }) => step("find a train", () => "RE 5");
/** Waits for a step that its history does not hold: the mismatch is found after a time without progress. */
const asksForOther: AgentFunction = (_input, { step }) => step("walk", () => "away");
const mismatching = { "ends early": endsEarly, "asks for something else": asksForOther };

const trip: AgentFunction = async (_input, { step, ask }) => {
  const train = await step("find a train", () => "RE 5");
  await step("wait", () => new Promise(() => {}));
  await ask(`Take ${train}?`);
};

/** A run that was in progress when its process died, and a process with other code for it. */
async function restart(agent: AgentFunction) {
  const world = new World({ register: () => {} });
  const first = world.start();
  first.runtime.register("trip", { durable: true }, trip);
  const request = { agent_name: "trip", input: "Berlin" };
  const creating = first.runtime.createRun({ ...request, mode: "async" }, { idempotencyKey: "order 7" });
  const outcome = await world.until(creating, first);
  if (outcome === undefined || "error" in outcome) throw new Error("The run was not created.");
  await world.settle();
  first.kill();
  const next = world.start();
  next.runtime.register("trip", { durable: true }, agent);
  return { world, next, request, run_id: outcome.value.run_id };
}

function sentence(run_id: string, position: number, history: string, code: string): string {
  return (
    `Run ${run_id} is blocked: the registered code of "trip" does not match its history at entry ${position} ` +
    `(history: ${history}; code: ${code}). Register matching code, or cancel the run.`
  );
}

it("a caller that cancels a blocked run and waits for its end is not refused while its code is tried again", () =>
  withFile(async (file) => {
    const clock = new FakeClock();
    const withCode = (agent: AgentFunction): AgentRuntime => {
      const store = new SqliteStore(openDatabase(file), { clock, closeDatabase: true });
      return new AgentRuntime({ clock, store }).register("trip", { durable: true }, agent);
    };
    const first = withCode(async (_input, { step, ask }) => {
      await step("find a train", () => "RE 5");
      await ask("Take it?");
    });
    const { run_id } = await first.createRun({ agent_name: "trip", input: "Berlin" });
    await first.close();
    const next = withCode(asksForOther);
    const refused = refusal(next.resume({ run_id, await_resume: { ok: true } }));
    await clock.advance(LONG_MS);
    expect(await refused).toMatchObject({ code: "run_blocked" });
    const cancelled = next.cancel(run_id, { wait: true }).catch((error: unknown) => error);
    await clock.advance(LONG_MS);
    expect(await cancelled).toMatchObject({ status: "cancelled" });
    await next.close();
  }));

describe.each(Object.entries(mismatching))("a run whose code %s", (_name, agent) => {
  const [position, history, code] =
    agent === endsEarly
      ? ([5, "wait#1", "the agent returned"] as const)
      : ([3, "the result of find a train#1", "walk#1"] as const);

  it("refuses each call that waits for it, with the reason", async () => {
    const { world, next, request, run_id } = await restart(agent);
    const { runtime } = next;
    const told: Promise<CadenzaError>[] = [
      refusal(runtime.createRun(request, { idempotencyKey: "order 7" })),
      refusal(lastOf(runtime.createRun({ ...request, mode: "stream" }, { idempotencyKey: "order 7" }))),
      refusal(lastOf(runtime.events(run_id))),
      refusal(lastOf(runtime.events(run_id, { until: "end" }))),
    ];
    await world.pass(LONG_MS);
    // These calls come when the mismatch is known.
    told.push(
      refusal(runtime.createRun(request, { idempotencyKey: "order 7" })),
      refusal(lastOf(runtime.createRun({ ...request, mode: "stream" }, { idempotencyKey: "order 7" }))),
      refusal(lastOf(runtime.events(run_id))),
      refusal(lastOf(runtime.events(run_id, { until: "end" }))),
    );
    const outcome = await world.until(Promise.all(told), next);
    if (outcome === undefined || "error" in outcome) throw outcome?.error;
    for (const error of outcome.value) {
      expect(error).toMatchObject({ code: "run_blocked", run_id, agent_name: "trip" });
      expect(error.message).toBe(sentence(run_id, position, history, code));
    }
  });

  it("can still be read and cancelled", async () => {
    const { world, next, run_id } = await restart(agent);
    const { runtime } = next;
    await world.pass(LONG_MS);
    const seen: StreamedEvent[] = [];
    const reading = (async () => {
      for await (const event of runtime.events(run_id, { until: "end" })) seen.push(event);
    })();
    await world.until(reading, next);
    expect(typesOf(seen)).toEqual(["run.created", "run.in-progress"]);
    expect(await world.until(drain(runtime.events(run_id, { until: "now" })), next)).toEqual({ value: seen });
    expect(await world.until(runtime.getRun(run_id), next)).toMatchObject({ value: { status: "in-progress" } });
    expect(await world.until(runtime.cancel(run_id), next)).toMatchObject({ value: { status: "cancelling" } });
    await world.pass(LONG_MS);
    expect(await world.until(runtime.getRun(run_id), next)).toMatchObject({ value: { status: "cancelled" } });
  });

  it("can be waited for again when matching code is registered", async () => {
    const { world, next, request } = await restart(agent);
    const { runtime } = next;
    await world.pass(LONG_MS);
    runtime.register("trip", { durable: true, replace: true }, async (_input, { step }) => {
      await step("find a train", () => "RE 5");
      await step("wait", () => "waited");
    });
    const again = runtime.createRun(request, { idempotencyKey: "order 7" });
    expect(await world.until(again, next)).toMatchObject({ value: { status: "completed" } });
  });
});

describe("with alwaysReplay", () => {
  const branches: Record<string, (isFirst: boolean) => AgentFunction> = {
    "a branch":
      (isFirst) =>
      async (_input, { step }) => {
        await step(isFirst ? "a" : "b", () => 1);
        await step("c", () => 1);
      },
    "an early end":
      (isFirst) =>
      async (_input, { step }) => {
        if (isFirst) await step("a", () => 1);
      },
    "a branch behind an answer":
      (isFirst) =>
      async (_input, { step, ask }) => {
        if (isFirst) await ask("Go on?");
        else await step("b", () => 1);
      },
  };

  it.each(Object.entries(branches))(
    "%s by a random choice is a mismatch, and told to the caller in each mode",
    async (_name, agent) => {
      const clock = new FakeClock();
      const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true }, clock }));
      runtime.register("agent", { durable: true }, (input, context) => {
        calls += 1;
        return agent(calls === 1)(input, context);
      });
      let calls = 0;
      const sync = refusal(
        runtime.createRun({ agent_name: "agent", input: "" }).then(async (run) => {
          // A run that is awaiting already needs an answer.
          return run.status === "awaiting" ? runtime.resume({ run_id: run.run_id, await_resume: { ok: true } }) : run;
        }),
      );
      await clock.advance(2_000);
      expect(await sync).toMatchObject({ code: "run_blocked" });
      calls = 0;
      const stream = refusal(drainWithAnswer(runtime));
      await clock.advance(2_000);
      expect(await stream).toMatchObject({ code: "run_blocked" });
    },
  );

  it("a run that waits for a sub-run that is blocked is told of it", async () => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime(
      onDurableStore({ durability: { alwaysReplay: true }, clock, store: new MemoryStore() }),
    );
    let calls = 0;
    runtime.register("child", { durable: true }, async (_input, { step }) => {
      calls += 1;
      await step(`${calls}`, () => 1);
    });
    runtime.register("parent", { durable: true }, async (_input, { run }) => {
      await run("child", "");
    });
    runtime.register("grandparent", { durable: true }, async (_input, { run }) => {
      await run("parent", "");
    });
    const sync = refusal(runtime.createRun({ agent_name: "grandparent", input: "" }));
    await clock.advance(2_000);
    const error = await sync;
    const [blocked] = (await runtime.stats()).blocked;
    expect(error).toMatchObject({ code: "run_blocked", run_id: blocked?.run_id, agent_name: "child" });
    expect(error.message).toContain(`Run ${blocked?.run_id} is blocked`);
    const { run_id = "" } = (await runtime.listRuns({ agent_name: "grandparent" }))[0] ?? {};
    expect(await refusal(lastOf(runtime.events(run_id)))).toMatchObject({ code: "run_blocked" });
  });
});

/** Reads to the end, and gives the last event. */
async function lastOf(stream: AsyncIterable<StreamedEvent>): Promise<StreamedEvent | undefined> {
  return (await drain(stream)).at(-1);
}

/** Runs the agent as a stream, and answers its question as a stream. */
async function drainWithAnswer(runtime: AgentRuntime): Promise<void> {
  let awaiting: string | undefined;
  for await (const event of runtime.createRun({ agent_name: "agent", input: "", mode: "stream" }))
    if (event.type === "run.awaiting") awaiting = event.run.run_id;
  if (awaiting === undefined) return;
  await nextTurn();
  await drain(runtime.resume({ run_id: awaiting, await_resume: { ok: true }, mode: "stream" }));
}
