import type { AuditRecord, Clock, DurableContext, Run } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { SqliteStore } from "cadenza/sqlite";
import type { Entry, Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { refusal, textsOf } from "../harness/runtimes.ts";
import { openDatabase, withFile } from "../harness/sqlite-files.ts";
import { persistent } from "../harness/store-proxy.ts";

/* `moveToVersion`: open runs of one version of an agent go on with the code of another one. */

type Code = (context: DurableContext) => unknown;

const before: Code = async ({ step, ask }) => {
  const done = await step("reserve", () => "by 1");
  await ask("Ship it?");
  return step("ship", () => `${done}, shipped by 1`);
};
const after: Code = async ({ step, ask }) => {
  const done = await step("reserve", () => "by 2");
  await ask("Ship it?");
  return step("ship", () => `${done}, shipped by 2`);
};

function register(runtime: AgentRuntime<string>, version: string, code: Code, current = true): void {
  runtime.register("order", { durable: true, version, current }, async (_input, context) => `${await code(context)}`);
}

/** Opens a store on data that outlive it. */
type Open = (clock?: Clock) => Store;

const stores: Readonly<Record<string, (act: (open: Open) => Promise<void>) => Promise<void>>> = {
  memory: async (act) => {
    let store: Store | undefined;
    await act((clock) => {
      store ??= durable(persistent(new MemoryStore({ clock })));
      return store;
    });
  },
  SQLite: (act) =>
    withFile((file) => act((clock) => new SqliteStore(openDatabase(file), { clock, closeDatabase: true }))),
};

describe.each(Object.entries(stores))("on %s, a move to another version", (_name, on) => {
  it("takes along the runs whose histories match, and names the others", () =>
    on(async (open) => {
      const runtime: AgentRuntime<string> = new AgentRuntime({ store: open() });
      register(runtime, "1", before);
      const runs: Run[] = [];
      for (let run = 0; run < 3; run++) runs.push(await runtime.createRun({ agent_name: "order", input: "" }));
      runtime.register("other", { durable: true }, (_input, { ask }) => ask("Other?"));
      await runtime.createRun({ agent_name: "other", input: "" });
      const [first, second] = runs;
      register(runtime, "2", after, false);
      register(runtime, "3", ({ step }) => step("reserve", () => "no question"), false);
      const admin = createAdmin(runtime, { principal: "ann" });

      const refused = await admin.act(await admin.moveToVersion({ agent_name: "order" }, "3"), { wait: true });
      expect(refused).toMatchObject({
        act: "move",
        version: "3",
        status: "completed",
        matched: 3,
        done: 0,
        refused: 3,
      });
      expect(refused.errors.map(({ code }) => code)).toEqual(["run_blocked", "run_blocked", "run_blocked"]);
      expect(refused.errors[0]?.message).toContain("at position 4 (history: ask#1; code: the agent returned)");

      const moved = await admin.act(await admin.moveToVersion({ agent_name: "order" }, "2"), { wait: true });
      expect(moved).toMatchObject({ matched: 3, done: 3, left: 0, refused: 0, errors: [] });
      const again = await admin.act(await admin.moveToVersion({ agent_name: "order" }, "2"), { wait: true });
      expect(again).toMatchObject({ matched: 3, done: 0, left: 3 });

      const ended = await runtime.resume({ run_id: first?.run_id ?? "", await_resume: { ok: true } });
      expect(textsOf(ended)).toEqual(["by 1, shipped by 2"]);
      const { version } = await runtime.details(second?.run_id ?? "");
      expect(version).toBe("2");
      const log = (await admin.log({ tenant: "", run_id: second?.run_id ?? "" })).items as readonly Entry[];
      expect(log.at(-1)).toMatchObject({ type: "moved", version: "2", by: "ann" });
      expect(log[0]).toMatchObject({ type: "created", version: "1" });
      expect((await runtime.stats()).blocked).toEqual([]);
      await runtime.close();
    }));

  it("unblocks runs that other code has blocked, and a process that has the new version alone goes on with them", () =>
    on(async (open) => {
      const first: AgentRuntime<string> = new AgentRuntime({ store: open() });
      register(first, "1", before);
      const { run_id } = await first.createRun({ agent_name: "order", input: "" });
      await first.close();
      const second: AgentRuntime<string> = new AgentRuntime({ store: open() });
      register(second, "1", () => "other code");
      const error = await refusal(second.resume({ run_id, await_resume: { ok: true } }));
      expect(error.code).toBe("run_blocked");
      await second.close();
      const third: AgentRuntime<string> = new AgentRuntime({ store: open() });
      register(third, "2", after);
      const admin = createAdmin(third);
      const { done } = await admin.act(await admin.moveToVersion({ agent_name: "order" }, "2"), { wait: true });
      expect(done).toBe(1);
      expect((await third.stats()).blocked).toEqual([]);
      const run = await third.resume({ run_id, await_resume: { ok: true } });
      expect(textsOf(run)).toEqual(["by 1, shipped by 2"]);
      await third.close();
    }));

  it("keeps the version in later generations, in forks, and after a restart", () =>
    on(async (open) => {
      const code =
        (version: string): Code =>
        async ({ ask, continueAsNew, carry = 1 }) => {
          await ask(`Go on ${carry}?`);
          return Number(carry) < 2 ? continueAsNew(2) : version;
        };
      const runtime: AgentRuntime<string> = new AgentRuntime({ store: open() });
      const add = (version: string): void => {
        runtime.register(
          "endless",
          { durable: true, version },
          async (_input, context) => (await code(version)(context)) as string,
        );
      };
      add("1");
      const { run_id } = await runtime.createRun({ agent_name: "endless", input: "" });
      add("2");
      const admin = createAdmin(runtime);
      await admin.act(await admin.moveToVersion({ agent_name: "endless", version: "1" }, "2"), { wait: true });
      const next = await runtime.resume({ run_id, await_resume: { ok: true } });
      expect(next.status).toBe("awaiting");
      const log = (await admin.log({ tenant: "", run_id })).items as readonly Entry[];
      expect(log.find(({ type }) => type === "continued")).toMatchObject({ version: "2" });
      const fork = await runtime.fork(run_id);
      expect((await runtime.details(fork.run_id)).version).toBe("2");
      expect(textsOf(await runtime.resume({ run_id, await_resume: { ok: true } }))).toEqual(["2"]);
      await runtime.close();
    }));

  it("asks a process that is at work to give a run back between two steps", () =>
    on(async (open) => {
      const runtime: AgentRuntime<string> = new AgentRuntime({ store: open() });
      let steps = 0;
      const long =
        (version: string): Code =>
        async ({ step }) => {
          for (let number = 0; number < 1_000_000 && version === "1"; number++)
            await step("work", async () => {
              steps += 1;
              await new Promise((resolve) => setTimeout(resolve, 20));
            });
          for (let number = 0; number < 1_000 && version === "2"; number++) {
            const by = await step("work", () => version);
            if (by === version) return `ended by ${by}`;
          }
          return "ended";
        };
      register(runtime, "1", long("1"));
      const { run_id } = await runtime.createRun({ agent_name: "order", input: "", mode: "async" });
      register(runtime, "2", long("2"), false);
      const admin = createAdmin(runtime);
      // As another move at the same time makes it.
      const others = { agent_name: "other", by: "cadenza:move:another" };
      await admin.pause(others, { now: true });
      while (steps < 3) await new Promise((resolve) => setTimeout(resolve, 5));
      const { done, refused } = await admin.act(await admin.moveToVersion({ agent_name: "order" }, "2"), {
        wait: true,
      });
      expect([done, refused]).toEqual([1, 0]);
      const seen = steps;
      for await (const _ of runtime.events(run_id, { until: "end" }));
      expect(textsOf(await runtime.getRun(run_id))).toEqual(["ended by 2"]);
      expect(steps).toBe(seen);
      expect(await admin.pauses()).toMatchObject([others]);
      await runtime.close();
    }));

  it.each(["an operator", "the move"])("pauses again what it waits for, where the pause of %s is ended", (whose) =>
    on(async (open) => {
      const clock = new FakeClock();
      const runtime: AgentRuntime<string> = new AgentRuntime({ store: open(clock), clock });
      const steps: ((result: string) => void)[] = [];
      register(runtime, "1", async ({ step }) => {
        for (;;) await step("work", () => new Promise<string>((resolve) => steps.push(resolve)));
      });
      register(
        runtime,
        "2",
        async ({ step }) => `${await step("work", () => "2")} and ${await step("work", () => "2")}`,
        false,
      );
      const until = async (holds: () => Promise<boolean> | boolean, ms = 60_000): Promise<void> => {
        for (let waited = 0; !(await holds()) && waited < ms; waited += 50) await clock.advance(50);
      };
      const { run_id } = await runtime.createRun({ agent_name: "order", input: "", mode: "async" });
      await until(() => steps.length > 0);
      const admin = createAdmin(runtime);
      // The first move of a process loads its code, which takes real time.
      const other = (version: string): unknown =>
        runtime.register("other", { durable: true, version }, (_input, { ask }) => ask("?"));
      other("1");
      await runtime.createRun({ agent_name: "other", input: "" });
      other("2");
      const first = await admin.moveToVersion({ agent_name: "other" }, "2");
      while ((await admin.act(first)).finished_at === null) await clock.advance(1);
      const runs = { agent_name: "order", version: "1" };
      const isByMove = async (): Promise<boolean> =>
        (await admin.pauses()).some(({ by }) => `${by}`.startsWith("cadenza:move:"));

      if (whose === "an operator") await admin.pause(runs, { now: true });
      const act = await admin.moveToVersion({ agent_name: "order" }, "2");
      if (whose === "the move") await until(isByMove);
      else await clock.advance(5_000);
      expect(await admin.pauses()).toMatchObject([runs]);
      await admin.resume(runs);
      await until(isByMove, 1_000);
      expect(await admin.pauses()).toMatchObject([runs]);
      steps[0]?.("1");

      await until(async () => (await admin.act(act)).finished_at !== null);
      expect(await admin.act(act)).toMatchObject({ status: "completed", done: 1, refused: 0 });
      await until(async () => (await runtime.getRun(run_id)).status === "completed");
      expect(textsOf(await runtime.getRun(run_id))).toEqual(["1 and 2"]);
      expect(steps).toHaveLength(1);
      expect(await admin.pauses()).toEqual([]);
      await runtime.close();
    }),
  );
});

describe("a move", () => {
  it("is refused for a query without a condition, a bad version, and a store that cannot move", async () => {
    const admin = createAdmin(new AgentRuntime({ store: durable(persistent(new MemoryStore())) }));
    await expect(admin.moveToVersion({}, "2")).rejects.toThrow("at least one condition");
    await expect(admin.moveToVersion({ agent_name: "a" }, 2 as never)).rejects.toThrow("version");
    const inMemory = createAdmin(new AgentRuntime({ store: durable(new MemoryStore()) }));
    await expect(inMemory.moveToVersion({ agent_name: "a" }, "2")).rejects.toThrow("ends with its process");
    await expect(admin.moveToVersion({ agent_name: "a", status: "failed" }, "2")).rejects.toThrow(
      "on which a move can act",
    );
  });

  it("is in the trail, with who has asked for it", async () => {
    const audit: AuditRecord[] = [];
    const store = durable(persistent(new MemoryStore()));
    const runtime: AgentRuntime<string> = new AgentRuntime({ store, onAudit: (record) => audit.push(record) });
    register(runtime, "1", before);
    const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
    register(runtime, "2", after, false);
    const admin = createAdmin(runtime, { principal: "ann" });
    await admin.act(await admin.moveToVersion({ agent_name: "order" }, "2"), { wait: true });
    const told = { action: "move", outcome: "done", by: "ann", tenant: "", run_id, agent_name: "order", version: "2" };
    expect(audit.filter(({ action }) => action === "move")).toEqual([{ ...told, at: expect.any(String) }]);
    await runtime.close();
  });

  it("names runs whose agent has no such version here, and runs that are not durable", async () => {
    const runtime: AgentRuntime<string> = new AgentRuntime({ store: durable(persistent(new MemoryStore())) });
    register(runtime, "1", before);
    runtime.register("plain", { version: "1" }, (_input, { ask }) => ask("Plain?"));
    await runtime.createRun({ agent_name: "order", input: "" });
    await runtime.createRun({ agent_name: "plain", input: "" });
    const admin = createAdmin(runtime);
    const { errors } = await admin.act(await admin.moveToVersion({ version: "1" }, "9"), { wait: true });
    expect(errors.map(({ code }) => code).toSorted()).toEqual(["agent_not_found", "invalid_argument"]);
  });
});
