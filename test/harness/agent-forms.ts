import type { AgentContext, AgentFunction } from "cadenza";
import { AgentRuntime, awaitMessage } from "cadenza";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { expect } from "vitest";
import { never, nextTurn } from "./promises.ts";
import { hookedStore } from "./store-proxy.ts";

/*
 * The four forms of agent function in everything that ends a run, or takes it out of a process. Each agent asks, and acts
 * by the answer.
 */

const LEASE_MS = 3_000;
const LIMIT_MS = 60;
const BUDGET = 10;

type Act = "ends" | "fails" | "spends" | "waits";

export const agentForms: Readonly<Record<string, AgentFunction>> = {
  "a plain generator": function* (_input, context) {
    const act = actOf(yield awaitMessage("Well?"));
    yield perform(act, context);
  },
  "an async generator": async function* (_input, context) {
    const act = actOf(yield awaitMessage("Well?"));
    yield await perform(act, context);
  },
  "an async function": async (_input, context) => perform(actOf(await context.ask("Well?")), context),
  "a plain function": (_input, context) => context.ask("Well?").then((answer) => perform(actOf(answer), context)),
};

/** What happens to a run that asks, and how it ends. Each starts the processes that it needs. */
export const fates: Readonly<Record<string, (place: Place) => Promise<void>>> = {
  "is answered": async (place) => {
    const { runtime, run_id } = await begin(place);
    await answer(runtime, run_id, "ends");
    expect(await endOf(runtime, run_id)).toEqual(["completed", null]);
  },
  "is cancelled while it asks": async (place) => {
    const { runtime, run_id } = await begin(place);
    await runtime.cancel(run_id);
    expect(await endOf(runtime, run_id)).toEqual(["cancelled", null]);
  },
  "is cancelled while it works": async (place) => {
    const { runtime, run_id } = await begin(place);
    await answer(runtime, run_id, "waits");
    await runtime.cancel(run_id);
    expect(await endOf(runtime, run_id)).toEqual(["cancelled", null]);
  },
  "exceeds its time": async (place) => {
    const { runtime, run_id } = await begin(place, { timeoutMs: LIMIT_MS });
    await answer(runtime, run_id, "waits");
    expect(await endOf(runtime, run_id)).toEqual(["failed", "run_timeout"]);
  },
  fails: async (place) => {
    const { runtime, run_id } = await begin(place);
    await answer(runtime, run_id, "fails");
    expect(await endOf(runtime, run_id)).toEqual(["failed", "agent_failed"]);
  },
  "exceeds its budget": async (place) => {
    const { runtime, run_id } = await begin(place, { budget: { totalTokens: BUDGET } });
    await answer(runtime, run_id, "spends");
    expect(await endOf(runtime, run_id)).toEqual(["failed", "budget_exceeded"]);
  },
  "is left to another process when its own is closed": async (place) => {
    const { runtime, run_id } = await begin(place);
    await runtime.close({ drainMs: 0 });
    const next = place.start();
    await answer(next.runtime, run_id, "ends");
    expect(await endOf(next.runtime, run_id)).toEqual(["completed", null]);
  },
  "is evicted": async (place) => {
    const { runtime, run_id } = await begin(place, {}, { evictAfterMs: 1 });
    while (Object.keys((await runtime.stats()).live).length > 0) await nextTurn();
    await answer(runtime, run_id, "ends");
    expect(await endOf(runtime, run_id)).toEqual(["completed", null]);
  },
  "is taken over when its process has died": async (place) => {
    const { runtime, run_id, kill } = await begin(place);
    await answer(runtime, run_id, "waits");
    kill();
    const next = place.start();
    await next.runtime.cancel(run_id);
    expect(await endOf(next.runtime, run_id)).toEqual(["cancelled", null]);
  },
};

/** Where the processes of a trial share a store. */
export class Place {
  readonly #agent: AgentFunction;
  readonly #open: () => Store | Promise<Store>;
  readonly #stores: Store[] = [];
  #next = 0;
  readonly #started: { readonly runtime: AgentRuntime; readonly isKilled: () => boolean }[] = [];

  /** `open`: the store as one more process opens it. */
  constructor(agent: AgentFunction, open: () => Store | Promise<Store>) {
    this.#agent = agent;
    this.#open = open;
  }

  /** Opens the store for two processes, which then start without waiting. */
  async open(): Promise<void> {
    for (const _ of [1, 2]) this.#stores.push(await this.#open());
  }

  start(durability: { readonly evictAfterMs?: number } = {}): Process {
    const store = this.#stores[this.#next++];
    if (store === undefined) throw new Error("A trial has two processes.");
    let isDead = false;
    const hooked = hookedStore((call) => (isDead ? never() : call()), store);
    const times = { leaseMs: LEASE_MS, heartbeatMs: LEASE_MS / 4, scanMs: LEASE_MS / 12, ...durability };
    const runtime = new AgentRuntime({ store: durable(hooked, times), cancelGraceMs: LIMIT_MS });
    runtime.register("agent", { durable: true }, this.#agent as never);
    this.#started.push({ runtime, isKilled: () => isDead });
    return {
      runtime,
      kill() {
        isDead = true;
      },
    };
  }

  /** Closes all processes. What was killed does not answer, so the stores are closed too. */
  async close(): Promise<void> {
    for (const { runtime, isKilled } of this.#started) if (!isKilled()) await runtime.close({ drainMs: 0 });
    for (const store of this.#stores) await store.close();
  }
}

interface Process {
  readonly runtime: AgentRuntime;
  /** The process dies: its actions have no effect from now on. */
  kill(): void;
}

async function begin(
  place: Place,
  options: { readonly timeoutMs?: number; readonly budget?: { readonly totalTokens: number } } = {},
  durability: { readonly evictAfterMs?: number } = {},
): Promise<Process & { readonly run_id: string }> {
  const process = place.start(durability);
  const { run_id, status } = await process.runtime.createRun({ agent_name: "agent", input: "" }, options);
  expect(status).toBe("awaiting");
  return { ...process, run_id };
}

/** Answers the run, and resolves when the answer is stored. */
async function answer(runtime: AgentRuntime, run_id: string, act: Act): Promise<void> {
  await runtime.resume({ run_id, await_resume: { act }, mode: "async" });
}

/** How the run has ended: its status, and the reason of its failure. */
async function endOf(runtime: AgentRuntime, run_id: string): Promise<readonly [status: string, reason: unknown]> {
  for await (const _ of runtime.events(run_id, { until: "end" }));
  const { status, error } = await runtime.getRun(run_id);
  return [status, error === null ? null : ((error.data as { readonly reason?: unknown })?.reason ?? "agent_failed")];
}

function actOf(answered: unknown): Act {
  return (answered as { readonly act: Act }).act;
}

async function perform(act: Act, { usage, step }: AgentContext): Promise<string> {
  switch (act) {
    case "fails":
      throw new Error("broken");
    case "spends":
      usage.add({ input_tokens: 2 * BUDGET });
      return step("after", () => "spent");
    case "waits":
      return never();
    case "ends":
      return "done";
  }
}
