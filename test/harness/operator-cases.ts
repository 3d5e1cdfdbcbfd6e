import type { AgentRuntime, RuntimeOptions } from "cadenza";
import { AgentError, AgentRuntime as Runtime } from "cadenza";
import type { AdminFailure } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import type { Store } from "cadenza/store";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { z } from "zod";
import { FakeClock } from "./clock.ts";

/** Opens a store on data that outlive it. */
export type Open = (clock: FakeClock) => Store | Promise<Store>;

async function operated(open: Open, clock: FakeClock, options: RuntimeOptions = {}) {
  const runtime = new Runtime({ store: await open(clock), clock, ...options });
  runtime.register("refund", { durable: true, version: "1" }, async (_input, context) => {
    const plan = await context.step("plan", () => "cheap");
    const { ok } = await context.ask("Refund 40 €?", { schema: z.object({ ok: z.boolean() }), timeoutMs: 60_000 });
    if (!ok) await context.step("refuse", () => Promise.reject(new AgentError("refused", "The bank refused.")));
    return `${plan} refund`;
  });
  return { runtime, admin: createAdmin(runtime) };
}

const start = (runtime: AgentRuntime, tenant: string, input = "") =>
  runtime.scope({ tenant }).createRun({ agent_name: "refund", input });

/** What an operator sees, whatever the store. `withStore` gives a test data of its own. */
export function operatorCases(withStore: (act: (open: Open) => Promise<void>) => Promise<void>): void {
  it("sees the open questions of all tenants, also after a restart", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const first = await operated(open, clock);
      const [one, other] = [await start(first.runtime, ""), await start(first.runtime, "acme")];
      const before = await first.admin.questions();
      expect(before.items).toMatchObject([
        { tenant: "acme", run_id: other.run_id, root_run_id: other.run_id, agent_name: "refund", version: "1" },
        { tenant: "", run_id: one.run_id, await_id: "ask#1", schema: { type: "object" } },
      ]);
      expect(before.items[0]?.expires_at).toBe(new Date(clock.now() + 60_000).toISOString());
      expect((await first.admin.questions({ tenant: "acme" })).items).toHaveLength(1);
      await first.runtime.close();

      const second = await operated(open, clock);
      expect(await second.admin.questions()).toEqual(before);
      await second.runtime.resume({ run_id: one.run_id, await_resume: { ok: true } });
      expect((await second.admin.questions()).items.map(({ run_id }) => run_id)).toEqual([other.run_id]);
      await second.runtime.close();
    }));

  it("sees the error that the agent threw, also after a restart, and its client does not", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const thrown: readonly unknown[] = [
        new TypeError("The account is 12345.", { cause: new Error("The row is gone.") }),
        "only a text \0",
        Object.defineProperty(new Error("hostile"), "stack", { get: () => expect.unreachable() }),
        Object.assign(new Error("x".repeat(20_000)), { stack: "y".repeat(10_000) }),
        new AgentError("refused", "The bank refused."),
      ];
      const { runtime } = await operated(open, clock);
      runtime.register("broken", { durable: true }, ([message]) => {
        throw thrown[Number(message?.parts[0]?.content)];
      });
      const causes: AdminFailure["cause"][] = [];
      for (const [index] of thrown.entries()) {
        const { run_id, error } = await runtime.createRun({ agent_name: "broken", input: `${index}` });
        const { items } = await createAdmin(runtime).failures();
        causes.push(items.find((failed) => failed.run_id === run_id)?.cause ?? null);
        if (!AgentError.is(thrown[index])) expect(error?.message).toBe("The agent failed.");
        let seen = JSON.stringify(await runtime.getRun(run_id));
        for await (const event of runtime.events(run_id, { detail: true })) seen += JSON.stringify(event);
        expect(seen).not.toContain("12345");
      }
      expect(causes[0]).toMatchObject({ name: "TypeError", message: "The account is 12345.", code: null });
      expect(causes[0]?.stack).toMatch(/^TypeError: .*\n {4}at [\s\S]*\nCaused by: Error: The row is gone\.\n {4}at /);
      expect(causes.slice(1)).toEqual([
        { name: "Error", message: "only a text \0", code: null },
        { name: "Error", message: "hostile", code: null },
        { name: "Error", message: "x".repeat(10_000), code: null, stack: "y".repeat(4_000) },
        null,
      ]);
      await runtime.close();

      const second = await operated(open, clock);
      const after = (await second.admin.failures()).items.map(({ cause }) => cause);
      expect(after.reverse()).toEqual(causes);
      await second.runtime.close();
    }));

  it("sees why a run failed, tries it again, and deletes it", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const { runtime, admin } = await operated(open, clock);
      const { run_id } = await start(runtime, "acme");
      await runtime.scope({ tenant: "acme" }).resume({ run_id, await_resume: { ok: false } });
      const { items } = await admin.failures();
      expect(items).toMatchObject([
        {
          run_id,
          key: "refuse#1",
          cause: { message: "The bank refused.", code: "refused" },
          error: { message: "The bank refused." },
        },
      ]);
      const [failed] = items;
      if (failed === undefined) throw new Error("There is no failed run.");
      const steps = await admin.steps(failed);
      expect(steps.items).toMatchObject([
        { key: "plan#1", status: "completed", result: "cheap", attempts: [{ attempt: 1, error: null }] },
        { key: "refuse#1", status: "failed", error: { code: "refused" } },
      ]);
      const { items: told, position } = await admin.timeline(failed);
      expect(told.map(({ type }) => type)).toEqual(["created", "started", "step", "question", "step", "ended"]);
      expect(told[3]).toMatchObject({ key: "ask#1", how: "answer", answer: { ok: false } });
      expect(told.at(-1)).toMatchObject({ outcome: "failed", cause: { message: "The bank refused." } });
      expect((await admin.timeline(failed, { since: position })).items).toEqual([]);
      expect((await admin.log(failed, { limit: 2 })).items.map(({ type }) => type)).toEqual(["created", "started"]);

      const fork = await admin.fork(failed, { before: "ask#1" });
      expect((await admin.questions()).items).toMatchObject([{ tenant: "acme", run_id: fork.run_id }]);
      await admin.cancel({ tenant: "acme", run_id: fork.run_id }, { wait: true });
      await admin.delete(failed);
      expect((await admin.failures()).items).toEqual([]);
      await expect(admin.log(failed)).rejects.toMatchObject({ code: "run_not_found" });
      await runtime.close();
    }));

  it("sees which code is needed, what is not registered, and who works", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const first = await operated(open, clock);
      await start(first.runtime, "acme");
      expect(await first.admin.versions()).toEqual([
        {
          agent_name: "refund",
          version: "1",
          code: "executed",
          live: { created: 0, "in-progress": 0, awaiting: 1, cancelling: 0 },
          total: 1,
        },
      ]);
      expect(await first.admin.unregistered()).toEqual([]);
      expect((await first.admin.workers()).filter(({ is_alive }) => is_alive)).toHaveLength(1);
      const other = new Runtime({ store: await open(clock), clock });
      const admin = createAdmin(other);
      expect(await admin.unregistered()).toMatchObject([{ agent_name: "refund", version: "1", waiting: 1, due: 0 }]);
      expect(await admin.versions()).toMatchObject([{ code: "unregistered", total: 1 }]);
      await first.runtime.close();
      await other.close();
    }));

  it("sees what waits for which slot, since when, and what is next", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const { runtime, admin } = await operated(open, clock);
      const session_id = "00000000-0000-4000-8000-0000000000aa";
      let end = (): void => undefined;
      const ended = new Promise<void>((resolve) => {
        end = resolve;
      });
      for (const per of ["agent", "tenant", "session"] as const) {
        const options = { durable: true, version: "1", concurrency: { max: 1, per } } as const;
        runtime.register(`by-${per}`, options, (_input, { step }) => step("work", () => ended));
      }
      const limits = [{ name: "few", key: ({ tenant }: { tenant: string }) => `of ${tenant}`, max: 1 }];
      const limited = { durable: true, version: "1", limits } as const;
      runtime.register("by-limit", limited, (_input, { step }) => step("work", () => ended));
      const made: Record<string, string[]> = {};
      for (const agent_name of ["by-agent", "by-tenant", "by-session", "by-limit"]) {
        made[agent_name] = [];
        for (let n = 0; n < 3; n++) {
          const scope = runtime.scope({ tenant: n === 1 || agent_name !== "by-agent" ? "acme" : "" });
          const { run_id } = await scope.createRun({ agent_name, input: "", session_id, mode: "async" });
          made[agent_name].push(run_id);
          await clock.advance(100);
        }
      }
      const waits = async (): Promise<number> =>
        (await admin.lines()).items.reduce((sum, { waiting }) => sum + waiting, 0);
      // In small steps: on a slow database a lease must not end meanwhile.
      while ((await waits()) < 8) await clock.advance(20);
      const { items, next } = await admin.lines();
      const shared = {
        max: 1,
        rate: null,
        next_at: null,
        held: 1,
        waiting: 2,
        since: expect.stringMatching(/^\d{4}-.*Z$/),
      };
      const nextOf = (agent: string) => ({ tenant: "acme", run_id: made[agent]?.[1], version: "1" });
      const ofAll = { tenant: null, session_id: null, ...shared };
      expect(items).toEqual([
        {
          ...{ agent_name: "by-limit", per: "limit", limit: { name: "few", key: "of acme" }, ...ofAll },
          next: nextOf("by-limit"),
        },
        { agent_name: "by-agent", per: "agent", limit: null, ...ofAll, next: nextOf("by-agent") },
        {
          ...{ agent_name: "by-session", per: "session", limit: null, tenant: "acme", session_id, ...shared },
          next: nextOf("by-session"),
        },
        {
          ...{ agent_name: "by-tenant", per: "tenant", limit: null, tenant: "acme", session_id: null, ...shared },
          next: nextOf("by-tenant"),
        },
      ]);
      expect(next).toBe(null);
      expect((await runtime.stats()).lines).toEqual(items);
      const page = await admin.lines({ limit: 3 });
      const last = await admin.lines({ limit: 3, cursor: page.next ?? undefined });
      expect([...page.items, ...last.items]).toEqual(items);
      expect(last.next).toBe(null);

      end();
      while ((await admin.lines()).items.length > 0) await clock.advance(20);
      expect((await runtime.stats()).lines).toEqual([]);
      await runtime.close();
    }));

  it("is told which of the shown runs have changed", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const { runtime, admin } = await operated(open, clock);
      const [one, other] = [await start(runtime, ""), await start(runtime, "acme")];
      const { items } = await admin.runs();
      expect(await admin.changes(items)).toEqual([]);
      await runtime.resume({ run_id: one.run_id, await_resume: { ok: true } });
      expect(await admin.changes(items)).toMatchObject([{ tenant: "", run_id: one.run_id }]);
      const again = await admin.runs({ among: items, status: "awaiting" });
      expect(again.items.map(({ run_id }) => run_id)).toEqual([other.run_id]);
      expect((await admin.runs({ among: items, tenant: "" })).items).toMatchObject([{ status: "completed" }]);
      const asked = await admin.questions({ among: [one, { tenant: "acme", run_id: one.run_id }, items[0] ?? one] });
      expect(asked).toMatchObject({ items: [{ tenant: "acme", run_id: other.run_id }], next: null });
      expect((await admin.tree({ tenant: "acme", run_id: other.run_id })).children).toEqual([]);
      await runtime.close();
    }));

  it("gets every run once, whatever the size of the pages, while runs are added", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const { runtime, admin } = await operated(open, clock);
      const there = await Promise.all(["", "acme", "other", "", "acme"].map((tenant) => start(runtime, tenant)));
      const ids = new Set(there.map(({ run_id }) => run_id));
      const sizes = fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 4 });
      await fc.assert(
        fc.asyncProperty(sizes, async (limits) => {
          const seen: string[] = [];
          let cursor: string | undefined;
          for (let page = 0; page === 0 || cursor !== undefined; page++) {
            const { items, next } = await admin.runs({ limit: limits[page % limits.length], cursor });
            seen.push(...items.map(({ run_id }) => run_id));
            cursor = next ?? undefined;
            if (page < 2) await start(runtime, "acme");
          }
          expect(new Set(seen).size).toBe(seen.length);
          expect(seen.filter((id) => ids.has(id)).length).toBe(ids.size);
        }),
        { numRuns: 5 },
      );
      await runtime.close();
    }));

  it("finds questions and causes in long logs, and lists a question of a sub-run once", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const { runtime, admin } = await operated(open, clock);
      runtime.register("talker", { durable: true }, async function* (_input, context) {
        const bad = context.step("bad", () => Promise.reject(new Error("early")));
        const failed = await bad.catch((error: unknown) => error);
        for (let n = 0; n < 150; n++) yield { n };
        await context.ask("First?");
        await context.ask("Second?");
        throw failed;
      });
      const { run_id } = await runtime.createRun({ agent_name: "talker", input: "" });
      expect((await admin.questions()).items.map(({ await_id }) => await_id)).toEqual(["ask#1"]);
      expect((await admin.questions()).items.map(({ await_id }) => await_id)).toEqual(["ask#1"]);
      await runtime.resume({ run_id, await_resume: { ok: true } });
      expect((await admin.questions()).items.map(({ await_id }) => await_id)).toEqual(["ask#2"]);
      await runtime.resume({ run_id, await_resume: { ok: true } });
      expect((await admin.failures()).items).toMatchObject([{ key: "bad#1", cause: { message: "early" } }]);
      runtime.register("boss", { durable: true }, async (_input, context) => void (await context.run("refund", "")));
      const boss = await runtime.createRun({ agent_name: "boss", input: "" });
      expect((await admin.questions()).items).toMatchObject([{ agent_name: "refund", root_run_id: boss.run_id }]);
      await runtime.close();
    }));

  it("reads timelines, logs, steps, trees and blocked runs page by page", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const first = await operated(open, clock);
      first.runtime.register("worker", { durable: true }, () => "done");
      first.runtime.register("boss", { durable: true }, async (_input, context) => {
        for (let n = 0; n < 105; n++) await context.run("worker", `${n}`);
        await context.step("last", () => 1);
      });
      const boss = await first.runtime.createRun({ agent_name: "boss", input: "" });
      const { children } = await first.admin.tree(boss.run_id);
      const { items } = await first.admin.timeline(boss.run_id, { limit: 500 });
      const subRuns = items.flatMap((item) => (item.type === "sub_run" ? [item.run_id] : []));
      expect(subRuns).toHaveLength(105);
      expect(children.map(({ run_id }) => run_id)).toEqual(subRuns);
      const one = await first.admin.timeline(boss.run_id, { limit: 100 });
      const other = await first.admin.timeline(boss.run_id, { limit: 100, cursor: one.next ?? undefined });
      expect([...one.items, ...other.items]).toEqual(items);
      expect(other.next).toBe(null);
      const log = await first.admin.log(boss.run_id, { limit: 100, cursor: undefined });
      const rest = await first.admin.log(boss.run_id, { limit: 500, cursor: log.next ?? undefined });
      expect([...log.items, ...rest.items].map(({ position }) => position)).toEqual([
        ...new Array(one.position).keys(),
      ]);
      expect((await first.admin.steps(boss.run_id)).items.map(({ key }) => key)).toEqual(["last#1"]);
      expect((await first.admin.versions()).map(({ agent_name, total }) => [agent_name, total])).toContainEqual([
        "worker",
        0,
      ]);

      for (let n = 0; n < 3; n++) await start(first.runtime, "acme");
      await first.runtime.close();
      const second = new Runtime({ store: await open(clock), clock });
      second.register("refund", { durable: true, version: "1" }, () => "another agent");
      const admin = createAdmin(second);
      // How much of the clock's time passes meanwhile depends on how fast the database answers.
      while ((await admin.blocked()).items.length < 3) await clock.advance(500);
      const page = await admin.blocked({ limit: 2 });
      const last = await admin.blocked({ limit: 2, cursor: page.next ?? undefined });
      expect([...page.items, ...last.items].map(({ run_id }) => run_id)).toEqual(
        (await admin.blocked()).items.map(({ run_id }) => run_id),
      );
      expect(page.items).toHaveLength(2);
      expect(page.items[0]?.needs).toMatch(
        /^Code of agent "refund", version "1" that matches the log at position \d+: it holds .*, the code did /,
      );
      await second.close();
    }));
}
