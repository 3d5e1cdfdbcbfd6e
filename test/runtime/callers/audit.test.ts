import type { AuditRecord, RuntimeOptions } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { eventually } from "../../harness/eventually.ts";
import { refusal, setUp } from "../../harness/runtimes.ts";
import { failingStore } from "../../harness/store-proxy.ts";

/* `onAudit`: what it is told of calls, and what happens to calls when it fails. */

const ada = { name: "Ada" };
const bob = { name: "Bob" };

function open(options: RuntimeOptions = {}) {
  const records: AuditRecord[] = [];
  const setup = setUp({ onAudit: (record) => void records.push(record), ...options });
  const { runtime } = setup;
  runtime.register("asks", { durable: true }, async (_input, { ask }) => {
    await ask("Well?");
  });
  runtime.register("waits", { durable: true }, async (_input, { receive }) => {
    await receive("news");
  });
  const user = runtime.scope({ tenant: "blue", principal: ada });
  const other = runtime.scope({ tenant: "blue", principal: bob });
  /** The records since the last look, without what all have. */
  const told = (): object[] =>
    records.splice(0).map(({ at, tenant, ...record }) => {
      expect([typeof at, tenant]).toEqual(["string", "blue"]);
      return record;
    });
  return { ...setup, user, other, told, records };
}

const answer = { await_resume: { ok: true } };

describe("what was done before is told as repeated, with who repeats it", () => {
  it("a run of an idempotency key", async () => {
    const { user, other, told } = open();
    const request = { agent_name: "asks", input: "x" } as const;
    const { run_id, session_id } = await user.createRun(request, { idempotencyKey: "one" });
    const done = { action: "create", outcome: "done", run_id, session_id, agent_name: "asks" };
    expect(told()).toEqual([{ ...done, by: ada }]);
    await other.createRun(request, { idempotencyKey: "one" });
    expect(told()).toEqual([{ ...done, by: bob, repeated: true }]);
    await refusal(other.createRun({ ...request, input: "y" }, { idempotencyKey: "one" }));
    const refused = { action: "create", outcome: "refused", code: "idempotency_conflict" };
    expect(told()).toEqual([{ ...refused, by: bob, agent_name: "asks" }]);
  });

  it("an answer, by its question and by its key", async () => {
    const { user, other, told } = open();
    const { run_id, session_id } = await user.createRun({ agent_name: "asks", input: "x" });
    told();
    await user.resume({ run_id, ...answer }, { idempotencyKey: "two" });
    const done = { action: "answer", outcome: "done", run_id, session_id, agent_name: "asks", await_id: "ask#1" };
    expect(told()).toEqual([{ ...done, by: ada }]);
    await other.resume({ run_id, await_id: "ask#1", ...answer });
    await other.resume({ run_id, ...answer }, { idempotencyKey: "two" });
    expect(told()).toEqual([
      { ...done, by: bob, repeated: true },
      { ...done, by: bob, repeated: true },
    ]);
    await refusal(other.resume({ run_id, await_id: "ask#1", decline: {} }));
    const { session_id: _session, agent_name: _agent, ...about } = done;
    expect(told()).toEqual([{ ...about, action: "decline", outcome: "refused", by: bob, code: "answer_conflict" }]);
  });

  it("a cancel, a message, and a fork", async () => {
    const { user, other, told } = open();
    const { run_id, session_id } = await user.createRun({ agent_name: "waits", input: "x", mode: "async" });
    await eventually(() => expect(told()).toHaveLength(1));
    const about = { run_id, session_id, agent_name: "waits" };
    await user.send({ to: run_id, name: "other", data: 1 }, { idempotencyKey: "m" });
    await other.send({ to: run_id, name: "other", data: 1 }, { idempotencyKey: "m" });
    const sent = { action: "send", outcome: "done", run_id, message_name: "other" };
    expect(told()).toEqual([
      { ...sent, by: ada },
      { ...sent, by: bob, repeated: true },
    ]);
    const fork = await user.fork(run_id, { idempotencyKey: "f", mode: "async" });
    await other.fork(run_id, { idempotencyKey: "f", mode: "async" });
    const forked = { ...about, action: "fork", outcome: "done", fork_run_id: fork.run_id };
    expect(told()).toEqual([
      { ...forked, by: ada },
      { ...forked, by: bob, repeated: true },
    ]);
    await user.cancel(run_id, { wait: true });
    await other.cancel(run_id);
    expect(told()).toEqual([
      { ...about, action: "cancel", outcome: "done", by: ada },
      { ...about, action: "cancel", outcome: "done", by: bob, repeated: true },
    ]);
    await refusal(other.send({ to: run_id, name: "other", data: 2 }));
    const late = { action: "send", run_id, message_name: "other", outcome: "refused", code: "run_finished" };
    expect(told()).toEqual([{ ...late, by: bob }]);
  });
});

