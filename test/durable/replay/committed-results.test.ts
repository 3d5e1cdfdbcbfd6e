import type { AgentContext } from "cadenza";
import { describe, expect, it } from "vitest";
import type { ReceivedEntry } from "../../harness/internals.ts";
import { T0 } from "../../harness/logs.ts";
import { deferred } from "../../harness/promises.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/*
 * A process ends a wait of a run that no process owns. Its write meets a message of another process. While it reads the
 * log again, that process takes the run and ends the wait in another way. The agent of the first process gets nothing.
 */

const durability = { leaseMs: 60_000, heartbeatMs: 20_000, scanMs: 100_000 };
const ENDS_MS = 1_000;

/** What an agent waits for, until when, and how another process ends it before that. */
interface Ending {
  readonly name: string;
  readonly wait: (context: AgentContext, signal: AbortSignal) => Promise<unknown>;
  readonly end: (other: Replica, run_id: string) => Promise<unknown>;
}

const message: ReceivedEntry = {
  ...{ type: "received", at: T0, name: "news", data: 1 },
  idempotency_key: "1",
};

const answer = ({ runtime }: Replica, run_id: string) =>
  runtime.resume({ run_id, await_id: "ask#1", await_resume: { from: "the answer" }, mode: "async" });

const endings: readonly Ending[] = [
  {
    name: "a deadline with a default",
    wait: ({ ask }) => ask("Well?", { timeoutMs: ENDS_MS, default: { from: "the default" } }),
    end: answer,
  },
  {
    name: "a deadline without a default",
    wait: ({ ask }) => ask("Well?", { timeoutMs: ENDS_MS }),
    end: answer,
  },
  {
    name: "a withdrawal",
    wait: ({ ask }, signal) => ask("Well?", { signal }).catch(() => "withdrawn"),
    end: answer,
  },
];

describe.each(endings)("$name that the log does not get", ({ wait, end }) => {
  it("is not handed to the agent", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    const got: string[] = [];
    const finals: string[] = [];
    const withdrawing = new AbortController();
    const register = ({ runtime }: Replica, name: string) =>
      runtime.register("agent", { durable: true }, async (_input, context) => {
        try {
          const value = await wait(context, name === "first" ? withdrawing.signal : new AbortController().signal);
          got.push(`${name}: ${JSON.stringify(value)}`);
        } finally {
          finals.push(name);
        }
      });

    // The store is slow to tell the first process that it has lost the run.
    const slow = deferred();
    let interfere: "by a message" | "by a take-over" | undefined;
    let isOver = false;
    const first = replicas.start({ durability }, async (call, method) => {
      if (method === "append" && isOver) await slow.promise;
      if (method === "append" && interfere === "by a message") {
        interfere = "by a take-over";
        await second.store.post({ tenant: "", run_id }, { entries: [message] });
      }
      if (method === "read" && interfere === "by a take-over") {
        interfere = undefined;
        isOver = true;
        await end(second, run_id);
      }
      return call();
    });
    const second = replicas.start({ durability });
    register(first, "first");
    const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
    register(second, "second");
    await clock.settle();
    interfere = "by a message";
    withdrawing.abort();
    await clock.advance(ENDS_MS);
    await clock.settle();
    expect(isOver).toBe(true);
    slow.resolve();
    await clock.settle();
    expect(got).toEqual(['second: {"from":"the answer"}']);
    expect(finals).toEqual(["second"]);
    expect((await second.runtime.getRun(run_id)).status).toBe("completed");
    const log = (await second.store.read({ tenant: "", run_id }, 0, 100)) ?? [];
    expect(log.filter(({ type }) => type === "timed-out" || type === "withdrawn")).toEqual([]);
  });
});

it("an agent whose time is over is stopped when the log says so, and not before", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const slow = deferred();
  const finals: string[] = [];
  let isSlow = false;
  const { runtime } = replicas.start({ durability }, async (call, method) => {
    if (method === "append" && isSlow) await slow.promise;
    return call();
  });
  runtime.register("agent", { durable: true, timeoutMs: ENDS_MS }, async (_input, { step }) => {
    try {
      await step("work", () => new Promise(() => {}));
    } finally {
      finals.push("stopped");
    }
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.settle();
  isSlow = true;
  await clock.advance(ENDS_MS);
  expect(finals).toEqual([]);
  slow.resolve();
  await clock.settle();
  expect(finals).toEqual(["stopped"]);
  expect((await runtime.getRun(run_id)).status).toBe("failed");
});
