import type { ListRunsQuery, Run, RunSummary } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { SqliteStore } from "cadenza/sqlite";
import { describe, expect, expectTypeOf, it } from "vitest";
import { never } from "../../harness/promises.ts";
import { refusal, reply, setUp, setUpOnFile, textsOf } from "../../harness/runtimes.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";
import { hookedStore } from "../../harness/store-proxy.ts";
import { COUNTS_CALLS, unlessReplayed } from "../../harness/unless-replayed.ts";

/* Lists without outputs, their pages, a run by its idempotency key, and a cancel that waits. */

const UNKNOWN = "00000000-0000-4000-8000-0000000000ff";

describe.each([
  ["in memory", () => setUp()],
  ["on SQLite", setUpOnFile],
] as const)("%s", (_where, make) => {
  it("listRuns gives the records without their outputs, and with them where they are asked for", async () => {
    const { runtime } = make();
    runtime.register("ends", () => "Done.");
    runtime.register("asks", async function* (_input, { ask }) {
      yield "Well. ";
      await ask("Which?");
    });
    runtime.register("fails", () => Promise.reject(new Error("no")));
    for (const agent_name of ["ends", "asks", "fails"]) await runtime.createRun({ agent_name, input: "x" });
    const runs = await runtime.listRuns({ output: true });
    expect(runs.map(({ run_id }) => runtime.getRun(run_id))).toHaveLength(3);
    for (const run of runs) expect(run).toEqual(await runtime.getRun(run.run_id));
    expect(runs.map(textsOf)).toEqual([[], ["Well. "], ["Done."]]);
    const summaries = runs.map(({ output: _, ...summary }) => summary);
    expect(await runtime.listRuns()).toEqual(summaries);
    expect(await runtime.listRuns({ output: false })).toEqual(summaries);
    expect(summaries[0]?.error).toMatchObject({ code: "server_error" });
    expect(summaries[1]?.await_request).toMatchObject({ await_id: "ask#1" });
    expectTypeOf(await runtime.listRuns()).toEqualTypeOf<readonly RunSummary[]>();
    expectTypeOf(await runtime.listRuns({ output: true })).toEqualTypeOf<readonly Run[]>();
    await runtime.close({ drainMs: 0 });
  });

  it("listRuns continues after a run, also when newer runs have come", async () => {
    const { runtime } = make();
    runtime.register("ends", () => "Done.");
    const create = async () => (await runtime.createRun({ agent_name: "ends", input: "x" })).run_id;
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) ids.unshift(await create());
    const list = async (after?: string) => (await runtime.listRuns({ limit: 2, after })).map(({ run_id }) => run_id);
    const first = await list();
    const newer = await create();
    const second = await list(first.at(-1));
    expect([first, second, await list(second.at(-1))]).toEqual([ids.slice(0, 2), ids.slice(2, 4), ids.slice(4)]);
    expect(await list()).toEqual([newer, ids[0]]);
    expect(await list(ids.at(-1))).toEqual([]);
    expect(await list(UNKNOWN)).toEqual([]);
    expect(await runtime.scope({ tenant: "other" }).listRuns({ after: newer })).toEqual([]);
  });

  it("listRuns gives the runs of a time, in pages, the newest first", async () => {
    const { runtime, clock } = make();
    runtime.register("ends", () => "Done.");
    runtime.register("asks", (_input, { ask }) => ask("Which?"));
    const create = async (agent_name: string) => (await runtime.createRun({ agent_name, input: "x" })).run_id;
    const first = await create("ends");
    await clock.advance(1_000);
    const second = await create("asks");
    const { created_at } = await runtime.getRun(second);
    await clock.advance(1_000);
    const third = await create("ends");
    const list = async (query: ListRunsQuery) => (await runtime.listRuns(query)).map(({ run_id }) => run_id);
    const ms = Date.parse(created_at);
    for (const time of [created_at, ms, new Date(ms), created_at.replace("Z", "+00:00")]) {
      expect(await list({ createdAfter: time })).toEqual([third, second]);
      expect(await list({ createdBefore: time })).toEqual([first]);
      expect(await list({ createdAfter: time, createdBefore: time })).toEqual([]);
    }
    const later = { createdAfter: ms - 1_000, createdBefore: ms + 1_001 };
    expect(await list({ ...later, limit: 1 })).toEqual([third]);
    expect(await list({ ...later, limit: 1, after: third })).toEqual([second]);
    expect(await list({ ...later, after: second })).toEqual([first]);
    expect(await list({ ...later, agent_name: "ends" })).toEqual([third, first]);
    expect(await list({ ...later, status: "awaiting" })).toEqual([second]);
    expect(await list({ createdAfter: ms + 1, status: ["awaiting", "completed"] })).toEqual([third]);
    expect(await runtime.scope({ tenant: "other" }).listRuns(later)).toEqual([]);
    for (const time of ["tomorrow", "", Number.NaN, Number.POSITIVE_INFINITY, -1, new Date(Number.NaN), null, {}])
      for (const name of ["createdAfter", "createdBefore"]) {
        const refused = await refusal(runtime.listRuns({ [name]: time } as ListRunsQuery));
        expect(refused).toMatchObject({ code: "invalid_argument", issues: [{ path: ["query", name] }] });
      }
    await runtime.close({ drainMs: 0 });
  });

  it("findRun finds the run of an idempotency key", async () => {
    const { runtime } = make();
    runtime.register("asks", (_input, { ask }) => ask("Which?"));
    const request = { agent_name: "asks", input: "x" } as const;
    const run = await runtime.createRun(request, { idempotencyKey: "k" });
    expect(await runtime.findRun({ idempotencyKey: "k" })).toEqual(run);
    const other = await runtime.scope({ tenant: "other" }).createRun(request, { idempotencyKey: "k" });
    expect(other.run_id).not.toBe(run.run_id);
    expect(await runtime.findRun({ idempotencyKey: "k" })).toEqual(run);
    const ended = await runtime.resume({ run_id: run.run_id, await_resume: reply("this") });
    expect(await runtime.findRun({ idempotencyKey: "k" })).toEqual(ended);
    expect(await runtime.findRun({ idempotencyKey: "l" })).toBeUndefined();
    expect(await runtime.scope({ tenant: "third" }).findRun({ idempotencyKey: "k" })).toBeUndefined();
  });

  it("a cancel that waits gives the run when it has ended", async () => {
    const { runtime } = make();
    runtime.register("polite", async function* (_input, { ask }) {
      try {
        await ask("Which?");
      } finally {
        yield "Bye.";
      }
    });
    const { run_id } = await runtime.createRun({ agent_name: "polite", input: "x" });
    const run = await runtime.cancel(run_id, { wait: true });
    expect(run).toMatchObject({ run_id, status: "cancelled" });
    expect(textsOf(run)).toEqual(["Bye."]);
    expect(run).toEqual(await runtime.getRun(run_id));
    expect(await runtime.cancel(run_id, { wait: true })).toEqual(run);
    expect((await refusal(runtime.cancel(UNKNOWN, { wait: true }))).code).toBe("run_not_found");
  });

  it("a cancel waits for an agent that does not stop no longer than the grace", async () => {
    const { runtime, clock } = make();
    runtime.register("stubborn", async function* () {
      yield "I stay.";
      await never();
    });
    const { run_id } = await runtime.createRun({ agent_name: "stubborn", input: "x", mode: "async" });
    await clock.settle();
    const stop = new AbortController();
    const left = runtime.cancel(run_id, { wait: true, signal: stop.signal });
    const cancelled = runtime.cancel(run_id, { wait: true });
    await clock.settle();
    stop.abort(new Error("enough"));
    await expect(left).rejects.toThrow("enough");
    expect((await runtime.getRun(run_id)).status).toBe("cancelling");
    await clock.advance(500);
    expect(await cancelled).toMatchObject({ status: "cancelled" });
  });
});

