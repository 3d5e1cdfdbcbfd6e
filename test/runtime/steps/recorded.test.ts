import { rmSync } from "node:fs";
import { join } from "node:path";
import type {} from "cadenza";
import { AgentError, AgentRuntime, CadenzaError, defineAgent, MemoryStore } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { drive } from "cadenza/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import type { DurableRuntimeOptions } from "../../harness/durable-runtime.ts";
import { onDurableStore } from "../../harness/durable-runtime.ts";
import { refusal, textsOf } from "../../harness/runtimes.ts";
import { openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";

function sqlite(): SqliteStore {
  const folder = temporaryFolder();
  const store = new SqliteStore(openDatabase(join(folder.path, "runs.db")), { closeDatabase: true });
  onTestFinished(() => {
    store.close();
    rmSync(folder.path, { recursive: true, force: true });
  });
  return store;
}

const places: readonly [title: string, options: () => DurableRuntimeOptions][] = [
  ["in memory", () => ({})],
  ["in memory, and replayed after every commit", () => ({ durability: { alwaysReplay: true } })],
  ["on SQLite", () => ({ store: sqlite() })],
  ["on SQLite, and replayed after every commit", () => ({ store: sqlite(), durability: { alwaysReplay: true } })],
];

describe.each(places)("the result of a durable step, %s,", (_title, options) => {
  /** Runs a durable agent that calls one step, and gives the step's result or error. */
  async function resultOf(body: () => unknown, retry?: { readonly attempts: number }): Promise<unknown> {
    const runtime = new AgentRuntime(onDurableStore({ ...options(), exposeErrors: true }));
    let given: unknown;
    runtime.register("agent", { durable: true }, async (_input, { step }) => {
      given = await step("fetch", body, retry === undefined ? {} : { retry }).catch((error: unknown) => error);
      await step("again", () => 1);
    });
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(run.status).toBe("completed");
    await runtime.close();
    return given;
  }

  it("is a JSON value, without the keys that are undefined", async () => {
    const value = { text: "a", list: [1, null, { deep: true }], none: undefined };
    expect(await resultOf(() => value)).toStrictEqual({ text: "a", list: [1, null, { deep: true }] });
    expect(await resultOf(() => undefined)).toBeUndefined();
    expect(Object.is(await resultOf(() => -0), 0)).toBe(true);
  });

  it("is refused if JSON would change it, with its step and its path", async () => {
    const error = await resultOf(() => ({ items: [{ at: 1 }, { at: new Date(0) }] }));
    expect(error).toMatchObject({
      code: "invalid_argument",
      message:
        "Step fetch#1: result.items[1].at: expected a JSON value, received a Date. The result of a durable step is recorded as JSON. " +
        "JSON has texts, finite numbers, true, false, null, lists and plain objects.",
      issues: [{ path: ["result", "items", 1, "at"] }],
    });
    for (const lossy of [new Map(), new Set(), new Uint8Array(1), Number.NaN, [undefined], () => 1, 5n, new URL("a:b")])
      expect(await resultOf(() => lossy)).toMatchObject({ code: "invalid_argument" });
  });

  it("is refused without another attempt, since the body has had its effects", async () => {
    let calls = 0;
    const error = await resultOf(
      () => {
        calls += 1;
        return new Date(0);
      },
      { attempts: 3 },
    );
    expect(error).toMatchObject({ code: "invalid_argument" });
    expect(calls).toBe(1);
  });

  it("is a copy: the agent's changes to it do not change the log", async () => {
    const runtime = new AgentRuntime(onDurableStore(options()));
    runtime.register("agent", { durable: true }, async function* (_input, { step }) {
      const list = await step("list", () => [1]);
      list.push(2);
      await step("again", () => 1);
      yield JSON.stringify(list);
    });
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(textsOf(run)).toEqual(["[1,2]"]);
    expect((await runtime.stats()).differences).toBe(0);
    await runtime.close();
  });

  it("that is an error has details as JSON", async () => {
    const data = { at: new Date(0) as unknown as string };
    const error = await resultOf(() => {
      throw new AgentError("late", "Too late.", data);
    });
    expect(error).toMatchObject({ code: "late", data: { at: "1970-01-01T00:00:00.000Z" } });
    const limit = new CadenzaError("limit_reached", "Too many.", { limit: "maxLiveRuns", agent_name: "other" });
    expect(
      await resultOf(() => {
        throw limit;
      }),
    ).toMatchObject({ code: "limit_reached", limit: "maxLiveRuns", agent_name: "other" });
  });
});

it("the step of an agent that is not durable gives the result of its function unchanged", async () => {
  const runtime = new AgentRuntime();
  const map = new Map([["a", new Date(0)]]);
  let given: unknown;
  runtime.register("agent", async (_input, { step }) => {
    given = await step("fetch", () => map);
  });
  await runtime.createRun({ agent_name: "agent", input: "" });
  expect(given).toBe(map);
});

it("the test kit gives a durable agent the same results, and refuses the same", async () => {
  const agent = defineAgent("agent", { durable: true }, async (_input, { step }) => {
    const error = await step("fetch", (): unknown => ({ at: new Date(0) })).catch((thrown: unknown) => thrown);
    return CadenzaError.is(error) ? error.message : "taken";
  });
  const t = drive(agent, "x");
  await t.finish();
  expect(t.text()).toMatch(/^Step fetch#1: result\.at: expected a JSON value, received a Date\./);
});

it.each(places)("the state of a session is refused if JSON would change it, %s", async (_title, options) => {
  const runtime = new AgentRuntime(onDurableStore(options()));
  runtime.register("agent", { durable: true }, async (_input, { session }) => {
    const set = session.setState({ seen: [Number.NaN] }).catch((error: unknown) => error);
    const error = await set;
    return CadenzaError.is(error) ? error.message : "taken";
  });
  const run = await runtime.createRun({ agent_name: "agent", input: "" });
  expect(textsOf(run)[0]).toMatch(/^state\.seen\[0\]: expected a JSON value, received NaN\. It is kept as JSON\./);
  expect((await runtime.getSession(run.session_id)).state).toBeNull();
  await runtime.close();
});

it("a principal, a session and an answer are refused if JSON would change them", async () => {
  const runtime = new AgentRuntime({ store: new MemoryStore() });
  runtime.register("asks", async (_input, { ask }) => JSON.stringify(await ask("?")));
  const at = new Date(0) as unknown as string;
  expect(() => runtime.scope({ principal: { at } })).toThrow(
    "options.principal.at: expected a JSON value, received a Date",
  );
  const session = { history: [], state: { at } };
  expect(await refusal(runtime.createRun({ agent_name: "asks", input: "" }, { session }))).toMatchObject({
    code: "invalid_argument",
    issues: [{ path: ["options", "session", "state", "at"] }],
  });
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
  expect(await refusal(runtime.resume({ run_id, await_resume: { at } }))).toMatchObject({
    code: "invalid_argument",
    issues: [{ path: ["await_resume", "at"] }],
  });
});
