import { expect, it } from "vitest";
import { setUp, textsOf } from "../helpers/runtimes.ts";
import { lastingStore } from "./world.ts";

/** Two runtimes on one store, one after the other, and what the agent has done in each. */
async function closedWithSleeper() {
  const store = lastingStore();
  const begun: string[] = [];
  const open = (name: string) => {
    const set = setUp({ store, durability: { sleepAfterMs: 50 } });
    set.runtime.register("agent", { durable: true }, async function* (_input, { ask }) {
      begun.push(name);
      yield JSON.stringify(await ask("Well?"));
    });
    return set;
  };
  const first = open("first");
  const creating = first.runtime.createRun({ agent_name: "agent", input: "" });
  await first.clock.advance(1_000);
  const { run_id } = await creating;
  const closing = first.runtime.close();
  await first.clock.advance(1_000);
  await closing;
  return { store, first, begun, run_id, again: () => open("second") };
}

it("a runtime that has been closed brings no run back to answer it, and says so", async () => {
  const { first, begun, run_id, again } = await closedWithSleeper();
  const answering = first.runtime.resume({ run_id, await_resume: { ok: true } });
  await expect(answering).rejects.toMatchObject({ code: "runtime_closed" });
  expect(begun).toEqual(["first"]);

  const { runtime, clock } = again();
  const resuming = runtime.resume({ run_id, await_resume: { ok: true } });
  await clock.advance(1_000);
  expect(textsOf(await resuming)).toEqual(['{"ok":true}']);
  expect(begun).toEqual(["first", "second"]);
});

it("a cancel that comes to a closed runtime is written down, and carried out by the next", async () => {
  const { first, begun, run_id, again } = await closedWithSleeper();
  expect((await first.runtime.cancel(run_id)).status).toBe("cancelling");
  expect(begun).toEqual(["first"]);

  const { runtime, clock } = again();
  await clock.advance(2_000);
  expect((await runtime.getRun(run_id)).status).toBe("cancelled");
  expect(begun).toEqual(["first", "second"]);
});

it("a closed runtime that has no code for a run does not end it either", async () => {
  const { store, run_id } = await closedWithSleeper();
  const { runtime, clock } = setUp({ store });
  await runtime.close();
  await runtime.cancel(run_id);
  await clock.advance(1_000);
  expect((await runtime.getRun(run_id)).status).toBe("cancelling");
});

it("a runtime that has been closed owns nothing again when an agent is registered", async () => {
  const { first } = await closedWithSleeper();
  first.runtime.register("late", { durable: true }, () => undefined);
  await first.clock.advance(60_000);
  expect((await first.runtime.stats()).live).toEqual({});
  expect(first.clock.timers).toBe(0);
});