unlessReplayed(COUNTS_CALLS)(
  "a list without outputs reads no logs of runs that are at work or have completed",
  async () => {
    const calls: string[] = [];
    const set = setUp({
      store: hookedStore((call, method) => {
        calls.push(method);
        return call();
      }),
    });
    set.runtime.register("ends", () => "Done.");
    for (let n = 0; n < 3; n++) await set.runtime.createRun({ agent_name: "ends", input: "x" });
    calls.length = 0;
    expect(await set.runtime.listRuns()).toHaveLength(3);
    expect(calls).toEqual(["list"]);
    await set.runtime.listRuns({ output: true });
    expect(calls).toEqual(["list", "list", "read", "read", "read"]);
  },
);

describe("refused are", () => {
  it.each<[what: string, call: (set: ReturnType<typeof setUp>) => Promise<unknown>, path: string]>([
    [
      "an output that is neither true nor false",
      ({ runtime }) => runtime.listRuns({ output: 1 as never }),
      "query.output",
    ],
    ["a bad run to continue after", ({ runtime }) => runtime.listRuns({ after: "abc" }), "query.after"],
    ["findRun without a key", ({ runtime }) => runtime.findRun({} as never), "by.idempotencyKey"],
    ["findRun with another key", ({ runtime }) => runtime.findRun({ key: "k" } as never), "by"],
    [
      "a wait that is neither true nor false",
      ({ runtime }) => runtime.cancel(UNKNOWN, { wait: 1 as never }),
      "options.wait",
    ],
    ["another option of cancel", ({ runtime }) => runtime.cancel(UNKNOWN, { graceMs: 1 } as never), "options"],
  ])("%s", async (_what, call, path) => {
    const error = await refusal(call(setUp()));
    expect(error.code).toBe("invalid_argument");
    expect(error.message).toContain(path);
  });
});

