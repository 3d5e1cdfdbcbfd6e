import { describe, expect, it } from "vitest";
import { refusal, setUp } from "../../harness/runtimes.ts";

it("a message larger than limits.maxPartBytes is refused, and nothing arrives", async () => {
  const { runtime } = setUp({ limits: { maxPartBytes: 100 } });
  runtime.register("agent", async (_input, { receive }) =>
    JSON.stringify(await receive("m", { timeoutMs: 0, default: 0 })),
  );
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const refused = await refusal(runtime.send({ to: run_id, name: "m", data: "x".repeat(101) }));
  expect(refused).toMatchObject({ code: "limit_reached", limit: "maxPartBytes" });
});

it("messages do not grow a log beyond limits.maxLogEntries", async () => {
  const { runtime } = setUp({ limits: { maxLogEntries: 10 } });
  runtime.register("agent", async (_input, { ask }) => JSON.stringify(await ask("?")));
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  let sent = 0;
  const sendAll = async () => {
    for (; sent < 20; sent++) await runtime.send({ to: run_id, name: "m", data: sent });
  };
  expect(await refusal(sendAll())).toMatchObject({ code: "limit_reached", limit: "maxLogEntries" });
  expect(sent).toBe(7);
  expect((await runtime.resume({ run_id, await_resume: { ok: true } })).status).toBe("failed");
});

describe.each([
  { limit: "maxWaitingMessages", limits: { maxWaitingMessages: 3 }, data: "x", room: 3 },
  // Each has as many bytes as its JSON in UTF-8, which has quotes.
  { limit: "maxWaitingBytes", limits: { maxWaitingBytes: 4 * 22 }, data: "ä".repeat(10), room: 4 },
])("limits.$limit", ({ limit, limits, data, room }) => {
  const open = async () => {
    const { runtime } = setUp({ limits });
    runtime.register("agent", async (_input, { ask, receive }) => {
      for (;;) {
        await ask("Go on?");
        await receive("m");
      }
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    const send = (idempotencyKey?: string) => runtime.send({ to: run_id, name: "m", data }, { idempotencyKey });
    return { runtime, run_id, send };
  };

  it("refuses one more message than may wait, until the agent has received one", async () => {
    const { runtime, run_id, send } = await open();
    for (let sent = 0; sent < room; sent++) await send();
    expect(await refusal(send())).toMatchObject({ code: "limit_reached", limit, run_id });
    const run = await runtime.resume({ run_id, await_resume: { ok: true } });
    expect(run.status).toBe("awaiting");
    await send();
    expect(await refusal(send())).toMatchObject({ code: "limit_reached", limit });
  });

  it("counts messages that are sent at once", async () => {
    const { send } = await open();
    const sent = await Promise.allSettled(Array.from({ length: 2 * room }, () => send()));
    expect(sent.map(({ status }) => status)).toEqual([
      ...Array.from({ length: room }, () => "fulfilled"),
      ...Array.from({ length: room }, () => "rejected"),
    ]);
  });

  it("does not refuse a message that has arrived before, and tells another one under its key", async () => {
    const { runtime, run_id, send } = await open();
    for (let sent = 0; sent < room; sent++) await send(`${sent}`);
    expect(await send("1")).toEqual({ run_id });
    const other = runtime.send({ to: run_id, name: "m", data: "other" }, { idempotencyKey: "1" });
    expect((await refusal(other)).code).toBe("idempotency_conflict");
    await runtime.cancel(run_id);
    expect((await refusal(send())).code).toMatch(/run_(cancelling|finished)/);
  });
});

it("a runtime that was closed sends nothing", async () => {
  const { runtime } = setUp();
  runtime.register("agent", async (_input, { ask }) => JSON.stringify(await ask("?")));
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  await runtime.close({ drainMs: 0 });
  expect((await refusal(runtime.send({ to: run_id, name: "m", data: 1 }))).code).toBe("runtime_closed");
});
