import type { DurableContext } from "cadenza";
import { AgentRuntime, CadenzaError, defineAgent } from "cadenza";
import type { Store } from "cadenza/store";
import { checkUpgrade } from "cadenza/testing";

/* Many open runs of five agents, new code with three breaks, and the deployment that tells which runs it blocks. */

/** How many runs are begun side by side: their writes are committed together. */
const AT_ONCE = 50;

type Code = (context: DurableContext) => Promise<unknown>;

const done = () => "done";

/** What each agent did, and what it does. */
const agents: Readonly<Record<string, readonly [before: Code, after: Code]>> = {
  same: [({ ask }) => ask("Go on?"), ({ ask }) => ask("Go on, please?")],
  returns: [
    async ({ step, ask }) => {
      await step("plan", done);
      await ask("Go on?");
    },
    ({ step }) => step("plan", done),
  ],
  emits: [
    async ({ emit, ask }) => {
      await ask("First?");
      await emit("Well. ");
      await ask("Second?");
    },
    async ({ emit, ask }) => {
      await ask("First?");
      await emit({ kind: "object" });
      await ask("Second?");
    },
  ],
  patched: [
    async ({ step, ask }) => {
      await step("plan", done);
      await ask("Go on?");
    },
    async ({ step, ask, patched }) => {
      if (patched("weigh")) await step("weigh", done);
      await step("plan", done);
      await ask("Go on?");
    },
  ],
  renamed: [
    async ({ step, ask }) => {
      await ask("Go on?");
      await step("plan", done);
      await ask("Sure?");
    },
    async ({ step, ask }) => {
      await ask("Go on?");
      await step("prepare", done);
      await ask("Sure?");
    },
  ],
};

function runtimeOn(store: Store, which: 0 | 1): AgentRuntime<string> {
  const runtime: AgentRuntime<string> = new AgentRuntime({ store });
  for (const [name, codes] of Object.entries(agents))
    runtime.register(name, { durable: true }, async (_input, context) => void (await codes[which](context)));
  return runtime;
}

const newAgents = Object.entries(agents).map(([name, codes]) =>
  defineAgent(name, { durable: true }, async (_input, context) => void (await codes[1](context))),
);

/** Creates so many runs. Every second one gets an answer, and waits at its second question if it has one. */
export async function beginRuns(store: Store, runs: number): Promise<void> {
  const runtime = runtimeOn(store, 0);
  const names = Object.keys(agents);
  const begin = async (number: number): Promise<void> => {
    const agent_name = names[number % names.length] ?? "";
    const run = await runtime.createRun({ agent_name, input: "" });
    if (number % 2 === 0) await runtime.resume({ run_id: run.run_id, await_resume: { ok: true } });
  };
  for (let number = 0; number < runs; number += AT_ONCE)
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, runs - number) }, (_, next) => begin(number + next)));
  await runtime.close();
}

/** The ids of the runs that the check names, and how long it took in milliseconds. Throws if it names a place that is not here. */
export async function namedIn(store: Store): Promise<{ readonly ids: readonly string[]; readonly tookMs: number }> {
  const begun = performance.now();
  const { blocked } = await checkUpgrade({ agents: newAgents, store, patienceMs: 500 });
  const tookMs = performance.now() - begun;
  const elsewhere = blocked.find(({ at }) => at?.includes("checked-runs.ts:") !== true);
  if (elsewhere !== undefined) throw new Error(`Run ${elsewhere.run_id} is said to be blocked at ${elsewhere.at}.`);
  return { ids: blocked.map(({ run_id }) => run_id).toSorted(), tookMs };
}

/** The ids of the runs that the new code blocks when it gets an answer for each of them. */
export async function blockedOn(store: Store): Promise<readonly string[]> {
  const runtime = runtimeOn(store, 1);
  const blocked: string[] = [];
  const open = (await store.survey({ statuses: ["awaiting"], limit: 10_000 })).runs;
  await Promise.all(
    open.map(async ({ key: { run_id } }) => {
      const error = await runtime
        .resume({ run_id, await_resume: { ok: true }, mode: "async" })
        .catch((caught: unknown) => caught);
      if (CadenzaError.is(error) && error.code === "run_blocked") blocked.push(run_id);
    }),
  );
  await runtime.close();
  return blocked.toSorted();
}
