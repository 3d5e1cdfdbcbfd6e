import { createRequire } from "node:module";
import type * as AcpClient from "acp-sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { OpenPlace } from "./mounts.ts";
import { nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

// The published ES module of the client does not load.
const { Client } = createRequire(import.meta.url)("acp-sdk") as typeof AcpClient;

const input = "hi";
const part = { content_type: "text/plain", content: "this", content_encoding: "plain" as const };
const answer = {
  type: "message" as const,
  message: { role: "user" as const, parts: [part], created_at: null, completed_at: null },
};

describe("the official TypeScript client", () => {
  const runtime = makeWorld();
  let place: OpenPlace;
  let client: InstanceType<typeof Client>;

  beforeAll(async () => {
    place = await nodeHttp.open(runtime);
    client = new Client({ baseUrl: place.base });
  });
  afterAll(async () => {
    await place.close();
    await runtime.close({ drainMs: 0 });
  });

  test("pings", async () => {
    await client.ping();
  });

  test("lists agents and reads one", async () => {
    const agents = await client.agents();
    expect(agents.map(({ name }) => name)).toContain("echo");
    expect(await client.agent("echo")).toMatchObject({ name: "echo", description: "Says it again." });
  });

  test("is told of an agent that does not exist", async () => {
    await expect(client.agent("nobody")).rejects.toMatchObject({ name: "ACPError", error: { code: "not_found" } });
  });

  test("runs an agent and waits", async () => {
    const run = await client.runSync("echo", input);
    expect(run).toMatchObject({ status: "completed", output: [{ parts: [{ content: "hi" }] }] });
  });

  test("runs an agent without waiting, and asks after it", async () => {
    const { run_id, status } = await client.runAsync("echo", input);
    expect(status).toBe("created");
    await settled(run_id);
    expect(await client.runStatus(run_id)).toMatchObject({ status: "completed" });
  });

  test("streams a run", async () => {
    const types: string[] = [];
    for await (const event of client.runStream("echo", input)) types.push(event.type);
    expect(types).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "message.completed", "run.completed"],
    ]);
  });

  test("leaves a stream, and the run goes on", async () => {
    const controller = new AbortController();
    let runId = "";
    const reading = (async () => {
      for await (const event of client.runStream("waiter", input, controller.signal)) {
        if (event.type === "run.in-progress") runId = event.run.run_id;
        if (event.type === "message.part") controller.abort();
      }
    })();
    await reading.catch(() => undefined);
    expect(await client.runStatus(runId)).toMatchObject({ status: "in-progress" });
    await client.runCancel(runId);
  });

  test("reads the events of a run", async () => {
    const { run_id } = await client.runSync("notes", input);
    const events = await client.runEvents(run_id);
    expect(events.map(({ type }) => type)).toContain("generic");
    expect(events.at(-1)?.type).toBe("run.completed");
  });

  test("cancels a run, also during its stream", async () => {
    const { run_id } = await client.runAsync("stubborn", input);
    expect(await client.runCancel(run_id)).toMatchObject({ status: "cancelling" });
    await settled(run_id);
    expect(await client.runStatus(run_id)).toMatchObject({ status: "cancelled" });
    let last = "";
    for await (const event of client.runStream("waiter", input)) {
      last = event.type;
      if (event.type === "run.in-progress") void client.runCancel(event.run.run_id);
    }
    expect(last).toBe("run.cancelled");
  });

  test("resumes a run and waits", async () => {
    const { run_id, await_request } = await client.runSync("asker", input);
    expect(await_request).toMatchObject({ type: "message" });
    expect(await client.runResumeSync(run_id, answer)).toMatchObject({ status: "awaiting" });
    expect(await client.runResumeSync(run_id, answer)).toMatchObject({ status: "completed", await_request: null });
  });

  test("resumes a run without waiting", async () => {
    const { run_id } = await client.runSync("asker", input);
    expect(await client.runResumeAsync(run_id, answer)).toMatchObject({ status: "in-progress" });
    await settled(run_id);
    expect(await client.runStatus(run_id)).toMatchObject({ status: "awaiting" });
  });

  test("resumes a run as a stream", async () => {
    const { run_id } = await client.runSync("asker", input);
    const types: string[] = [];
    for await (const event of client.runResumeStream(run_id, answer)) types.push(event.type);
    expect(types).toEqual(["run.in-progress", "message.part", "run.awaiting"]);
  });

  test("keeps a session", async () => {
    await client.withSession(async (session) => {
      const first = await session.runSync("memory", "one");
      const second = await session.runSync("memory", "two");
      expect(second.session_id).toBe(first.session_id);
      expect(second.output[0]?.parts[0]?.content).toBe("user:one|agent/memory:");
    });
  });

  test("is told why a run failed, and why a request was refused", async () => {
    expect(await client.runSync("failing", input)).toMatchObject({ status: "failed", error: { code: "not_found" } });
    const { run_id } = await client.runSync("echo", input);
    await expect(client.runCancel(run_id)).rejects.toMatchObject({ error: { code: "invalid_input" } });
    await expect(client.runResumeSync(run_id, answer)).rejects.toMatchObject({ error: { code: "invalid_input" } });
    await expect(client.runStatus("00000000-0000-4000-8000-000000000000")).rejects.toMatchObject({
      error: { code: "not_found" },
    });
  });

  async function settled(runId: string): Promise<void> {
    for await (const _ of runtime.events(runId)) {
      // Reading to the end is the waiting.
    }
  }
});
