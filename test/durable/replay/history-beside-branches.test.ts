import type { AgentFunction, Message, Run } from "cadenza";
import { expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { deferred } from "../../harness/promises.ts";
import { questionOf, reply, setUp, textOf } from "../../harness/runtimes.ts";
import { hookedStore, lastingStore, persistent } from "../../harness/store-proxy.ts";

/*
 * Branches of an agent read the history of its session or emit, and then ask. The store answers the reads of each
 * execution sooner or later than other branches go on, and in one order or another.
 */

it.each<[when: string, answers: readonly Answering[]]>([
  ["soon, and late in the replay", ["soon", "in order"]],
  ["late, and soon in the replay", ["in order", "soon"]],
  ["late each time", ["in order", "in order"]],
])(
  "an agent that reads its history in a branch is replayed as it went: the store answers %s",
  async (_when, answers) => {
    const run = await replayed(answers, async (_input, { session, ask, step, emit }) => {
      const [answer] = await Promise.all([
        session.history().then((history) => ask(`after ${history.length}?`)),
        step("work", () => 1).then(() => emit("worked. ")),
      ]);
      return textOf(answer as Message);
    });
    expect(run.output.map(textOf).join("|")).toBe("worked. |yes to after 2?");
  },
);

it.each<[when: string, answers: readonly Answering[]]>([
  ["soon, and in reverse in the replay", ["soon", "in reverse"]],
  ["in order, and in reverse in the replay", ["in order", "in reverse"]],
  ["in reverse, and in order in the replay", ["in reverse", "in order"]],
])(
  "branches that read their history side by side go on one after the other: the store answers %s",
  async (_when, answers) => {
    const run = await replayed(answers, async (_input, { session, ask, emit }) => {
      const one = async (): Promise<string> => {
        await session.history();
        for (let time = 0; time < 20; time++) await emit(null);
        return textOf((await ask("one?")) as Message);
      };
      const other = async (): Promise<string> => {
        await session.history();
        return textOf((await ask("other?")) as Message);
      };
      return (await Promise.all([one(), other()])).join(", ");
    });
    expect(run.output.map(textOf).join("|")).toBe("yes to one?, yes to other?");
  },
);

// A replay has nothing to write, and waits nevertheless as long as another branch needs for what it does at once.
it("a branch that waits until its output is written goes on after the others, however soon the store has written", async () => {
  const agent: AgentFunction = async (_input, { ask, emit }) => {
    const one = async (): Promise<string> => {
      for (const text of ["a ", "b "]) await emit(text);
      return textOf((await ask("one?")) as Message);
    };
    const other = async (): Promise<string> => {
      for (let time = 0; time < 100; time++) await undefined;
      return textOf((await ask("other?")) as Message);
    };
    return (await Promise.all([one(), other()])).join(", ");
  };
  const run = await replayed(["soon"], agent, { maxBacklog: 2 });
  expect(run.output.map(textOf).join("|")).toBe("a |b |yes to one?, yes to other?");
});

/** How the store answers the reads of the session in an execution of the agent. */
type Answering = "soon" | "in order" | "in reverse";

/** Runs an agent that is evicted with each of its questions, and executed twice at least. The last way of answering holds for all executions after it. */
async function replayed(
  answers: readonly Answering[],
  agent: AgentFunction,
  limits: { readonly maxBacklog?: number } = {},
): Promise<Run> {
  const clock = new FakeClock();
  const reads: (() => void)[] = [];
  let execution = 0;
  const answering = (): Answering => answers[Math.min(execution, answers.length) - 1] ?? "soon";
  const store = hookedStore(
    async (call, method) => {
      if (method === "session" && answering() !== "soon") {
        const { promise, resolve } = deferred();
        reads.push(resolve);
        await promise;
      }
      return call();
    },
    persistent(lastingStore(clock)),
  );
  const { runtime } = setUp({ store, clock, durability: { evictAfterMs: 100 }, limits });
  runtime.register("before", () => "before");
  runtime.register("agent", { durable: true }, (input, context) => {
    execution += 1;
    return agent(input, context);
  });
  const { session_id } = await runtime.createRun({ agent_name: "before", input: "hello" });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", session_id, mode: "async" });
  const goOn = async (): Promise<void> => {
    await clock.advance(1_000);
    const due = reads.splice(0);
    for (const resolve of answering() === "in reverse" ? due.reverse() : due) {
      resolve();
      await clock.advance(0);
    }
    await clock.advance(1_000);
  };
  await goOn();
  for (let run = await runtime.getRun(run_id); run.status === "awaiting"; run = await runtime.getRun(run_id)) {
    const { await_id, message } = questionOf(run);
    const answer = reply(`yes to ${textOf(message)}`);
    await Promise.all([runtime.resume({ run_id, await_id, await_resume: answer, mode: "async" }), goOn()]);
  }
  const run = await runtime.getRun(run_id);
  expect(execution).toBeGreaterThanOrEqual(2);
  await runtime.close();
  return run;
}
