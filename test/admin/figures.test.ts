import { AgentError, defineAgent, MemoryStore, AgentRuntime as Runtime } from "cadenza";
import type { Admin } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import type { RunHead, Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { asked, created, RUN_ID, resumed } from "../harness/logs.ts";
import { operatorStores } from "../harness/operator-stores.ts";
import { withMembers } from "../harness/port-proxy.ts";

const MINUTE = 60_000;

type AdminFigures = Awaited<ReturnType<Admin["figures"]>>;

function agentsOf(clock: FakeClock) {
  const after = <T>(ms: number, value: T): Promise<T> =>
    new Promise((resolve) => {
      clock.setTimeout(() => resolve(value), ms);
    });
  const call = (id: string, inputTokens: number, outputTokens: number) => ({
    model: { provider: "a provider", id },
    prompt: [],
    answer: { content: [], usage: { inputTokens, outputTokens } },
  });
  const child = defineAgent("child", { durable: true }, async (_input, { step, usage }) => {
    await step("model", () => call("small", 70, 30));
    usage.add({ input_tokens: 70, output_tokens: 30 });
    return "Short.";
  });
  const desk = defineAgent("desk", { durable: true, version: "2" }, async (input, { ask, run, step, usage }) => {
    await step("look", () => after(2_000, "found"));
    await run("child", "");
    await step("model", () => call("large", 800, 200));
    usage.add({ input_tokens: 805, output_tokens: 215 });
    await ask("Refund 40 €?");
    if (input[0]?.parts[0]?.content === "fail") throw new AgentError("refused", "The bank refused.");
    return "Refunded.";
  });
  return [child, desk];
}

function total(figures: AdminFigures, of: AdminFigures["all"]["of"]) {
  return figures.groups.find((group) => JSON.stringify(group.of) === JSON.stringify(of))?.total;
}

describe.each(operatorStores)("%s, figures over time", (_name, withStore) => {
  it("count what a run reports before a sub-run for itself, and what the sub-run reports for that", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const child = defineAgent("child", { durable: true }, (_input, { usage }) => {
        usage.add({ input_tokens: 7, output_tokens: 3 });
        return "Short.";
      });
      const parent = defineAgent("parent", { durable: true }, async (_input, { run, usage }) => {
        usage.add({ input_tokens: 70, output_tokens: 30 });
        await run("child", "");
        usage.add({ input_tokens: 1, output_tokens: 1 });
        return "Done.";
      });
      const runtime = new Runtime({ store: await open(clock), clock, agents: [child, parent] });
      const { run_id } = await runtime.createRun({ agent_name: "parent", input: "", mode: "async" });
      await clock.advance(5_000);
      expect((await runtime.details(run_id)).usage).toMatchObject({ total_tokens: 112 });
      const figures = await createAdmin(runtime).figures({ over: "hour", by: "version" });
      expect(total(figures, { agent_name: "parent", version: null })).toMatchObject({ total_tokens: 102 });
      expect(total(figures, { agent_name: "child", version: null })).toMatchObject({ total_tokens: 10 });
      await runtime.close();
    }));

  it("count what runs of all tenants did, and are the same for a process that comes later", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const runtime = new Runtime({ store: await open(clock), clock, agents: agentsOf(clock) });
      const admin = createAdmin(runtime);
      const create = async (tenant: string, input = ""): Promise<string> => {
        const run = await runtime.scope({ tenant }).createRun({ agent_name: "desk", input, mode: "async" });
        await clock.advance(5_000);
        return run.run_id;
      };
      const answer = (tenant: string, run_id: string) =>
        runtime.scope({ tenant }).resume({ run_id, await_resume: { ok: true } });

      clock.set(Math.ceil(clock.now() / 86_400_000) * 86_400_000 + 12 * 60 * MINUTE);
      const refunded = await create("acme");
      const failing = await create("acme", "fail");
      await clock.advance(10 * MINUTE);
      await answer("acme", refunded);
      await clock.advance(20 * MINUTE);
      expect((await admin.figures({ over: "hour" })).all.total).toMatchObject({ completed: 3, waiting: 1 });
      await answer("acme", failing);
      await create("globex");

      const figures = await admin.figures({ over: "hour" });
      expect(figures).toMatchObject({ runs: 6, complete: true, step_ms: MINUTE });
      expect(figures.all.total).toEqual({
        ...{ started: 6, completed: 4, failed: 1, cancelled: 0, waiting: 1 },
        ...{ calls: 6, input_tokens: 2_625, output_tokens: 735, total_tokens: 3_360 },
        ...{ active_p50_ms: 0, active_p99_ms: 2_000 },
        ...{ waited_p50_ms: 10 * MINUTE + 8_000, waited_p99_ms: 30 * MINUTE + 3_000 },
      });
      const open_now = figures.all.steps.map(({ waiting }) => waiting).slice(-32);
      expect([open_now[0], open_now[1], open_now[10], open_now[29], open_now.at(-1)]).toEqual([0, 2, 2, 1, 1]);
      expect(figures.groups.map(({ of, total: { total_tokens } }) => [of, total_tokens])).toEqual([
        [{ agent_name: "desk" }, 3_060],
        [{ agent_name: "child" }, 300],
      ]);

      const versions = await admin.figures({ by: "version", tenant: "acme" });
      expect(total(versions, { agent_name: "desk", version: "2" })).toMatchObject({ completed: 1, failed: 1 });
      expect(total(versions, { agent_name: "child", version: null })).toMatchObject({ completed: 2 });
      const tenants = await admin.figures({ over: "month", by: "tenant", agent_name: "desk" });
      expect(tenants.groups.map(({ of }) => of?.tenant)).toEqual(["acme", "globex"]);
      const models = await admin.figures({ by: "model" });
      expect(models.groups.map(({ of, total: { calls, total_tokens } }) => [of?.model, calls, total_tokens])).toEqual([
        ["large", 3, 3_000],
        ["small", 3, 300],
        [null, 0, 60],
      ]);

      // A process that comes later has seen nothing of it.
      const later = new Runtime({ store: await open(clock), clock });
      for (const query of [{ over: "hour" }, { by: "version", tenant: "acme" }, { by: "model" }] as const)
        expect(await createAdmin(later).figures(query)).toEqual(await admin.figures(query));
      await later.close({ drainMs: 0 });
      await runtime.close({ drainMs: 0 });
    }));

  it("count a question once, for the run that asks it", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const runtime = new Runtime({ store: await open(clock), clock, agents: agentsOf(clock) });
      runtime.register("lead", { durable: true }, (_input, { run }) => run("desk", ""));
      await runtime.createRun({ agent_name: "lead", input: "", mode: "async" });
      await clock.advance(MINUTE);
      const { all, groups } = await createAdmin(runtime).figures({ over: "hour" });
      expect([all, ...groups].map(({ of, total: { waiting } }) => [of?.agent_name, waiting])).toEqual([
        ...[
          [undefined, 1],
          ["desk", 1],
        ],
        ...[
          ["child", 0],
          ["lead", 0],
        ],
      ]);
      await runtime.close({ drainMs: 0 });
    }));

  it("do not count runs that were deleted, after a minute at the latest", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const runtime = new Runtime({ store: await open(clock), clock, agents: agentsOf(clock) });
      const made: string[] = [];
      for (let n = 0; n < 3; n++) made.push((await runtime.createRun({ agent_name: "child", input: "" })).run_id);
      const admin = createAdmin(runtime);
      expect((await admin.figures()).all.total.completed).toBe(3);
      await runtime.delete(made[0] ?? "");
      await clock.advance(MINUTE);
      expect((await admin.figures()).all.total).toMatchObject({ completed: 2, total_tokens: 200 });
      await runtime.close({ drainMs: 0 });
    }));

  it("count a fork from the fork on, and of runs before the time those that are live", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const runtime = new Runtime({ store: await open(clock), clock, agents: agentsOf(clock) });
      // Nothing is due in this time.
      const pass = (ms: number): Promise<void> => {
        clock.set(ms - MINUTE);
        return clock.advance(MINUTE);
      };
      await runtime.createRun({ agent_name: "desk", input: "", mode: "async" });
      await clock.advance(MINUTE);
      await pass(299 * MINUTE);
      const { run_id } = await runtime.createRun({ agent_name: "desk", input: "", mode: "async" });
      await clock.advance(MINUTE);
      await runtime.resume({ run_id, await_resume: { ok: true } });
      await pass(90 * MINUTE);
      const admin = createAdmin(runtime);
      expect((await admin.figures({ over: "hour" })).all.total).toMatchObject({ started: 0, completed: 0, waiting: 1 });
      await runtime.fork(run_id, { before: "ask#1", mode: "async" });
      await clock.advance(MINUTE);
      const { all, groups } = await admin.figures({ over: "hour" });
      // What the agent reported behind the recorded call, it reports again.
      expect(all.total).toMatchObject({ started: 1, waiting: 2, calls: 0, total_tokens: 1_020, waited_p50_ms: null });
      expect(groups).toHaveLength(1);
      expect((await admin.figures()).all.total).toMatchObject({
        started: 5,
        completed: 3,
        total_tokens: 3_260,
        calls: 4,
      });
      await runtime.close({ drainMs: 0 });
    }));
});