describe("with limits.maxExaminedRuns", () => {
  const setUpWith = () => {
    const store = new SqliteStore(openDatabase(":memory:"), { closeDatabase: true });
    const { runtime } = setUp({ store, limits: { maxExaminedRuns: 2 } });
    runtime.register("ends", () => "Done.");
    runtime.register("rare", () => "Done.");
    runtime.register("waits", async (_input, { receive }) => JSON.stringify(await receive("note")));
    return runtime;
  };

  it("a list that would look at more runs is refused, and not given in part", async () => {
    const runtime = setUpWith();
    for (const agent_name of ["rare", "ends", "ends", "ends"]) await runtime.createRun({ agent_name, input: "x" });
    const error = await refusal(runtime.listRuns({ agent_name: "rare" }));
    expect(error).toMatchObject({ code: "limit_reached", limit: "maxExaminedRuns" });
    expect(error.message).toContain("more than 2 runs before it has the 100 of its page");
    expect(await runtime.listRuns({ agent_name: "ends", limit: 2 })).toHaveLength(2);
    expect(await runtime.listRuns({ status: ["failed", "cancelled"] })).toEqual([]);
    expect(await runtime.listRuns({ createdAfter: new Date(0), limit: 2 })).toHaveLength(2);
    const handler = createAcpHandler(runtime);
    const answer = await handler(new Request("http://localhost/runs?agent_name=rare"));
    expect(answer.status).toBe(422);
    expect(answer.headers.get("retry-after")).toBeNull();
    expect(await answer.json()).toMatchObject({ data: { reason: "limit_reached", limit: "maxExaminedRuns" } });
    await runtime.close({ drainMs: 0 });
  });

  it("a message finds the run with its labels among few runs, and is refused among more", async () => {
    const runtime = setUpWith();
    const labels = { order: "1" };
    const first = await runtime.createRun({ agent_name: "waits", input: "x", mode: "async" }, { labels });
    for (let n = 0; n < 3; n++) await runtime.createRun({ agent_name: "rare", input: "x" }, { labels });
    await runtime.send({ to: { labels }, name: "note", data: 1 });
    for await (const _ of runtime.events(first.run_id)) {
      // The run has got it and ends.
    }
    expect((await runtime.getRun(first.run_id)).status).toBe("completed");
    for (let n = 0; n < 3; n++) await runtime.createRun({ agent_name: "waits", input: "x", mode: "async" }, { labels });
    const sent = runtime.send({ to: { labels, agent_name: "rare" }, name: "note", data: 1 });
    expect(await refusal(sent)).toMatchObject({ code: "limit_reached", limit: "maxExaminedRuns" });
    await runtime.close({ drainMs: 0 });
  });
});
