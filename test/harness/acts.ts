import type { AuditRecord, RuntimeOptions } from "cadenza";
import { AgentRuntime as Runtime } from "cadenza";
import type { AdminAct } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { FakeClock } from "./clock.ts";
import type { Open } from "./operator-cases.ts";
import { deferred, never } from "./promises.ts";
import type { Hook } from "./store-proxy.ts";
import { hookedStore } from "./store-proxy.ts";

/** A process with an operator. `audit` has what `onAudit` was told. */
export interface OperatedProcess {
  readonly runtime: Runtime;
  readonly admin: ReturnType<typeof createAdmin>;
  readonly audit: readonly AuditRecord[];
  /** As by `kill -9`: its store answers nothing any more. */
  kill(): void;
  /** Gives back what the store of a process that was killed still has. */
  bury(): Promise<void>;
}

/** How long the lease of a dead process lasts, and a while. */
const LEASE_MS = 11_000;
/** After so much time an act has ended, or never will. */
const LONG_MS = 600_000;
const operator = { id: "olga" };

interface ProcessOptions extends RuntimeOptions {
  readonly hook?: Hook;
  /** Default: one that is down. */
  readonly bank?: Bank;
}

/** What the agent `fails` needs. */
interface Bank {
  isUp: boolean;
  /** How often the account was looked up. */
  looks: number;
}

const down: Bank = Object.freeze({ isUp: false, looks: 0 });

/**
 * A process of the store. Its agent `asks` asks a question, and `fails` fails in its step `pay` while the bank is down.
 * `hook` gets each call of its store.
 */
export async function startProcess(
  open: Open,
  clock: FakeClock,
  { hook = (call) => call(), bank = { ...down }, ...options }: ProcessOptions = {},
): Promise<OperatedProcess> {
  let isDead = false;
  const opened = await open(clock);
  const lives: Hook = (call, method, parameters) => (isDead ? never() : hook(call, method, parameters));
  const audit: AuditRecord[] = [];
  const onAudit = (record: AuditRecord) => audit.push(record);
  const runtime = new Runtime({ store: durable(hookedStore(lives, opened)), clock, onAudit, ...options });
  runtime.register("asks", { durable: true }, (_input, { ask }) => ask("Well?"));
  runtime.register("fails", { durable: true }, async (_input, { step }) => {
    await step("look up", () => {
      bank.looks += 1;
    });
    return step("pay", () => (bank.isUp ? "Paid." : Promise.reject(new Error("The bank is down."))));
  });
  const kill = (): void => {
    isDead = true;
  };
  return {
    runtime,
    admin: createAdmin(runtime, { principal: operator }),
    audit,
    kill,
    bury: async () => opened.close(),
  };
}

/** Waits for the end of an act, while time passes: its pauses are those of the clock. */
export async function endOf(
  { admin }: Pick<OperatedProcess, "admin">,
  act: Pick<AdminAct, "run_id">,
  clock: FakeClock,
): Promise<AdminAct> {
  const until = clock.now() + LONG_MS;
  for (;;) {
    const now = await admin.act(act);
    if (now.finished_at !== null) return now;
    if (clock.now() > until) throw new Error(`The act does not end: ${JSON.stringify(now)}`);
    // In small steps: on a slow database a lease must not end meanwhile.
    await clock.advance(20);
  }
}

/** Lets a process work until it dies. Another one asks meanwhile, so that a slow database has time and a lease does not end. */
async function untilDead(open: Open, clock: FakeClock, act: Pick<AdminAct, "run_id">, isDead: () => boolean) {
  const store = await open(clock);
  const admin = createAdmin({ store });
  while (!isDead()) {
    const now = await admin.act(act);
    if (now.finished_at !== null) throw new Error(`The act ends before its process does: ${JSON.stringify(now)}`);
    await clock.advance(1);
  }
  await store.close();
}

