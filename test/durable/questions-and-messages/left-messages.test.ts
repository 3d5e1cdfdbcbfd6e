import type { AgentRuntime } from "cadenza";
import type { RunWrite } from "cadenza/store";
import { expect, it } from "vitest";
import { never } from "../../harness/promises.ts";
import { textsOf } from "../../harness/runtimes.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/* A message that a receive has taken, and that its agent does not get: it has continued as new. */

/** The message comes after so many turns of the event loop. */
const FIRST = 15;
const LAST = 30;

it("is there for the next generation, also if the process dies before that begins", async () => {
  let left = 0;
  for (let turns = FIRST; turns <= LAST; turns++) {
    const replicas = inMemory();
    let isAway = false;
    let hasTaken = false;
    let hasTicked = false;
    const first = replicas.start({}, (call, method, parameters) => {
      const [, , write] = parameters as readonly [unknown, unknown, RunWrite | undefined];
      const types = method === "append" ? (write?.entries.map(({ type }) => type) ?? []) : [];
      if (types.includes("continued")) isAway = true;
      hasTaken ||= !isAway && types.includes("taken");
      return isAway ? never() : call();
    });
    const second = replicas.start();
    register(first.runtime, () => {
      hasTicked = true;
    });
    register(second.runtime);
    const { run_id } = await first.runtime.createRun({ agent_name: "inbox", input: "", mode: "async" });
    await replicas.clock.settle();
    const passing = replicas.clock.advance(10);
    for (let turn = 0; turn < turns; turn++) await replicas.clock.turn();
    await second.runtime.send({ to: run_id, name: "n", data: "news" });
    await passing;
    if (isAway && hasTaken && hasTicked) left += 1;
    await replicas.clock.advance(10_000);
    await second.runtime.send({ to: run_id, name: "n", data: "stop" });
    await replicas.clock.advance(10_000);
    const run = await second.runtime.getRun(run_id);
    expect([turns, run.status, textsOf(run)]).toEqual([turns, "completed", ["news"]]);
  }
  // The log has said of some that the message was taken, and their agents have not got it.
  expect(left).toBeGreaterThan(0);
});

function register(runtime: AgentRuntime, onTick?: () => void): void {
  runtime.register("inbox", { durable: true }, async (_input, { carry, receive, sleep, continueAsNew }) => {
    const got = (carry ?? []) as readonly unknown[];
    const first = await Promise.race([receive("n"), sleep(10).then(() => "tick")]);
    if (first === "stop") return got.join();
    if (first === "tick") onTick?.();
    return continueAsNew(first === "tick" ? got : [...got, first]);
  });
}
