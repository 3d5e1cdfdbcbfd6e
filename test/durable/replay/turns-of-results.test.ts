import { nextTick } from "node:process";
import type { AgentContext } from "cadenza";
import { expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { setUp } from "../../harness/runtimes.ts";
import { lastingStore, persistent } from "../../harness/store-proxy.ts";

/* Each result of a history comes in a turn of its own, as it came first: branches find their operations in the same order. */

type Agent = (context: Pick<AgentContext, "step">, hop: () => Promise<void>) => Promise<string>;

/** Branches of which one takes its time before its next operation. The steps called `same` are told apart by their order alone. */
const agents: Readonly<Record<string, Agent>> = {
  "began side by side": async ({ step }, hop) => {
    const slow = step("first", () => 1)
      .then(hop)
      .then(() => step("same", () => "slow"));
    const fast = step("second", () => 2).then(() => step("same", () => "fast"));
    return `${await slow} ${await fast}`;
  },
  "follow one step": async ({ step }, hop) => {
    const first = step("first", () => 1);
    const slow = first.then(hop).then(() => step("same", () => "slow"));
    const fast = first.then(() => step("second", () => 2)).then(() => step("same", () => "fast"));
    return `${await slow} ${await fast}`;
  },
  "began with the agent": async ({ step }, hop) => {
    const slow = hop().then(() => step("same", () => "slow"));
    const fast = step("first", () => 1).then(() => step("same", () => "fast"));
    return `${await slow} ${await fast}`;
  },
  "begin behind steps that were alone": async ({ step }, hop) => {
    for (let n = 0; n < 3; n++) await step("alone", () => n);
    const slow = hop().then(() => step("same", () => "slow"));
    const fast = step("first", () => 1).then(() => step("same", () => "fast"));
    return `${await slow} ${await fast}`;
  },
};

it.each(Object.keys(agents))("branches that %s get their results in a replay as they got them first", async (name) => {
  const { output } = await replayed(({ step }) =>
    (agents[name] as Agent)({ step }, async () => {
      for (let time = 0; time < 200; time++) await undefined;
    }),
  );
  expect(output).toBe("slow fast");
});

// A branch may wait for operations alone. Where several are open, one that waits a little for others gets what it got all the same.
it("results of operations that are open together come in turns of the event loop", async () => {
  const { output } = await replayed(({ step }) =>
    (agents["began side by side"] as Agent)({ step }, async () => {
      for (let time = 0; time < 20; time++) await new Promise<void>((resolve) => nextTick(resolve));
    }),
  );
  expect(output).toBe("slow fast");
});

/** Executes an agent, evicts it, and executes it again for its output. */
async function replayed(
  agent: (context: Pick<AgentContext, "step">) => Promise<string>,
): Promise<{ readonly output: string | null | undefined }> {
  const clock = new FakeClock();
  const store = persistent(lastingStore(clock));
  const { runtime } = setUp({ store, clock, durability: { evictAfterMs: 100 } });
  let calls = 0;
  runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
    calls += 1;
    const output = await agent({ step });
    await ask("Is that all?");
    return output;
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  await clock.advance(1_000);
  const { output } = await runtime.resume({ run_id, await_resume: { ok: true } });
  expect(calls).toBeGreaterThanOrEqual(2);
  await runtime.close();
  return { output: output[0]?.parts[0]?.content };
}
