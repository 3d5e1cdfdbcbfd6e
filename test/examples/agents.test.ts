import { randomUUID } from "node:crypto";
import { APICallError } from "ai";
import type { Message, Run } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { mockModel } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import { poet } from "../../examples/ai-sdk.ts";
import { booking } from "../../examples/approval.ts";
import { crawler } from "../../examples/cancel.ts";
import { chat } from "../../examples/chat.ts";
import { echo } from "../../examples/echo.ts";
import { critic, fan, jury } from "../../examples/orchestrator.ts";
import { dice } from "../../examples/statistics.ts";

const text = (messages: readonly Message[]): string =>
  messages.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join("");
const contents = ({ output }: Run): string => text(output);

describe("echo", () => {
  it("emits its input, message by message", async () => {
    const runtime = new AgentRuntime().register(echo);
    const input = [
      { parts: [{ content: "one" }] },
      { parts: [{ content: "e30=", content_encoding: "base64" as const }] },
    ];
    const { output } = await runtime.createRun({ agent_name: "echo", input });
    expect(output.map(({ parts }) => parts[0]?.content)).toEqual(["one", "e30="]);
    expect(output[0]?.role).toBe("agent/echo");
  });
});

describe("approval", () => {
  const start = async () => {
    const runtime = new AgentRuntime().register(booking);
    const { run_id, status } = await runtime.createRun({ agent_name: "booking", input: "Rome" });
    expect(status).toBe("awaiting");
    return { runtime, run_id };
  };

  it("books as many seats as the answer names", async () => {
    const { runtime, run_id } = await start();
    const run = await runtime.resume({ run_id, await_resume: { approved: true, seats: 3 } });
    expect(contents(run)).toBe("Found a train for: Rome.\nBooked 3 seat(s).\n");
  });

  it("books nothing when the answer is no, and one seat when it names none", async () => {
    const refused = await start();
    const no = await refused.runtime.resume({ run_id: refused.run_id, await_resume: { approved: false } });
    expect(contents(no)).toContain("Not booked.");
    const allowed = await start();
    const yes = await allowed.runtime.resume({ run_id: allowed.run_id, await_resume: { approved: true } });
    expect(contents(yes)).toContain("Booked 1 seat(s).");
  });

  it("goes on waiting after an answer that does not match its schema", async () => {
    const { runtime, run_id } = await start();
    const refusal = runtime.resume({ run_id, await_resume: { approved: true, seats: 0 } });
    await expect(refusal).rejects.toMatchObject({ code: "answer_rejected", issues: [{ path: ["seats"] }] });
    expect((await runtime.getRun(run_id)).status).toBe("awaiting");
  });
});

describe("the AI SDK", () => {
  it("streams the answer part by part and reports its tokens", async () => {
    const runtime = new AgentRuntime().register(poet(mockModel("one two three")));
    const parts: string[] = [];
    for await (const event of runtime.createRun({ agent_name: "poet", input: "Count.", mode: "stream" })) {
      if (event.type === "message.part") parts.push(event.part.content ?? "");
    }
    expect(parts).toEqual(["one ", "two ", "three"]);
    expect((await runtime.getAgent("poet")).status?.avg_run_tokens).toBe(13);
  });

  it.each(["at once", "half way"])("fails the run with the model's own error when it fails %s", async (when) => {
    const request = { url: "https://model.example", requestBodyValues: {} };
    const refused = new APICallError({ ...request, message: "no such key", statusCode: 401, isRetryable: false });
    const model = mockModel([when === "half way" ? ["half", refused] : refused]);
    const runtime = new AgentRuntime({ exposeErrors: true }).register(poet(model));
    const run = await runtime.createRun({ agent_name: "poet", input: "Count." });
    expect(run).toMatchObject({ status: "failed", error: { message: "no such key" } });
    expect(contents(run)).toBe(when === "half way" ? "half" : "");
  });

  it("gives the model the text and the picture of its input", async () => {
    const prompts: unknown[] = [];
    const model = mockModel(({ prompt }) => `${prompts.push(prompt[0]?.content)}`);
    const runtime = new AgentRuntime().register(poet(model));
    const picture = { content_type: "image/png", content_encoding: "base64" as const, content: "aGk=" };
    await runtime.createRun({ agent_name: "poet", input: [{ parts: [{ content: "A line." }, picture] }] });
    expect(prompts).toMatchObject([
      [
        { type: "text", text: "A line." },
        { type: "file", mediaType: "image/png" },
      ],
    ]);
  });
});

describe("chat", () => {
  it("gives the model the earlier messages of the session", async () => {
    const prompts: number[] = [];
    const model = mockModel(({ prompt }) => `answer ${prompts.push(prompt.length)}`);
    const runtime = new AgentRuntime().register(chat(model));
    const session_id = randomUUID();
    for (const input of ["first", "second"]) await runtime.createRun({ agent_name: "chat", input, session_id });
    await runtime.createRun({ agent_name: "chat", input: "elsewhere" });
    expect(prompts).toEqual([1, 3, 1]);
  });
});

describe("orchestrator", () => {
  it("runs its jurors in order and adds their tokens to its own", async () => {
    const runtime = new AgentRuntime().register(critic).register(fan).register(jury);
    const run = await runtime.createRun({ agent_name: "jury", input: "La Mer" });
    expect(contents(run)).toBe(
      'The jury withdraws.\ncritic: "La Mer" lacks drama.\nfan: "La Mer" moved me to tears.\n',
    );
    expect((await runtime.getAgent("jury")).status?.avg_run_tokens).toBe(212);
  });

  it("fails when a juror fails", async () => {
    const absent = defineAgent("fan", () => {
      throw new Error("overslept");
    });
    const runtime = new AgentRuntime().register(critic).register(absent).register(jury);
    const { status, error } = await runtime.createRun({ agent_name: "jury", input: "La Mer" });
    expect(status).toBe("failed");
    expect(error?.message).toBe("A juror is missing: The agent failed.");
  });
});

describe("cancel", () => {
  it("closes what it opened, and keeps what it emits then", async () => {
    const runtime = new AgentRuntime().register(crawler);
    const { run_id } = await runtime.createRun({ agent_name: "crawler", input: "Go", mode: "async" });
    for await (const event of runtime.events(run_id)) {
      if (event.type === "message.part") await runtime.cancel(run_id);
    }
    const run = await runtime.getRun(run_id);
    expect(run.status).toBe("cancelled");
    expect(contents(run)).toMatch(/^Opened a browser\.\n.*Closed the browser\.\n$/s);
  });
});

describe("statistics", () => {
  it("counts a run that failed against the agent, and one that was cancelled not at all", async () => {
    const runtime = new AgentRuntime().register(dice);
    const failed = await runtime.createRun({ agent_name: "dice", input: "7" });
    expect(failed.error).toMatchObject({ code: "invalid_input", data: { bet: 7 } });
    const won = await runtime.createRun({ agent_name: "dice", input: "5" });
    expect(contents(await runtime.resume({ run_id: won.run_id, await_resume: { roll: true } }))).toBe("Won.");
    const { run_id } = await runtime.createRun({ agent_name: "dice", input: "1" });
    await runtime.cancel(run_id);
    expect((await runtime.getAgent("dice")).status?.success_rate).toBe(50);
  });
});
