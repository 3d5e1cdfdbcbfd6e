import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { describe, expect, it, onTestFinished } from "vitest";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";
import { reply } from "../../harness/runtimes.ts";

const missing = missingServer(18);
const MIB = 1_048_576;

describe.skipIf(missing !== undefined)(`what PostgreSQL cannot hold${missing ? `: ${missing}` : ""}`, () => {
  const setUp = async () => {
    const real = newPool(18);
    const pool = new HookedPool(real);
    const schema = newSchema();
    const store = await openPostgresStore({ pool, schema, feed: { keepMs: 60_000 } });
    const runtime = new AgentRuntime({
      store,
      limits: { maxPartBytes: Infinity, maxStepBytes: Infinity, maxLogBytes: Infinity },
    });
    onTestFinished(async () => {
      await runtime.close();
      await store.close();
      await real.end();
    });
    return { real, pool, schema, store, runtime };
  };

  it("twenty parts of two megabytes of one turn are written, each by a statement of its own", async () => {
    const { runtime, pool } = await setUp();
    runtime.register("large", { durable: true }, (_input, { emit }) => {
      for (let n = 0; n < 20; n++) void emit("x".repeat(2 * MIB));
      return "done";
    });
    const long: number[] = [];
    pool.hook = (run, _sql, parameter) => {
      const { length } = String(parameter);
      if (length > MIB) long.push(length);
      return run();
    };
    const run = await runtime.createRun({ agent_name: "large", input: "" });
    expect(run.status).toBe("completed");
    expect(long).toHaveLength(20);
    expect(Math.max(...long)).toBeLessThan(3 * MIB);
  });

  it("an entry of 300 megabytes fails its run, and other runs go on", async () => {
    const { runtime, store, pool } = await setUp();
    runtime.register("huge", { durable: true }, async (_input, { step }) => {
      await step("small", () => "done");
      await step("huge", () => "x".repeat(300_000_000));
    });
    runtime.register("other", { durable: true }, async (_input, { step }) => {
      for (let n = 0; n < 50; n++) await step("small", () => n);
      return "done";
    });
    const longest: number[] = [];
    pool.hook = (run, _sql, parameter) => {
      longest.push(String(parameter).length);
      return run();
    };
    const [huge, other] = await Promise.all([
      runtime.createRun({ agent_name: "huge", input: "" }),
      runtime.createRun({ agent_name: "other", input: "" }),
    ]);
    expect(other.status).toBe("completed");
    expect(huge).toMatchObject({
      status: "failed",
      error: { message: expect.stringMatching(/`step`, with about 3000\d{5} characters/) },
    });
    expect(Math.max(...longest)).toBeLessThan(MIB);
    expect((await store.find({ tenant: "", run_id: huge.run_id }))?.head.status).toBe("failed");
  });

  it("what the server refuses fails its run with the SQLSTATE", async () => {
    const { runtime, real, schema } = await setUp();
    const name = quoteName(schema);
    await real.query(
      `CREATE FUNCTION ${name}.refuse() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN IF NEW.lines LIKE '%forbidden%' THEN RAISE 'no' USING ERRCODE = '22P05'; END IF; RETURN NEW; END $$`,
    );
    await real.query(
      `CREATE TRIGGER refuse BEFORE INSERT ON ${name}.entries FOR EACH ROW EXECUTE FUNCTION ${name}.refuse()`,
    );
    runtime.register("agent", { durable: true }, async (input, { step }) => {
      await step("small", () => input[0]?.parts[0]?.content ?? "");
    });
    const create = (input: string) => runtime.createRun({ agent_name: "agent", input });
    await expect(create("forbidden")).rejects.toMatchObject({ code: "limit_reached" });
    expect((await create("allowed")).status).toBe("completed");
    runtime.register("late", { durable: true }, async (_input, { step }) => {
      await step("small", () => "forbidden");
    });
    expect(await runtime.createRun({ agent_name: "late", input: "" })).toMatchObject({
      status: "failed",
      error: { message: expect.stringContaining("SQLSTATE 22P05") },
    });
  });

  it("text with \\u0000 and lone surrogates is kept wherever text can be", async () => {
    const { runtime } = await setUp();
    const odd = "a\0b\ud800c";
    const scope = runtime.scope({ tenant: odd, principal: { name: odd, user: odd } });
    runtime.register("odd", { durable: true }, async (input, { step, ask, emit, session, receive }) => {
      const given = input[0]?.parts[0]?.content;
      const kept = await step(`step ${odd}`, () => ({ [odd]: given ?? "" }));
      await emit({ content: odd, name: odd });
      await session.setState({ [odd]: odd });
      const answer = await ask(odd);
      const mail = await receive(odd);
      if (given === "fail") throw new Error(odd);
      return JSON.stringify([kept, answer, mail]);
    });
    const session_id = "5f6e0a3e-58c1-4bd2-8f2a-9a1b4f0b0001";
    const labels = { [odd]: odd };
    for (const input of [odd, "fail"]) {
      const created = await scope.createRun(
        { agent_name: "odd", session_id, input },
        { idempotencyKey: `${odd} ${input}`, labels },
      );
      expect(created.status).toBe("awaiting");
      const { run_id } = created;
      await scope.send({ to: run_id, name: odd, data: { [odd]: odd } });
      const ended = await scope.resume({ run_id, await_resume: reply(odd) });
      expect(ended.status).toBe(input === "fail" ? "failed" : "completed");
      expect((await scope.getRun(run_id)).status).toBe(ended.status);
    }
    expect(await scope.listRuns({ labels })).toHaveLength(2);
  });
});