it("figures count more questions than a call can have arguments", async () => {
  const clock = new FakeClock();
  const at = clock.now();
  const first = created({ at });
  const asks = Array.from({ length: 130_000 }, (_, n) => [asked(`ask#${n}`, at), resumed(`ask#${n}`, at + 5)]);
  const log = [first, ...asks.flat()];
  const head: RunHead = {
    ...{ status: "in-progress", epoch: 1, owner: "another", due_at: null, blocked: null },
    ...{ holds_slot: false, finished_at: null, takeovers: 0 },
  };
  const run = { key: { tenant: "", run_id: RUN_ID }, created: first, head, position: log.length };
  const store = withMembers<Store>(new MemoryStore({ clock }), {
    survey: () => ({ runs: [run], next: null }),
    read: (_key, from, most) => log.slice(from, from + most),
  });
  const runtime = new Runtime({ store, clock });
  expect((await createAdmin(runtime).figures()).all.total).toMatchObject({ waiting: 0, waited_p99_ms: 5 });
  await runtime.close();
});

it("figures tell runs of two tenants apart that have the same id", async () => {
  const clock = new FakeClock();
  const runtime = new Runtime({ clock, ids: { uuid: () => RUN_ID, token: () => "token" } });
  runtime.register("spends", (input, { usage }) => {
    usage.add({ input_tokens: Number(input[0]?.parts[0]?.content), output_tokens: 0 });
    return "Spent.";
  });
  const admin = createAdmin(runtime);
  for (const [tenant, input] of [
    ["red", "10"],
    ["blue", "1000"],
  ] as const)
    await runtime.scope({ tenant }).createRun({ agent_name: "spends", input });
  expect((await admin.figures()).all.total).toMatchObject({ started: 2, completed: 2, total_tokens: 1_010 });
  await runtime.close();
});

it.each<[string, object, string]>([
  ["an unknown time", { over: "year" }, "hour"],
  ["an unknown group", { by: "label" }, "tenant"],
  ["an unknown condition", { status: "failed" }, "there is no option"],
  ["a version that is none", { version: 2 }, "a string or null"],
])("figures refuse %s", async (_what, query, message) => {
  const runtime = new Runtime();
  await expect(createAdmin(runtime).figures(query)).rejects.toThrow(message);
  await runtime.close();
});
