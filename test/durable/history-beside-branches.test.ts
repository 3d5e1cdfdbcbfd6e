import type { Message } from "cadenza";
import { expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { deferred } from "../harness/promises.ts";
import { questionOf, reply, setUp, textOf } from "../harness/runtimes.ts";
import { hookedStore, lastingStore, persistent } from "../harness/store-proxy.ts";

/*
 * One branch of an agent reads the history of its session, and then asks. Another one gets the result of a step, and then
 * emits. The store answers the read of each execution sooner or later than the step ends.
 */

it.each([
  ["soon, and late in the replay", [false, true]],
  ["late, and soon in the replay", [true, false]],
  ["late each time", [true, true]],
])("an agent that reads its history in a branch is replayed as it went: the store answers %s", async (_when, late) => {
  const clock = new FakeClock();
  const reads: ((() => void) | undefined)[] = [];
  const store = hookedStore(
    async (call, method) => {
      if (method === "session" && isLate()) {
        const { promise, resolve } = deferred();
        reads.push(resolve);
        await promise;
      }
      return call();
    },
    persistent(lastingStore(clock)),
  );
  let execution = 0;
  const isLate = (): boolean => late[execution - 1] === true;
  const { runtime } = setUp({ store, clock, durability: { evictAfterMs: 100 } });
  runtime.register("before", () => "before");
  runtime.register("agent", { durable: true }, async (_input, { session, ask, step, emit }) => {
    execution += 1;
    const [answer] = await Promise.all([
      session.history().then((history) => ask(`after ${history.length}?`)),
      step("work", () => 1).then(() => emit("worked. ")),
    ]);
    return textOf(answer as Message);
  });
  const { session_id } = await runtime.createRun({ agent_name: "before", input: "hello" });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", session_id, mode: "async" });
  const goOn = async (): Promise<void> => {
    await clock.advance(1_000);
    for (const resolve of reads.splice(0)) resolve?.();
    await clock.advance(1_000);
  };
  await goOn();
  expect(questionOf(await runtime.getRun(run_id)).message.parts[0]?.content).toBe("after 2?");
  const answered = runtime.resume({ run_id, await_resume: reply("yes"), mode: "async" });
  await goOn();
  await answered;
  const run = await runtime.getRun(run_id);
  expect(execution).toBe(2);
  expect(run.output.map(textOf).join("|")).toBe("worked. |yes");
  await runtime.close();
});
