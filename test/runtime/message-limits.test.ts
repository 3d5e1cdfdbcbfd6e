import { expect, it } from "vitest";
import { refusal, setUp } from "../harness/runtimes.ts";

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

it("a runtime that was closed sends nothing", async () => {
  const { runtime } = setUp();
  runtime.register("agent", async (_input, { ask }) => JSON.stringify(await ask("?")));
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  await runtime.close({ drainMs: 0 });
  expect((await refusal(runtime.send({ to: run_id, name: "m", data: 1 }))).code).toBe("runtime_closed");
});
