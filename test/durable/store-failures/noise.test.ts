import type { Clock, Run } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { describe, expect, it } from "vitest";
import { nextTurn } from "../../harness/promises.ts";
import type { LogLine } from "../../harness/runtimes.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";
import { isRead } from "../../harness/store-proxy.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* What a process logs and keeps in its store when nothing is wrong, and what it can do when the disk is full. */

function wait(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.setTimeout(resolve, ms));
}

function errors(said: readonly LogLine[]): string[] {
  return said.filter(({ level }) => level === "error").map(({ message }) => message);
}

describe("an answer over HTTP that another process has to take", () => {
  it.each([
    { why: "the run works beside waiting, in another process", closes: false },
    { why: "the process that has the run is closed", closes: true },
  ])("is no error in the log ($why)", async ({ closes }) => {
    const replicas = inMemory();
    const { clock } = replicas;
    const [first, second] = [replicas.start(), replicas.start()];
    for (const { runtime } of [first, second])
      runtime.register("agent", { durable: true }, (_input, { ask, step }) =>
        Promise.all([ask("Well?"), step("work", () => wait(clock, 60_000))]),
      );
    const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.advance(500);
    if (closes) void first.runtime.close({ drainMs: 0 });
    for (const { runtime } of [second, first]) {
      const body = JSON.stringify({ run_id, await_resume: { ok: true }, mode: "async" });
      const headers = { "content-type": "application/json" };
      const request = new Request(`http://localhost/runs/${run_id}`, { method: "POST", body, headers });
      const responding = createAcpHandler(runtime)(request);
      await clock.advance(15_000);
      expect((await responding).status).not.toBe(500);
    }
    expect([...errors(first.said), ...errors(second.said)]).toEqual([]);
  });
});

it("killed processes leave no row in the file once their runs have been taken over", async () => {
  const replicas = onFile();
  const { clock, path } = replicas;
  const start = (name: string, stepMs: number) => {
    const replica = replicas.start({ ids: { uuid: () => crypto.randomUUID(), token: () => name } });
    replica.runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
      await step("work", () => wait(clock, stepMs));
      await ask("Well?", { timeoutMs: 1_000, default: {} });
    });
    return replica;
  };
  for (let process = 0; process < 5; process++) {
    const { runtime, kill } = start(`killed-${process}`, 60_000);
    await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.advance(10);
    kill();
  }
  const { runtime } = start("last", 10);
  await clock.advance(60_000);
  expect(await runtime.listRuns({ status: "completed" })).toHaveLength(5);
  expect(tablesWith(path, "killed-")).toEqual([]);
});

/** The tables that have a row with a text that begins like this. */
function tablesWith(path: string, text: string): string[] {
  const db = openDatabase(path);
  const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all() as { readonly name: string }[];
  const found = tables.flatMap(({ name }) => {
    const rows = db.prepare(`SELECT * FROM ${name}`).all() as Readonly<Record<string, unknown>>[];
    const isOurs = (value: unknown): boolean => typeof value === "string" && value.startsWith(text);
    return rows.filter((row) => Object.values(row).some(isOurs)).map(() => name);
  });
  db.close();
  return found;
}

describe.each([false, true])("while the disk is full (late: %s)", (late) => {
  function begin() {
    let isFull = false;
    const answer = (call: () => unknown, method: string): unknown => {
      if (isFull && !isRead(method)) throw new Error("the disk is full");
      return call();
    };
    const replica = inMemory().start(
      {},
      late
        ? async (call, method) => {
            await nextTurn();
            return answer(call, method);
          }
        : answer,
    );
    const { runtime, clock } = replica;
    runtime.register("agent", { durable: true }, async function* (_input, { step }) {
      yield "begun ";
      await step("work", () => wait(clock, 1_000));
      yield "done";
    });
    return {
      runtime,
      clock,
      fill(full: boolean) {
        isFull = full;
      },
      /** The outcome of a call within that time. */
      async outcome(call: Promise<Run>, ms: number): Promise<string> {
        let outcome = "no answer";
        call.then(
          ({ status }) => {
            outcome = status;
          },
          (error: { readonly code: string }) => {
            outcome = error.code;
          },
        );
        await clock.advance(ms);
        return outcome;
      },
    };
  }

  it.each([0, 1_000])("a run in progress can be read (%i ms later)", async (ms) => {
    const { runtime, clock, fill, outcome } = begin();
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.advance(500);
    fill(true);
    // By now its step may have a result that cannot be written.
    await clock.advance(ms);
    expect(await outcome(runtime.getRun(run_id), 100)).toBe("in-progress");
    const [listed] = await runtime.listRuns();
    expect(listed?.status).toBe("in-progress");
    fill(false);
    await clock.advance(20_000);
    expect((await runtime.getRun(run_id)).status).toBe("completed");
  });

  it.each([0, 1_000])("a cancel is refused, and its call settles (%i ms later)", async (ms) => {
    const { runtime, clock, fill, outcome } = begin();
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.advance(500);
    fill(true);
    await clock.advance(ms);
    expect(await outcome(runtime.cancel(run_id), 1_000)).toBe("store_failed");
    expect(await outcome(runtime.cancel(run_id), 1_000)).toBe("store_failed");
    fill(false);
    await clock.advance(20_000);
    expect(["completed", "cancelled"]).toContain((await runtime.getRun(run_id)).status);
  });
});
