import { MemoryStore } from "cadenza";
import type { FoundRun, Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { withMembers } from "../../harness/port-proxy.ts";
import { drain, refusal, setUp, setUpOnFile, typesOf } from "../../harness/runtimes.ts";
import { hookedStore } from "../../harness/store-proxy.ts";

/* Runs and sessions that are deleted. */

const UNKNOWN = "00000000-0000-4000-8000-0000000000ff";
const SESSION = "11111111-1111-4111-8111-111111111111";

describe.each([
  ["in memory", () => setUp()],
  ["on SQLite", setUpOnFile],
] as const)("%s", (_where, make) => {
  function setUpAgents() {
    const { runtime, store } = make();
    runtime.register("ends", (_input, { usage }) => {
      usage.add({ input_tokens: 3, output_tokens: 4 });
      return "Done.";
    });
    runtime.register("asks", (_input, { ask }) => ask("Which?"));
    runtime.register("tree", async (_input, { run }) => {
      await Promise.all([run("middle", ""), run("ends", "")]);
    });
    runtime.register("middle", async (_input, { run, ask }) => {
      await run("ends", "");
      await ask("Go on?");
    });
    const all = async () => (await runtime.listRuns()).map(({ run_id }) => run_id);
    return { runtime, store, all };
  }

  it("a run goes with its events and its idempotency key, and statistics stay", async () => {
    const { runtime, store, all } = setUpAgents();
    const request = { agent_name: "ends", input: "x" } as const;
    const other = await runtime.createRun(request);
    const { run_id } = await runtime.createRun(request, { idempotencyKey: "k", labels: { customer: "7" } });
    const { agents } = await runtime.stats();
    expect(await runtime.delete(run_id)).toBeUndefined();
    for (const call of ["getRun", "details", "transcript", "cancel", "delete"] as const)
      expect((await refusal(runtime[call](run_id))).code).toBe("run_not_found");
    expect((await refusal(runtime.events(run_id))).code).toBe("run_not_found");
    expect(await runtime.findRun({ idempotencyKey: "k" })).toBeUndefined();
    expect(await runtime.listRuns({ labels: { customer: "7" } })).toEqual([]);
    expect(await store.read({ tenant: "", run_id }, 0, 9)).toBeUndefined();
    expect(await all()).toEqual([other.run_id]);
    expect((await runtime.stats()).agents).toEqual(agents);
    expect(agents["ends"]).toMatchObject({ completed: 2, total_tokens: 14 });
    const again = await runtime.createRun(request, { idempotencyKey: "k" });
    expect(again.run_id).not.toBe(run_id);
    await runtime.close();
  });

  it("a run that has not ended is refused, and nothing changes", async () => {
    const { runtime } = setUpAgents();
    const run = await runtime.createRun({ agent_name: "asks", input: "x" }, { idempotencyKey: "k" });
    const { run_id } = run;
    expect(await refusal(runtime.delete(run_id))).toMatchObject({ code: "run_not_ended", run_id });
    expect(await runtime.findRun({ idempotencyKey: "k" })).toEqual(run);
    await runtime.cancel(run_id, { wait: true });
    await runtime.delete(run_id);
    expect((await refusal(runtime.getRun(run_id))).code).toBe("run_not_found");
    await runtime.close();
  });

  it("sub-runs go with their root, and not while one of the tree lives", async () => {
    const { runtime, all } = setUpAgents();
    const { run_id } = await runtime.createRun({ agent_name: "tree", input: "x" });
    const children = await Promise.all((await runtime.details(run_id)).children.map((id) => runtime.getRun(id)));
    const middle = children.find(({ agent_name }) => agent_name === "middle")?.run_id ?? "";
    const [lowest = ""] = (await runtime.details(middle)).children;
    const ended = children.find(({ agent_name }) => agent_name === "ends")?.run_id ?? "";
    // The root has not ended, nor has the middle of the tree. Both may still read what they have started.
    expect(await refusal(runtime.delete(run_id))).toMatchObject({ code: "run_not_ended", run_id });
    expect(await refusal(runtime.delete(ended))).toMatchObject({ code: "run_not_ended", run_id });
    expect(await refusal(runtime.delete(lowest))).toMatchObject({ code: "run_not_ended", run_id: middle });
    expect(await all()).toHaveLength(4);
    await runtime.resume({ run_id, await_resume: { ok: true } });
    const other = await runtime.createRun({ agent_name: "ends", input: "x" });
    await runtime.delete(lowest);
    expect((await all()).toSorted()).toEqual([run_id, middle, ended, other.run_id].toSorted());
    await runtime.delete(run_id);
    expect(await all()).toEqual([other.run_id]);
    await runtime.close();
  });

  it("a run whose parent has been deleted can be deleted itself", async () => {
    const { runtime, store, all } = setUpAgents();
    const { run_id } = await runtime.createRun({ agent_name: "tree", input: "x" });
    await runtime.resume({ run_id, await_resume: { ok: true } });
    const [child = ""] = (await runtime.details(run_id)).children;
    // As `retention` deletes a parent before its sub-runs.
    expect(await store.delete([{ tenant: "", run_id }])).toBe(1);
    await runtime.delete(child);
    expect(await all()).not.toContain(child);
    await runtime.close();
  });

  it("a reader of a deleted run gets what one behind an eviction gets", async () => {
    const { runtime } = make();
    runtime.register("talks", async function* () {
      for (let n = 0; n < 1_000; n++) yield { parts: [{ content: `${n}` }] };
    });
    const { run_id } = await runtime.createRun({ agent_name: "talks", input: "x" });
    const events = runtime.events(run_id);
    await events.next();
    await runtime.delete(run_id);
    const rest = await drain(events);
    expect(typesOf(rest)).not.toContain("run.completed");
    expect(rest.at(-1)).toMatchObject({ type: "error", error: { data: { reason: "events_lost" } } });
    await runtime.close();
  });

  it("a session goes with its history, its state and its runs", async () => {
    const { runtime, all } = setUpAgents();
    const request = { agent_name: "tree", input: "x", session_id: SESSION } as const;
    const first = await runtime.createRun(request, { idempotencyKey: "k" });
    const other = await runtime.createRun({ agent_name: "ends", input: "x" });
    await runtime.createRun({ agent_name: "ends", input: "x", session_id: SESSION });
    const { run_id } = first;
    expect(await refusal(runtime.deleteSession(SESSION))).toMatchObject({ code: "run_not_ended", run_id });
    expect((await runtime.getSession(SESSION)).history).toHaveLength(2);
    expect(await all()).toHaveLength(6);
    await runtime.resume({ run_id, await_resume: { ok: true } });
    expect(await runtime.deleteSession(SESSION)).toBeUndefined();
    expect(await all()).toEqual([other.run_id]);
    expect((await refusal(runtime.getSession(SESSION))).code).toBe("session_not_found");
    expect((await refusal(runtime.deleteSession(SESSION))).code).toBe("session_not_found");
    expect(await runtime.findRun({ idempotencyKey: "k" })).toBeUndefined();
    await runtime.createRun({ agent_name: "ends", input: "anew", session_id: SESSION });
    expect((await runtime.getSession(SESSION)).history).toHaveLength(2);
    await runtime.close();
  });

  it("the session of a run that named none goes with it, in either way", async () => {
    const { runtime, all } = setUpAgents();
    const request = { agent_name: "ends", input: "x" } as const;
    const one = await runtime.createRun(request);
    const two = await runtime.createRun(request);
    await runtime.delete(one.run_id);
    await runtime.deleteSession(two.session_id ?? "");
    for (const { session_id } of [one, two])
      expect((await refusal(runtime.getSession(session_id ?? ""))).code).toBe("session_not_found");
    expect(await all()).toEqual([]);
    // What a run has added to a session that others use stays in it.
    const joined = await runtime.createRun(request);
    const session_id = joined.session_id ?? "";
    await runtime.createRun({ ...request, session_id });
    await runtime.delete(joined.run_id);
    expect((await runtime.getSession(session_id)).history).toHaveLength(4);
    await runtime.deleteSession(session_id);
    expect(await all()).toEqual([]);
    await runtime.close();
  });

  it("the session of a run that named none and has set its state goes with it, unless another run is in it", async () => {
    const { runtime } = setUpAgents();
    runtime.register("remembers", async (_input, { session }) => {
      await session.setState({ name: "Ada" });
      return "Done.";
    });
    const request = { agent_name: "remembers", input: "I am Ada." } as const;
    const alone = await runtime.createRun(request);
    const joined = await runtime.createRun(request);
    const session_id = joined.session_id ?? "";
    await runtime.createRun({ ...request, session_id });
    await runtime.delete(alone.run_id);
    expect((await refusal(runtime.getSession(alone.session_id ?? ""))).code).toBe("session_not_found");
    await runtime.delete(joined.run_id);
    expect((await runtime.getSession(session_id)).state).toEqual({ name: "Ada" });
    await runtime.close();
  });

  it("other tenants delete nothing", async () => {
    const { runtime, all } = setUpAgents();
    const other = runtime.scope({ tenant: "other" });
    const { run_id } = await runtime.createRun({ agent_name: "ends", input: "x", session_id: SESSION });
    expect((await refusal(other.delete(run_id))).code).toBe("run_not_found");
    expect((await refusal(other.deleteSession(SESSION))).code).toBe("session_not_found");
    expect((await refusal(runtime.delete(UNKNOWN))).code).toBe("run_not_found");
    expect((await refusal(runtime.delete("x"))).code).toBe("invalid_argument");
    expect((await refusal(runtime.deleteSession("x"))).code).toBe("invalid_argument");
    await other.createRun({ agent_name: "ends", input: "x", session_id: SESSION });
    await other.deleteSession(SESSION);
    expect(await all()).toEqual([run_id]);
    expect((await runtime.getSession(SESSION)).history).toHaveLength(2);
    await runtime.close();
  });
});

describe("a session with many runs", () => {
  /** `onPage` is called after each page of runs that has been read, with how many these are by now. */
  async function make(count: number, onPage: (page: readonly FoundRun[], pages: number, store: Store) => unknown) {
    const inner: Store = new MemoryStore();
    let pages = 0;
    let isDeleting = false;
    const store = hookedStore(async (call, method) => {
      const answer = await call();
      if (isDeleting && method === "list") await onPage(answer as readonly FoundRun[], ++pages, inner);
      return answer;
    }, inner);
    const { runtime } = setUp({ store });
    runtime.register("ends", () => "Done.");
    for (let n = 0; n < count; n++) await runtime.createRun({ agent_name: "ends", input: "x", session_id: SESSION });
    return {
      runtime,
      all: async () => (await runtime.listRuns({ limit: 1_000 })).length,
      async remove(): Promise<number> {
        isDeleting = true;
        await runtime.deleteSession(SESSION);
        isDeleting = false;
        return pages;
      },
    };
  }

  it("is deleted with a few questions to the store", async () => {
    const { all, remove } = await make(250, () => {});
    // Three pages of its runs, and as many questions for the runs below them.
    expect(await remove()).toBe(6);
    expect(await all()).toBe(0);
  });

  it.each([
    ["the last", 99],
    ["the one after the last", 100],
    ["another", 7],
  ])("is deleted as a whole when %s run of a page is deleted meanwhile", async (_which, index) => {
    const { all, remove } = await make(250, async (page, pages, store) => {
      const run = page[index];
      if (pages === 1 && run !== undefined) await store.delete([run.key]);
    });
    await remove();
    expect(await all()).toBe(0);
  });
});

it("A run is deleted that has more sub-runs than a call can have arguments", async () => {
  const memory = new MemoryStore();
  let root: FoundRun | undefined;
  const ids = Array.from({ length: 130_000 }, (_, n) => `00000000-0000-4000-9000-${String(n).padStart(12, "0")}`);
  const deleted = new Set<string>();
  const store = withMembers<Store>(memory, {
    // In pages of any length, so that the test is short.
    list({ parents, after }) {
      const run = parents?.includes(root?.key.run_id ?? "") === true ? root : undefined;
      const from = after === undefined ? 0 : Number(after.slice(24)) + 1;
      return run === undefined ? [] : ids.slice(from).map((run_id) => ({ ...run, key: { ...run.key, run_id } }));
    },
    delete(keys) {
      for (const { run_id } of keys) deleted.add(run_id);
      return keys.length;
    },
  });
  const { runtime } = setUp({ store });
  runtime.register("ends", () => "Done.");
  const { run_id } = await runtime.createRun({ agent_name: "ends", input: "" });
  root = await memory.find({ tenant: "", run_id });
  await runtime.delete(run_id);
  expect(deleted.size).toBe(ids.length + 1);
  await runtime.close();
});