async function create({ runtime }: OperatedProcess, tenant: string, agent_name: string, count: number) {
  const scope = runtime.scope({ tenant });
  const made: string[] = [];
  while (made.length < count) {
    const some = new Array<object>(Math.min(20, count - made.length)).fill({});
    const runs = await Promise.all(some.map(() => scope.createRun({ agent_name, input: "" })));
    made.push(...runs.map(({ run_id }) => run_id));
  }
  return made;
}

const statusesOf = async ({ runtime }: OperatedProcess, tenant: string, agent_name: string) =>
  (await runtime.scope({ tenant }).listRuns({ agent_name, limit: 1_000 })).map(({ status }) => status);

/** Lets time pass until all runs of the store have ended. */
async function untilEnded({ admin }: OperatedProcess, clock: FakeClock): Promise<void> {
  const status = ["created", "in-progress", "awaiting", "cancelling"] as const;
  while ((await admin.runs({ status, limit: 1 })).items.length > 0) await clock.advance(20);
}

/**
 * What an operator does to many runs, whatever the store. `withStore` gives a test data of its own. `many`: of how many
 * runs an act is interrupted, and `dies`: at which cancel. A page has 200 runs.
 */
export function actCases(
  withStore: (act: (open: Open) => Promise<void>) => Promise<void>,
  { many, dies }: { readonly many: number; readonly dies: number } = { many: 220, dies: 210 },
): void {
  it("cancels the runs of a tenant that wait, and no other ones", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const process = await startProcess(open, clock);
      const { admin, runtime, audit } = process;
      const ids = await create(process, "acme", "asks", 5);
      await create(process, "other", "asks", 2);
      await create(process, "acme", "fails", 1);
      const begun = await admin.cancelMany({ tenant: "acme", status: "awaiting" });
      expect(begun).toMatchObject({
        ...{ act: "cancel", by: operator, query: { tenant: "acme", status: ["awaiting"] } },
        ...{ error: null, finished_at: null },
      });
      const ended = await endOf(process, begun, clock);
      expect(ended).toMatchObject({ status: "completed", matched: 5, done: 5, left: 0, refused: 0, errors: [] });
      expect(await statusesOf(process, "acme", "asks")).toEqual(new Array(5).fill("cancelled"));
      expect(await statusesOf(process, "acme", "fails")).toEqual(["failed"]);
      expect(await statusesOf(process, "other", "asks")).toEqual(["awaiting", "awaiting"]);
      const cancels = audit.filter(({ action }) => action === "cancel");
      expect(cancels.map((record) => "run_id" in record && record.run_id).toSorted()).toEqual(ids.toSorted());
      for (const record of cancels) expect(record).toMatchObject({ outcome: "done", by: operator, tenant: "acme" });

      const again = await endOf(process, await admin.cancelMany({ tenant: "acme" }), clock);
      expect(again).toMatchObject({ status: "completed", matched: 0, done: 0, left: 0, refused: 0 });
      await runtime.close();
    }));

  it("goes on in another process when its process is killed", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      let cancels = 0;
      // The operator knows the act before the process dies.
      const isTold = deferred();
      const first = await startProcess(open, clock, {
        hook: async (call, method, parameters) => {
          const entries = JSON.stringify(parameters);
          if ((method === "append" || method === "post") && entries.includes('"cancel-requested"')) {
            await isTold.promise;
            cancels += 1;
            if (cancels === dies) first.kill();
          }
          return cancels >= dies ? never() : call();
        },
      });
      await create(first, "acme", "asks", many);
      const begun = await first.admin.cancelMany({ agent_name: "asks" });
      isTold.resolve();
      await untilDead(open, clock, begun, () => cancels >= dies);

      await clock.advance(LEASE_MS);
      const second = await startProcess(open, clock);
      const ended = await endOf(second, begun, clock);
      expect(ended).toMatchObject({ status: "completed", matched: many, done: many, left: 0, refused: 0 });
      await clock.advance(2_000);
      const { items } = await second.admin.runs({ agent_name: "asks", limit: 500 });
      for (const { status } of items) expect(["cancelling", "cancelled"]).toContain(status);
      expect(items).toHaveLength(many);
      await first.bury();
      await second.runtime.close();
    }));

  it("moves runs to another version, also when its process is killed", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      let moves = 0;
      const withVersions = ({ runtime }: OperatedProcess): void => {
        for (const version of ["1", "2"])
          runtime.register("moves", { durable: true, version, current: version === "1" }, async (_input, { ask }) => {
            await ask("Go on?");
            return `by ${version}`;
          });
      };
      const isTold = deferred();
      const first = await startProcess(open, clock, {
        hook: async (call, method) => {
          if (method === "changeVersion") {
            await isTold.promise;
            moves += 1;
            if (moves === dies) first.kill();
          }
          return moves >= dies ? never() : call();
        },
      });
      withVersions(first);
      await create(first, "acme", "moves", many);
      const begun = await first.admin.moveToVersion({ agent_name: "moves" }, "2");
      isTold.resolve();
      await untilDead(open, clock, begun, () => moves >= dies);

      const second = await startProcess(open, clock);
      withVersions(second);
      const moved = () => second.admin.runs({ agent_name: "moves", version: "2", limit: 500 });
      // A run that was moved ends before the act goes on.
      const run_id = (await moved()).items.at(-1)?.run_id ?? "";
      const run = await second.runtime.scope({ tenant: "acme" }).resume({ run_id, await_resume: { ok: true } });
      expect(run.output[0]?.parts[0]?.content).toBe("by 2");
      await clock.advance(LEASE_MS);
      const ended = await endOf(second, begun, clock);
      const figures = { matched: many, done: many, left: 0, refused: 0 };
      expect(ended).toMatchObject({ act: "move", version: "2", status: "completed", ...figures });
      expect((await moved()).items).toHaveLength(many);
      expect((await second.admin.blocked()).items).toEqual([]);
      await first.bury();
      await second.runtime.close();
    }));

  it("ends the pauses of a move that is stopped after its process was killed", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      let isDead = false;
      const isTold = deferred();
      const first = await startProcess(open, clock, {
        hook: async (call, method) => {
          if (method === "changeVersion") {
            await isTold.promise;
            isDead = true;
            first.kill();
          }
          return isDead ? never() : call();
        },
      });
      for (const version of ["1", "2"])
        first.runtime.register("moves", { durable: true, version, current: version === "1" }, (_input, { ask }) =>
          ask("Go on?"),
        );
      await create(first, "acme", "moves", 1);
      const begun = await first.admin.moveToVersion({ agent_name: "moves" }, "2");
      isTold.resolve();
      await untilDead(open, clock, begun, () => isDead);

      const second = await startProcess(open, clock);
      await second.admin.pause({ agent_name: "moves", by: `cadenza:move:${begun.run_id}` }, { now: true });
      await second.admin.cancel(begun);
      await clock.advance(LEASE_MS);
      expect(await endOf(second, begun, clock)).toMatchObject({ status: "cancelled" });
      expect(await second.admin.pauses()).toEqual([]);
      await first.bury();
      await second.runtime.close();
    }));

  it("counts a run that ends while it acts on those before it", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      let meddle: (() => Promise<unknown>) | undefined;
      const process = await startProcess(open, clock, {
        hook: async (call, method, parameters) => {
          const answer = await call();
          const isCancel = JSON.stringify(parameters)?.includes('"cancel-requested"') === true;
          if (isCancel && (method === "append" || method === "post")) await meddle?.();
          return answer;
        },
      });
      const { admin, runtime } = process;
      const [oldest = ""] = await create(process, "acme", "asks", 201);
      const begun = await admin.cancelMany({ tenant: "acme" });
      meddle = () => {
        meddle = undefined;
        return runtime.scope({ tenant: "acme" }).resume({ run_id: oldest, await_resume: { ok: true } });
      };
      const ended = await endOf(process, begun, clock);
      expect(ended).toMatchObject({ status: "completed", matched: 201, done: 200, left: 1, refused: 0 });
      await runtime.close();
    }));

  it("counts what it had done of a page when it was stopped", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      let cancels = 0;
      let stop: (() => Promise<unknown>) | undefined;
      const process = await startProcess(open, clock, {
        hook: async (call, method, parameters) => {
          const answer = await call();
          if ((method === "append" || method === "post") && JSON.stringify(parameters).includes('"cancel-requested"')) {
            cancels += 1;
            if (cancels === 20) await stop?.();
          }
          return answer;
        },
      });
      const { admin, runtime } = process;
      await create(process, "acme", "asks", 60);
      const begun = await admin.cancelMany({ tenant: "acme" });
      stop = () => admin.cancel(begun);
      const ended = await endOf(process, begun, clock);
      await clock.advance(2_000);
      const left = (await statusesOf(process, "acme", "asks")).filter((status) => status === "awaiting").length;
      expect(ended).toMatchObject({ status: "cancelled", matched: 60, done: 60 - left, left: 0, refused: 0 });
      expect(left).toBeGreaterThan(0);
      expect(left).toBeLessThan(41);
      await runtime.close();
    }));

  it("is in no list of an application", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const process = await startProcess(open, clock);
      const { admin, runtime } = process;
      const heard: string[] = [];
      for (const type of ["run.created", "run.completed"] as const)
        runtime.on(type, (_event, { agent_name }) => heard.push(agent_name));
      await create(process, "", "asks", 1);
      const act = await endOf(process, await admin.cancelMany({ agent_name: "asks" }), clock);
      const names = (await runtime.listAgents()).map(({ name }) => name);
      expect(names).toEqual(["asks", "fails"]);
      expect((await admin.versions()).map(({ agent_name }) => agent_name)).toEqual(names);
      expect(Object.keys((await runtime.stats()).agents)).toEqual(names);
      expect((await runtime.listRuns()).map(({ agent_name }) => agent_name)).toEqual(["asks"]);
      expect(heard).toEqual(["asks"]);
      const { items } = await admin.runs({ tenant: act.tenant });
      expect(items).toMatchObject([{ run_id: act.run_id, status: "completed" }]);
      expect(() => runtime.scope({ tenant: act.tenant })).toThrow(/not reserved/);
      const agent_name = items[0]?.created?.agent_name ?? "";
      await expect(runtime.createRun({ agent_name, input: "" })).rejects.toMatchObject({ code: "agent_not_found" });
      await admin.delete(act);
      await expect(admin.act(act)).rejects.toMatchObject({ code: "run_not_found" });
      await runtime.close();
    }));

  it("tries failed runs again, each once, until one of their forks fails again", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const bank: Bank = { ...down };
      const process = await startProcess(open, clock, { bank });
      const { admin, runtime, audit } = process;
      runtime.register("plain", () => Promise.reject(new Error("It never lasts.")));
      runtime.register("above", { durable: true }, async (_input, context) => {
        const { status } = await context.run("fails", "");
        if (status === "failed") throw new Error("The run below has failed.");
      });
      const ids = [...(await create(process, "acme", "fails", 3)), ...(await create(process, "other", "fails", 2))];
      const plain = await create(process, "acme", "plain", 1);
      await create(process, "acme", "above", 1);
      expect(bank.looks).toBe(6);
      await clock.advance(10);
      const first = await endOf(process, await admin.retryMany({ status: "failed" }), clock);
      expect(first).toMatchObject({ status: "completed", matched: 7, done: 6, left: 0, refused: 1 });
      expect(first.errors).toMatchObject([{ tenant: "acme", run_id: plain[0], code: "not_forkable" }]);
      const forks = audit.filter(({ action, outcome }) => action === "fork" && outcome === "done");
      expect(forks).toHaveLength(6);
      for (const record of forks) expect(record).toMatchObject({ by: operator });

      // The forks have failed too, and are failed runs of their own. Those that were tried again are left alone.
      await untilEnded(process, clock);
      bank.isUp = true;
      const second = await endOf(process, await admin.retryMany({ agent_name: "fails", tenant: "other" }), clock);
      expect(second).toMatchObject({ status: "completed", matched: 4, done: 2, left: 2, refused: 0 });
      await untilEnded(process, clock);
      // What was looked up before the failure is taken over.
      expect(bank.looks).toBe(7);
      const third = await endOf(process, await admin.retryMany({ agent_name: "fails", tenant: "other" }), clock);
      expect(third).toMatchObject({ status: "completed", matched: 4, done: 0, left: 4, refused: 0 });
      const statuses = await statusesOf(process, "other", "fails");
      expect(statuses.toSorted()).toEqual([...new Array(2).fill("completed"), ...new Array(4).fill("failed")]);
      const { items } = await admin.runs({ tenant: "other", status: "completed" });
      for (const { created } of items) expect(ids).not.toContain(created?.origin?.run_id);
      await runtime.close();
    }));

  it("has forks wait until their process has room", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const process = await startProcess(open, clock, { work: { max: 2 } });
      const { admin, runtime } = process;
      const gate = deferred();
      let isUp = false;
      let [atWork, most] = [0, 0];
      runtime.register("slow", { durable: true }, (_input, { step }) =>
        step("work", async () => {
          if (!isUp) throw new Error("It is down.");
          atWork += 1;
          most = Math.max(most, atWork);
          await gate.promise;
          atWork -= 1;
        }),
      );
      await create(process, "acme", "slow", 6);
      await clock.advance(10);
      isUp = true;
      const act = await endOf(process, await admin.retryMany({ agent_name: "slow" }), clock);
      expect(act).toMatchObject({ status: "completed", matched: 6, done: 6 });
      while (atWork < 2) {
        await admin.act(act);
        await clock.advance(5);
      }
      expect(most).toBe(2);
      gate.resolve();
      await untilEnded(process, clock);
      expect((await admin.runs({ agent_name: "slow", status: "completed" })).items).toHaveLength(6);
      await runtime.close();
    }));

  it("forks no run twice when its process is killed", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const bank: Bank = { ...down };
      let forks = 0;
      const isTold = deferred();
      const first = await startProcess(open, clock, {
        bank,
        hook: async (call, method, parameters) => {
          if (method !== "create" || !`${parameters[2]}`.startsWith("cadenza:retry:")) return call();
          await isTold.promise;
          forks += 1;
          if (forks !== 13) return forks > 13 ? never() : call();
          // The store has the fork, and the process never learns of it.
          first.kill();
          await call();
          return never();
        },
      });
      await create(first, "acme", "fails", 30);
      await clock.advance(10);
      bank.isUp = true;
      const begun = await first.admin.retryMany({ agent_name: "fails" });
      isTold.resolve();
      await untilDead(open, clock, begun, () => forks >= 13);

      await clock.advance(LEASE_MS);
      const second = await startProcess(open, clock, { bank });
      const ended = await endOf(second, begun, clock);
      expect(ended).toMatchObject({ status: "completed", matched: 30, done: 30, left: 0, refused: 0 });
      await untilEnded(second, clock);
      expect(await statusesOf(second, "acme", "fails")).toHaveLength(60);
      const { items } = await second.admin.runs({ agent_name: "fails", status: "completed", limit: 500 });
      expect(new Set(items.map(({ created }) => created?.origin?.run_id)).size).toBe(30);
      await first.bury();
      await second.runtime.close();
    }));

  it("counts each run once that ends, goes on or is deleted after it was found", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      let meddle: (() => Promise<void>) | undefined;
      const process = await startProcess(open, clock, {
        hook: async (call, method) => {
          const answer = await call();
          if (method === "survey") await meddle?.();
          return answer;
        },
      });
      const { admin, runtime } = process;
      const acme = runtime.scope({ tenant: "acme" });
      runtime.register("asks-twice", { durable: true }, async (_input, { ask, step }) => {
        await ask("First?");
        await step("work", () => gate.promise);
      });
      const gate = deferred();
      const [answered = "", cancelled = "", deleted = ""] = await create(process, "acme", "asks", 6);
      const [goesOn = ""] = await create(process, "acme", "asks-twice", 1);
      meddle = async () => {
        meddle = undefined;
        const await_resume = { ok: true };
        for (const run_id of [answered, deleted]) await acme.resume({ run_id, await_resume });
        await acme.delete(deleted);
        await acme.cancel(cancelled, { wait: true });
        await acme.resume({ run_id: goesOn, await_resume, mode: "async" });
        while ((await acme.getRun(goesOn)).status !== "in-progress") await clock.advance(10);
      };
      const act = await endOf(process, await admin.cancelMany({ tenant: "acme", status: ["awaiting"] }), clock);
      expect(act).toMatchObject({ status: "completed", matched: 7, done: 3, left: 4, refused: 0 });
      expect((await acme.getRun(goesOn)).status).toBe("in-progress");
      gate.resolve();
      await runtime.close();
    }));

  it("outlasts a store that fails, but for a run of which it always fails", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      let fails: ((method: string, key: { tenant?: string; run_id?: string }) => boolean) | undefined;
      const process = await startProcess(open, clock, {
        hook: (call, method, parameters) => {
          if (fails?.(method, Object(parameters[0])) !== true) return call();
          return Promise.reject(new Error("The connection broke."));
        },
      });
      const { admin, runtime } = process;
      for (const failing of ["survey", "find", "append"]) {
        await create(process, "acme", "asks", 10);
        fails = (method, { tenant }) => {
          const isNow = method === failing && tenant === "acme";
          if (isNow) fails = undefined;
          return isNow;
        };
        const act = await endOf(process, await admin.cancelMany({ tenant: "acme" }), clock);
        expect(act).toMatchObject({ status: "completed", matched: 10, done: 10, left: 0, refused: 0 });
        expect(fails).toBe(undefined);
      }
      const [, bad] = await create(process, "acme", "asks", 3);
      fails = (method, { run_id }) => method === "find" && run_id === bad;
      const act = await endOf(process, await admin.cancelMany({ tenant: "acme" }), clock);
      expect(act).toMatchObject({ status: "completed", matched: 3, done: 2, left: 0, refused: 1 });
      expect(act.errors).toEqual([{ tenant: "acme", run_id: bad, code: "store_failed", message: expect.any(String) }]);
      fails = undefined;
      const statuses = await statusesOf(process, "acme", "asks");
      expect(statuses.filter((status) => status === "awaiting")).toHaveLength(1);
      await runtime.close();
    }));

  it("is begun in a process that executes nothing, and handed on by one that is closed", () =>
    withStore(async (open) => {
      const clock = new FakeClock();
      const web = await startProcess(open, clock, { work: false });
      const alone = await web.admin.cancelMany({ tenant: "none" });
      await clock.advance(5_000);
      expect(await web.admin.act(alone)).toMatchObject({ status: "created" });
      await web.admin.cancel(alone);
      const worker = await startProcess(open, clock);
      await create(worker, "acme", "asks", many);
      const begun = await web.admin.cancelMany({ tenant: "acme" });
      while ((await web.admin.act(begun)).matched === 0) await clock.advance(20);
      const closing = worker.runtime.close({ drainMs: 0 });
      const other = await startProcess(open, clock);
      const ended = await endOf(web, begun, clock);
      expect(ended).toMatchObject({ status: "completed", matched: many, done: many, left: 0, refused: 0 });
      await closing;
      await other.runtime.close();
      await web.runtime.close();
    }));
}
