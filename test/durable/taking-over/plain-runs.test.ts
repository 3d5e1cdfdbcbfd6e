import type { AgentRuntime } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/*
 * A run that is not durable fails when its process dies. To end it takes no code, so any worker of the store does it: one that
 * has registered other agents, or its agent in another version.
 */

/** What the process has that dies. */
function registerAll(runtime: AgentRuntime): void {
  registerSome(runtime);
  runtime.register("plain", { version: "1" }, async (_input, { ask }) => JSON.stringify(await ask("Well?")));
  runtime.register("narrow", { concurrency: { max: 1 } }, async (input, { ask, step }) => {
    if (input[0]?.parts[0]?.content === "asks") await ask("Well?");
    await step("work", () => new Promise<string>(() => {}));
  });
  runtime.register("over", async (_input, { run }) => (await run("deep", "")).status);
  runtime.register("deep", { durable: true }, async (_input, { ask }) => JSON.stringify(await ask("And?")));
}

/** What the process has that is left. */
function registerSome(runtime: AgentRuntime): void {
  runtime.register("parent", { durable: true }, async (_input, { run }) => {
    const { status, error } = await run("plain", "");
    return `${status}: ${error?.data?.["reason"]}`;
  });
  runtime.register("plain", { version: "2" }, () => "another version");
  runtime.register("other", { concurrency: { max: 1, per: "process" } }, () => "done");
}

describe.each([
  ["in memory", () => inMemory()],
  ["on a file", () => onFile()],
] as const)("%s, the process of plain runs dies, and no other process has their code", (_where, open) => {
  /** `answered`: the number of a run that got an answer before. */
  async function leave(agents: readonly (readonly [agent_name: string, input: string])[], answered = -1) {
    const processes = open();
    const first = processes.start();
    registerAll(first.runtime);
    const ids: string[] = [];
    for (const [agent_name, input] of agents) {
      ids.push((await first.runtime.createRun({ agent_name, input, mode: "async" })).run_id);
      await processes.clock.advance(100);
    }
    const run_id = ids[answered];
    if (run_id !== undefined) await first.runtime.resume({ run_id, await_resume: {}, mode: "async" });
    await processes.clock.advance(300);
    const { queued } = await first.runtime.stats();
    first.kill();
    const second = processes.start();
    registerSome(second.runtime);
    const outcomes = async (): Promise<readonly unknown[]> => {
      const runs = await Promise.all(ids.map((id) => second.runtime.getRun(id)));
      return runs.map(({ status, error, output }) => error?.data?.["reason"] ?? output[0]?.parts[0]?.content ?? status);
    };
    return { ids, queued, clock: processes.clock, runtime: second.runtime, outcomes };
  }

  it("they fail as interrupted, whatever they did, and a durable run that waits for one goes on", async () => {
    const agents = [
      ["narrow", "asks"],
      ["narrow", "works"],
      ["plain", ""],
      ["parent", ""],
    ] as const;
    const { clock, runtime, outcomes, queued } = await leave(agents, 0);
    // One stands in line under its owner, and is counted where it is loaded.
    expect(queued).toBe(1);
    expect((await runtime.stats()).lines).toMatchObject([{ held: 1, waiting: 1 }]);
    expect(await outcomes()).toEqual(["in-progress", "in-progress", "awaiting", "awaiting"]);
    await clock.advance(2_000);
    expect(await outcomes()).toEqual(["interrupted", "interrupted", "interrupted", "failed: interrupted"]);
    expect(await runtime.stats()).toMatchObject({ lines: [], unregistered: 0 });
  });

  it("one that waits for its first slot stays, since any process with its code begins it", async () => {
    const agents = [
      ["narrow", "works"],
      ["narrow", "waits"],
    ] as const;
    const { clock, runtime, outcomes, ids } = await leave(agents);
    await clock.advance(2_000);
    expect(await outcomes()).toEqual(["interrupted", "created"]);
    await runtime.cancel(ids[1] ?? "");
    await clock.advance(2_000);
    expect(await outcomes()).toEqual(["interrupted", "cancelled"]);
  });

  it("the sub-runs of one are cancelled, also those whose code no process has", async () => {
    const { clock, runtime, outcomes } = await leave([["over", ""]]);
    await clock.advance(5_000);
    expect(await outcomes()).toEqual(["interrupted"]);
    const below = await runtime.listRuns({ agent_name: "deep", roots: false });
    expect(below.map(({ status }) => status)).toEqual(["cancelled"]);
  });

  it("one that was given to a process as it closed is ended by the next one", async () => {
    const processes = open();
    const first = processes.start();
    registerAll(first.runtime);
    const { run_id } = await first.runtime.createRun({ agent_name: "plain", input: "", mode: "async" });
    await processes.clock.advance(300);
    first.kill();
    // The store is slow to give it the log of the run that it has taken.
    const late = deferred();
    const closes = processes.start({}, async (call, method) => {
      if (method === "read") await late.promise;
      return call();
    });
    registerSome(closes.runtime);
    await processes.clock.advance(1_500);
    const closing = closes.runtime.close({ drainMs: 1_000 });
    await processes.clock.settle();
    late.resolve();
    await processes.clock.advance(300);
    await closing;
    const web = processes.start({ work: false });
    expect((await web.store.find({ tenant: "", run_id }))?.head).toMatchObject({ status: "awaiting", takeovers: 1 });
    const last = processes.start();
    registerSome(last.runtime);
    await processes.clock.advance(500);
    expect((await last.runtime.getRun(run_id)).error?.data?.["reason"]).toBe("interrupted");
  });

  it("a cancel of one is carried out, and an answer is refused once it has ended", async () => {
    const { clock, runtime, outcomes, ids } = await leave([
      ["plain", ""],
      ["plain", ""],
    ]);
    await runtime.cancel(ids[0] ?? "");
    const answering = runtime.resume({ run_id: ids[1] ?? "", await_resume: {}, mode: "async" });
    const refused = expect(answering).rejects.toMatchObject({ code: "not_awaiting" });
    await clock.advance(2_000);
    await refused;
    expect(await outcomes()).toEqual(["cancelled", "interrupted"]);
  });
});
