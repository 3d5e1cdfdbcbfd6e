import { createRequire } from "node:module";
import type * as AcpClient from "acp-sdk";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import type { OpenPlace } from "./mounts.ts";
import { nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

// The published ES module of the client does not load.
const { Client } = createRequire(import.meta.url)("acp-sdk") as typeof AcpClient;

/** The text of the question that a run shows. */
function shownBy({ await_request }: AcpClient.Run): string | null | undefined {
  return await_request?.type === "message" ? await_request.message.parts[0]?.content : undefined;
}

const input = "hi";
const part = { content_type: "text/plain", content: "this", content_encoding: "plain" as const };
const answer = {
  type: "message" as const,
  message: { role: "user" as const, parts: [part], created_at: null, completed_at: null },
};

describe.each([false, true])("the official TypeScript client, extensions %s", (extensions) => {
  const clock = new FakeClock();
  // Agents have the default time to stop.
  const runtime = makeWorld({ clock, cancelGraceMs: undefined });
  let finish: () => void = () => {};
  runtime.register("patient", async function* () {
    yield "I wait";
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    yield "I have waited";
  });
  let place: OpenPlace;
  let client: InstanceType<typeof Client>;

  beforeAll(async () => {
    place = await nodeHttp.open(runtime, { extensions });
    client = new Client({ baseUrl: place.base });
  });
  afterAll(async () => {
    await place.close();
    await runtime.close({ drainMs: 0 });
  });

  it("pings", async () => {
    await client.ping();
  });

  it("lists agents and reads one", async () => {
    const agents = await client.agents();
    expect(agents.map(({ name }) => name)).toContain("echo");
    expect(await client.agent("echo")).toMatchObject({ name: "echo", description: "Says it again." });
  });

  it("reads the whole manifest of an agent", async () => {
    const { metadata, input_content_types } = await client.agent("described");
    expect(input_content_types).toEqual(["text/plain"]);
    expect(metadata).toMatchObject({
      annotations: { beeai_ui: { ui_type: "chat", user_greeting: "Hello" } },
      author: { name: "Ada", url: "https://example.com/ada" },
      links: [{ type: "source-code", url: "https://example.com/code" }],
      dependencies: [{ type: "tool", name: "hammer" }],
      created_at: "2025-04-01T12:00:00.123456Z",
    });
  });

  it("is told that an agent does not exist", async () => {
    await expect(client.agent("missing")).rejects.toMatchObject({ name: "ACPError", error: { code: "not_found" } });
  });

  it("runs an agent and waits", async () => {
    const run = await client.runSync("echo", input);
    expect(run).toMatchObject({ status: "completed", output: [{ parts: [{ content: "hi" }] }] });
  });

  it("runs an agent without waiting, and reads the run later", async () => {
    const { run_id, status } = await client.runAsync("echo", input);
    expect(status).toBe("created");
    await settled(run_id);
    expect(await client.runStatus(run_id)).toMatchObject({ status: "completed" });
  });

  it("streams a run", async () => {
    const types: string[] = [];
    for await (const event of client.runStream("echo", input)) types.push(event.type);
    expect(types).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "message.completed", "run.completed"],
    ]);
  });

  it("disconnects from a stream, and the run goes on to its end", async () => {
    const controller = new AbortController();
    const stream = client.runStream("patient", input, controller.signal);
    const runId = await untilPart(stream, controller);
    expect(await client.runStatus(runId)).toMatchObject({ status: "in-progress" });
    finish();
    await settled(runId);
    expect(await client.runStatus(runId)).toMatchObject({
      status: "completed",
      output: [{ parts: [{ content: "I wait" }, { content: "I have waited" }] }],
    });
  });

  it("disconnects from the stream of an answer, and the run goes on", async () => {
    const { run_id } = await client.runSync("asker", input);
    const controller = new AbortController();
    await untilPart(client.runResumeStream(run_id, answer, controller.signal), controller);
    await settled(run_id);
    expect(await client.runResumeSync(run_id, answer)).toMatchObject({ status: "completed" });
  });

  it("ignores keep-alive comments in a stream", async () => {
    const types: string[] = [];
    for await (const event of client.runStream("patient", input)) {
      types.push(event.type);
      if (event.type !== "message.part" || types.includes("run.completed")) continue;
      if (types.filter((type) => type === "message.part").length > 1) continue;
      for (let beats = 0; beats < 3; beats++) await clock.advance(8_000);
      finish();
    }
    expect(types).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "message.part", "message.completed"],
      "run.completed",
    ]);
  });

  it("reads the events of a run", async () => {
    const { run_id } = await client.runSync("notes", input);
    const events = await client.runEvents(run_id);
    expect(events.map(({ type }) => type)).toContain("generic");
    expect(events.at(-1)?.type).toBe("run.completed");
  });

  it("cancels a run that ignores its signal, within a second", async () => {
    const { run_id } = await client.runAsync("stubborn", input);
    expect(await client.runCancel(run_id)).toMatchObject({ status: "cancelling" });
    await clock.advance(999);
    expect(await client.runStatus(run_id)).toMatchObject({ status: "cancelled", error: null });
    await client.runCancel(run_id);
  });

  it("cancels a run during its stream, and the stream ends with the cancelled run", async () => {
    const types: string[] = [];
    for await (const event of client.runStream("waiter", input)) {
      types.push(event.type);
      if (event.type === "message.part") await client.runCancel(await onlyRunOf("waiter"));
    }
    expect(types.slice(-2)).toEqual(["message.part", "run.cancelled"]);
  });

  it("resumes a run and waits", async () => {
    const { run_id, await_request } = await client.runSync("asker", input);
    expect(await_request).toMatchObject({ type: "message" });
    expect(await client.runResumeSync(run_id, answer)).toMatchObject({ status: "awaiting" });
    expect(await client.runResumeSync(run_id, answer)).toMatchObject({ status: "completed", await_request: null });
  });

  it("resumes a run without waiting", async () => {
    const { run_id } = await client.runSync("asker", input);
    expect(await client.runResumeAsync(run_id, answer)).toMatchObject({ status: "in-progress" });
    await settled(run_id);
    expect(await client.runStatus(run_id)).toMatchObject({ status: "awaiting" });
  });

  it("resumes a run as a stream", async () => {
    const { run_id } = await client.runSync("asker", input);
    const types: string[] = [];
    for await (const event of client.runResumeStream(run_id, answer)) types.push(event.type);
    expect(types).toEqual([
      ...["run.in-progress", "message.created", "message.part", "message.completed", "run.awaiting"],
    ]);
  });

  it("answers two questions that are open at once, one after the other", async () => {
    const first = await client.runSync("twofold", input);
    const second = await client.runResumeSync(first.run_id, answer);
    expect(shownBy(first)).toBe("One?");
    expect(shownBy(second)).toBe("Two?");
    expect(await client.runResumeSync(first.run_id, answer)).toMatchObject({
      status: "completed",
      output: [{ parts: [{ content: "Got this and this." }] }],
    });
  });

  it("answers two questions that are open at once without waiting", async () => {
    const { run_id } = await client.runAsync("twofold", input);
    await settled(run_id);
    for (const question of ["One?", "Two?"]) {
      expect(shownBy(await client.runStatus(run_id))).toBe(question);
      expect(await client.runResumeAsync(run_id, answer)).toMatchObject({ status: "in-progress" });
      await settled(run_id);
    }
    expect(await client.runStatus(run_id)).toMatchObject({ status: "completed" });
  });

  it("answers two questions that are open at once as streams", async () => {
    const types: string[][] = [[], [], []];
    let runId = "";
    for await (const event of client.runStream("twofold", input)) {
      types[0]?.push(event.type);
      if (event.type === "run.awaiting") runId = event.run.run_id;
    }
    for (const read of types.slice(1))
      for await (const event of client.runResumeStream(runId, answer)) read.push(event.type);
    expect(types).toEqual([
      ["run.created", "run.in-progress", "run.awaiting"],
      ["run.in-progress", "run.awaiting"],
      ["run.in-progress", "message.created", "message.part", "message.completed", "run.completed"],
    ]);
  });

  it("keeps a session", async () => {
    await client.withSession(async (session) => {
      const first = await session.runSync("memory", "one");
      const second = await session.runSync("memory", "two");
      expect([first.session_id, second.session_id]).toEqual([session.sessionId, session.sessionId]);
      expect(second.output[0]?.parts[0]?.content).toBe("user:one|agent/memory:");
    });
  });

  it("keeps a session whose id it was given", async () => {
    const sessionId = crypto.randomUUID();
    await client.withSession((session) => session.runSync("echo", "one"), sessionId);
    const other = new Client({ baseUrl: `${place.base}/`, sessionId });
    expect((await other.runSync("memory", "two")).output[0]?.parts[0]?.content).toBe("user:one|agent/echo:one");
  });

  it("is told why a run failed, and why a request was refused", async () => {
    expect(await client.runSync("failing", input)).toMatchObject({ status: "failed", error: { code: "not_found" } });
    const { run_id } = await client.runSync("echo", input);
    await expect(client.runCancel(run_id)).rejects.toMatchObject({ error: { code: "invalid_input" } });
    await expect(client.runResumeSync(run_id, answer)).rejects.toMatchObject({ error: { code: "invalid_input" } });
    const missing = client.runStream("missing", input);
    await expect(missing.next()).rejects.toMatchObject({ error: { code: "not_found" } });
    const types: string[] = [];
    for await (const event of client.runStream("failing", input)) types.push(event.type);
    expect(types.at(-1)).toBe("run.failed");
    await expect(client.runEvents("00000000-0000-4000-8000-000000000000")).rejects.toMatchObject({
      error: { code: "not_found" },
    });
    await expect(
      client.runSync("echo", { content: "x", content_url: "https://x.example" } as never),
    ).rejects.toMatchObject({
      error: { code: "invalid_input" },
    });
    await expect(client.runStatus("00000000-0000-4000-8000-000000000000")).rejects.toMatchObject({
      error: { code: "not_found" },
    });
  });

  /** Reads a stream up to its first part, and disconnects. */
  async function untilPart(stream: ReturnType<typeof client.runStream>, controller: AbortController): Promise<string> {
    let runId = "";
    const reading = (async () => {
      for await (const event of stream) {
        if ("run" in event) runId = event.run.run_id;
        if (event.type === "message.part") controller.abort();
      }
    })();
    await reading.catch(() => undefined);
    expect(controller.signal.aborted).toBe(true);
    return runId;
  }

  async function onlyRunOf(agent_name: string): Promise<string> {
    const [run] = await runtime.listRuns({ agent_name, status: "in-progress" });
    return run?.run_id ?? "";
  }

  async function settled(runId: string): Promise<void> {
    for await (const _ of runtime.events(runId)) {
      // Waits for the end of the stream.
    }
  }
});
