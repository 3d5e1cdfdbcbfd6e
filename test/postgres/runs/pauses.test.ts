import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { openPostgresStore } from "cadenza/postgres";
import { describe, expect, it, vi } from "vitest";
import { eventually } from "../../harness/eventually.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
/** A run that is set aside is due later than any date. */
const LAST_TIME = 8_640_000_000_000_000;

describe.skipIf(missing !== undefined)(`pauses on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  it("set the runs of a tenant aside, which come back in their order to any process", async () => {
    const pool = newPool(18, { max: 8 });
    const schema = newSchema();
    const began: string[] = [];
    const open = async () => {
      const store = await openPostgresStore({ pool, schema });
      const runtime = new AgentRuntime({ store, work: { max: 1 } });
      runtime.register("agent", { durable: true }, (input, { step }) =>
        step("work", () => void began.push(input[0]?.parts[0]?.content ?? "")),
      );
      return { store, runtime };
    };
    const first = await open();
    const admin = createAdmin(first.runtime);
    await admin.pause({ tenant: "acme" });
    await admin.pause({ agent_name: "agent", version: "2" });
    const acme = first.runtime.scope({ tenant: "acme" });
    const runs: string[] = [];
    for (const input of ["a", "b", "c"])
      runs.push((await acme.createRun({ agent_name: "agent", input, mode: "async" })).run_id);
    await eventually(async () => {
      const found = await Promise.all(runs.map((run_id) => first.store.find({ tenant: "acme", run_id })));
      for (const run of found) expect(run?.head.due_at).toBeGreaterThan(LAST_TIME);
    });
    const free = await first.runtime.createRun({ agent_name: "agent", input: "free" });
    expect([free.status, ...began]).toEqual(["completed", "free"]);
    await first.runtime.close();
    await first.store.close();

    const second = await open();
    expect(await createAdmin(second.runtime).pauses()).toMatchObject([{ tenant: "acme" }, { version: "2" }]);
    await createAdmin(second.runtime).resume({ tenant: "acme" });
    await eventually(async () => {
      for (const run_id of runs)
        expect((await second.runtime.scope({ tenant: "acme" }).getRun(run_id)).status).toBe("completed");
    });
    expect(began).toEqual(["free", "a", "b", "c"]);
    await second.runtime.close();
    await second.store.close();
    await pool.end();
  });

  it("with `now` release a run at work of another process, which goes on with it after the resume", async () => {
    const pool = newPool(18, { max: 8 });
    const schema = newSchema();
    const done: string[] = [];
    let end = (): void => undefined;
    const open = async () => {
      const store = await openPostgresStore({ pool, schema });
      const runtime = new AgentRuntime({ store });
      runtime.register("agent", { durable: true }, async (_input, { step }) => {
        const ended = new Promise<void>((resolve) => {
          end = resolve;
        });
        await step("a", () => {
          done.push("a");
          return ended;
        });
        return step("b", () => void done.push("b"));
      });
      return { store, runtime };
    };
    const first = await open();
    const second = await open();
    const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await eventually(() => expect(done).toEqual(["a"]));
    const admin = createAdmin(second.runtime);
    await admin.pause({ tenant: "" });
    expect(await admin.pause({ tenant: "" }, { now: true })).toEqual({ changed: true });
    expect(await admin.pause({ tenant: "" }, { now: true })).toEqual({ changed: false });
    // The other process knows of it when it has read the pauses.
    const read = vi.spyOn(first.store, "take");
    await eventually(() => expect(read).toHaveBeenCalled());
    await read.mock.results[0]?.value;
    end();
    await eventually(async () => {
      expect((await second.store.find({ tenant: "", run_id }))?.head).toMatchObject({
        owner: null,
        status: "in-progress",
      });
    });
    expect(done).toEqual(["a"]);
    await first.runtime.close();
    await admin.resume({ tenant: "" });
    await eventually(async () => expect((await second.runtime.getRun(run_id)).status).toBe("completed"));
    expect(done).toEqual(["a", "b"]);
    await second.runtime.close();
    for (const { store } of [first, second]) await store.close();
    await pool.end();
  });
});
