import { expect, it } from "vitest";
import { deferred, never } from "../../harness/promises.ts";
import { setUp } from "../../harness/runtimes.ts";
import { HANDED_BACK, unlessReplayed } from "../../harness/unless-replayed.ts";

/** An agent that begins a step when the test lets it, whether its run has ended by then or not. */
function withLateStep() {
  const set = setUp({ cancelGraceMs: 100 });
  const gate = deferred();
  const begun: string[] = [];
  const refused: unknown[] = [];
  set.runtime.register("agent", async (_input, { step }) => {
    await gate.promise;
    await step("late", () => begun.push("late")).catch((error: unknown) => refused.push(error));
    await never();
  });
  return { ...set, gate, begun, refused };
}

unlessReplayed(HANDED_BACK)(
  "A step that a plain agent begins after its run was ended by close is refused, and its body does not run",
  async () => {
    const { runtime, clock, gate, begun, refused } = withLateStep();
    const creating = runtime.createRun({ agent_name: "agent", input: "" });
    await clock.settle();
    await runtime.close({ drainMs: 0 });
    expect((await creating).status).toBe("failed");
    gate.resolve();
    await clock.settle();
    expect(begun).toEqual([]);
    expect(refused).toMatchObject([{ code: "interrupted" }]);
  },
);

it("A step that a plain agent begins after it was left behind is refused, and its body does not run", async () => {
  const { runtime, clock, gate, begun, refused } = withLateStep();
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.settle();
  await runtime.cancel(run_id);
  await clock.advance(100);
  expect((await runtime.getRun(run_id)).status).toBe("cancelled");
  gate.resolve();
  await clock.settle();
  expect(begun).toEqual([]);
  expect(refused).toMatchObject([{ code: "run_cancelled" }]);
});