it("refused calls are told with their code, and calls that cannot be read are not", async () => {
  const { user, told } = open();
  const { run_id, session_id } = await user.createRun({ agent_name: "asks", input: "x" });
  told();
  const unknown = "00000000-0000-4000-8000-0000000000ff";
  await refusal(user.delete(run_id));
  await refusal(user.deleteSession(session_id));
  await refusal(user.cancel(unknown));
  await refusal(user.fork(unknown));
  await refusal(user.resume({ run_id: unknown, ...answer }));
  await refusal(user.createRun({ agent_name: "absent", input: "x" }));
  expect(told()).toEqual(
    [
      { action: "delete", run_id, code: "run_not_ended" },
      { action: "deleteSession", session_id, code: "run_not_ended" },
      { action: "cancel", run_id: unknown, code: "run_not_found" },
      { action: "fork", run_id: unknown, code: "run_not_found" },
      { action: "answer", run_id: unknown, code: "run_not_found" },
      { action: "create", agent_name: "absent", code: "agent_not_found" },
    ].map((record) => ({ ...record, outcome: "refused", by: ada })),
  );
  await refusal(user.cancel("x"));
  await refusal(user.createRun({ agent_name: "asks" } as never));
  await refusal(user.send({ to: run_id, name: "", data: 1 }));
  expect(told()).toEqual([]);
  await user.cancel(run_id, { wait: true });
  told();
  await user.delete(run_id);
  expect(told()).toEqual([{ action: "delete", outcome: "done", by: ada, run_id, session_id, agent_name: "asks" }]);
});

it("a call whose outcome the store does not say is told as unknown", async () => {
  const { store, failing } = failingStore();
  const { user, told, clock } = open({ store });
  const { run_id } = await user.createRun({ agent_name: "asks", input: "x" });
  told();
  failing.append = 1;
  expect((await refusal(user.cancel(run_id))).code).toBe("store_failed");
  expect(told()).toEqual([{ action: "cancel", run_id, by: ada, outcome: "unknown", code: "store_failed" }]);
  failing.create = 1;
  await refusal(user.createRun({ agent_name: "asks", input: "x" }, { idempotencyKey: "k" }));
  expect(told()).toMatchObject([{ action: "create", outcome: "unknown", code: "store_failed" }]);
  await clock.advance(60_000);
});

it("a stream that is created is told once, and a call of an agent as its run and its answer", async () => {
  const { user, told, runtime } = open();
  for await (const event of user.createRun({ agent_name: "asks", input: "x", mode: "stream" }))
    expect(event).toBeDefined();
  expect(told()).toMatchObject([{ action: "create", outcome: "done" }]);
  runtime.register("parent", { durable: true }, async (_input, { run }) => void (await run("asks", "x")));
  const { run_id, await_request } = await user.createRun({ agent_name: "parent", input: "x" });
  // A sub-run is the work of an agent.
  expect(told()).toMatchObject([{ action: "create", run_id }]);
  await user.resume({ run_id, ...answer });
  expect(told()).toMatchObject([{ action: "answer", run_id, agent_name: "parent", await_id: expect.any(String) }]);
  expect(await_request).not.toBeNull();
});

describe("a hook that fails has no effect on the call, and the logger is told", () => {
  const hooks: Readonly<Record<string, () => unknown>> = {
    throws: () => {
      throw new Error("No.");
    },
    rejects: () => Promise.reject(new Error("No.")),
    "is a thenable that throws": () => ({
      // biome-ignore lint/suspicious/noThenProperty: what a host may return
      then: () => {
        throw new Error("No.");
      },
    }),
    "never settles": () => new Promise(() => {}),
  };

  it.each(Object.keys(hooks))("%s", async (name) => {
    const { user, said } = open({ onAudit: hooks[name] as () => void });
    const { run_id } = await user.createRun({ agent_name: "asks", input: "x" });
    expect((await user.resume({ run_id, ...answer })).status).toBe("completed");
    await user.delete(run_id);
    await refusal(user.cancel(run_id));
    const lines = said.filter(({ message }) => message === "onAudit failed.");
    expect(lines.map(({ level, fields }) => [level, fields["action"], fields["run_id"]])).toEqual(
      name === "never settles"
        ? []
        : [
            ["error", "create", run_id],
            ["error", "answer", run_id],
            ["error", "delete", run_id],
            ["error", "cancel", run_id],
          ],
    );
  });
});

it("the record is the hook's own, and the option has to be a function", async () => {
  const { user, told, runtime } = open({
    onAudit: (record) => void Object.assign(record, { by: "x", action: "y" }),
  });
  const { run_id } = await user.createRun({ agent_name: "asks", input: "x" });
  await user.resume({ run_id, ...answer });
  expect(told()).toEqual([]);
  expect((await runtime.scope({ tenant: "blue" }).details(run_id)).status).toBe("completed");
  expect(() => new AgentRuntime({ onAudit: "x" as never })).toThrow(/options\.onAudit/);
  expect(() => new AgentRuntime({ store: durable(new MemoryStore()), onAudit: undefined })).not.toThrow();
});
