import type { ChatState, ChatStatus } from "ai";
import { AbstractChat } from "ai";
import type { AgentFunction } from "cadenza";
import { AgentError } from "cadenza";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import * as z from "zod";
import { GET, POST } from "../../examples/http/nextjs/app/api/agents/[...path]/route.ts";
import type { AgentMessage } from "../../examples/http/nextjs/app/chat/chunks.ts";
import { agentTransport } from "../../examples/http/nextjs/app/chat/transport.ts";
import { runtime } from "../../examples/http/nextjs/runtime.ts";
import { deferred } from "../harness/promises.ts";

/** What `useChat` keeps in React's state, here in plain fields. */
class PlainState implements ChatState<AgentMessage> {
  status: ChatStatus = "ready";
  error: Error | undefined = undefined;
  messages: AgentMessage[] = [];
  pushMessage = (message: AgentMessage): void => void this.messages.push(message);
  popMessage = (): void => void this.messages.pop();
  replaceMessage = (index: number, message: AgentMessage): void => void this.messages.splice(index, 1, message);
  snapshot = <T>(thing: T): T => structuredClone(thing);
}

/** The engine of `useChat`, without React. */
class Chat extends AbstractChat<AgentMessage> {
  constructor(agent: AgentFunction) {
    runtime.register("agent", { replace: true }, agent);
    super({ id: crypto.randomUUID(), transport: agentTransport("agent"), state: new PlainState() });
  }

  /** The parts of the last message, without those that only count steps. */
  get parts(): AgentMessage["parts"] {
    return this.lastMessage?.role === "assistant" ? this.lastMessage.parts : [];
  }
}

/** Requests that were sent to the service. */
const sent: string[] = [];

beforeEach(() => {
  sent.length = 0;
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
    sent.push(url);
    return POST(new Request(`http://next.test${url}`, init));
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

it("the route serves agents and runs", async () => {
  expect((await GET(new Request("http://next.test/api/agents/agents"))).status).toBe(200);
  const chat = new Chat(async function* (input) {
    yield* (input[0]?.parts[0]?.content ?? "").split(/(?<= )/);
  });
  await chat.sendMessage({ text: "a b" });
  expect(chat.status).toBe("ready");
  expect(chat.parts).toEqual([{ type: "text", text: "a b", state: "done" }]);
});

describe("useChat is told", () => {
  it("that a run failed, and does not take a partial text as complete", async () => {
    const chat = new Chat(async function* () {
      yield "Half a";
      throw new AgentError("server_error", "The kitchen is on fire.");
    });
    await chat.sendMessage({ text: "Dinner?" });
    expect(chat.status).toBe("error");
    expect(chat.error?.message).toBe("The kitchen is on fire.");
    expect(chat.parts).toEqual([{ type: "text", text: "Half a", state: "streaming" }]);
  });

  it("that a run was cancelled elsewhere", async () => {
    const chat = new Chat(async function* (_input, { run_id }) {
      yield "Half a";
      void runtime.cancel(run_id);
      await new Promise(() => {});
    });
    await chat.sendMessage({ text: "Dinner?" });
    expect(chat.status).toBe("error");
    expect(chat.error?.message).toMatch(/cancelled/);
  });

  it("that the connection ended before the run did", async () => {
    const chat = new Chat(() => "never seen");
    const cut = `data: ${JSON.stringify({ type: "message.part", part: { content_type: "text/plain", content: "Half a" } })}\n\n`;
    vi.stubGlobal("fetch", async () => new Response(cut, { headers: { "content-type": "text/event-stream" } }));
    await chat.sendMessage({ text: "Dinner?" });
    expect(chat.status).toBe("error");
    expect(chat.error?.message).toMatch(/connection/i);
  });

  it("what is wrong with a request, in words", async () => {
    const chat = new Chat(() => "never seen");
    vi.stubGlobal("fetch", async () => Response.json({ code: "server_error", message: "Busy." }, { status: 503 }));
    await chat.sendMessage({ text: "Dinner?" });
    expect(chat.error?.message).toBe("Busy.");
    vi.stubGlobal(
      "fetch",
      async () => new Response("<h1>Bad gateway</h1>", { status: 502, statusText: "Bad Gateway" }),
    );
    await chat.sendMessage({ text: "Dinner?" });
    expect(chat.error?.message).toMatch(/502/);
  });

  it("of artifacts as files, and of text as text", async () => {
    const chat = new Chat(async function* () {
      yield "Here: ";
      yield { name: "dot.png", content_type: "image/png", content_encoding: "base64", content: "aGk=" };
      yield { content_type: "application/json", content: '{"a":"é"}' };
      yield { content_type: "image/png", content_url: "https://example.com/dot.png" };
      yield "That is all.";
    });
    await chat.sendMessage({ text: "Show me." });
    expect(chat.parts).toEqual([
      { type: "text", text: "Here: That is all.", state: "done" },
      { type: "file", mediaType: "image/png", url: "data:image/png;base64,aGk=" },
      { type: "file", mediaType: "application/json", url: "data:application/json,%7B%22a%22%3A%22%C3%A9%22%7D" },
      { type: "file", mediaType: "image/png", url: "https://example.com/dot.png" },
    ]);
  });
});

describe("A question", () => {
  const booking: AgentFunction = async function* (_input, { ask }) {
    yield "Found a train.";
    const { ok } = await ask("Book it?", { schema: z.object({ ok: z.boolean() }) });
    yield ok ? "Booked." : "Not booked.";
  };

  it("is shown, and the next message answers it", async () => {
    const chat = new Chat(booking);
    await chat.sendMessage({ text: "Rome" });
    expect(chat.status).toBe("ready");
    const question = { text: "Book it?", await_id: "ask#1", run_id: expect.any(String), schema: expect.any(Object) };
    expect(chat.parts).toEqual([
      { type: "text", text: "Found a train.", state: "done" },
      { type: "data-question", id: "ask#1", data: question },
    ]);
    await chat.sendMessage({ text: '{"ok":true}' });
    expect(chat.parts).toEqual([{ type: "text", text: "Booked.", state: "done" }]);
  });

  it("goes on waiting after an answer that does not match its schema, and takes the next one", async () => {
    const chat = new Chat(booking);
    await chat.sendMessage({ text: "Rome" });
    await chat.sendMessage({ text: "perhaps" });
    expect(chat.error?.message).toMatch(/is invalid/);
    await chat.sendMessage({ text: '{"ok":false}' });
    expect(chat.status).toBe("ready");
    expect(chat.parts).toEqual([{ type: "text", text: "Not booked.", state: "done" }]);
  });

  it("that another client has answered takes no answer: the message begins a run of its own", async () => {
    const chat = new Chat(booking);
    await chat.sendMessage({ text: "Rome" });
    const [, question] = chat.parts;
    if (question?.type !== "data-question") throw new Error("no question");
    await runtime.resume({ run_id: question.data.run_id, await_resume: { ok: true } });
    await chat.sendMessage({ text: "Paris" });
    expect(chat.parts[0]).toMatchObject({ text: "Found a train." });
    expect(sent.at(-1)).toBe("/api/agents/runs");
  });
});

it("Stop cancels the run", async () => {
  let stopped = (_run_id: string): void => {};
  const hasStopped = new Promise<string>((resolve) => {
    stopped = resolve;
  });
  const chat = new Chat(async function* (_input, { run_id, signal }) {
    signal.addEventListener("abort", () => stopped(run_id));
    yield "Half a";
    await new Promise(() => {});
  });
  const sending = chat.sendMessage({ text: "Dinner?" });
  await vi.waitFor(() => expect(chat.parts).toHaveLength(1));
  await chat.stop();
  const run_id = await hasStopped;
  await sending;
  expect(chat.status).toBe("ready");
  expect(chat.error).toBeUndefined();
  expect((await runtime.getRun(run_id)).status).toMatch(/^cancell/);
});

it("Stop cancels a run also before the service has answered", async () => {
  const chat = new Chat(() => new Promise(() => {}));
  const cancelled = new Promise((resolve) => runtime.once("run.cancelled", resolve));
  const serve = fetch;
  const { promise: delay, resolve: goOn } = deferred();
  vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
    await delay;
    return serve(url, init);
  });
  const sending = chat.sendMessage({ text: "Dinner?" });
  await vi.waitFor(() => expect(chat.status).toBe("submitted"));
  void chat.stop();
  goOn();
  await sending;
  await cancelled;
  expect(chat.status).toBe("ready");
});

it("Files that the user sends reach the agent as such", async () => {
  const seen: unknown[] = [];
  const chat = new Chat((input) => void seen.push(...(input[0]?.parts ?? [])));
  const file = {
    type: "file",
    mediaType: "image/png",
    url: "data:image/png;base64,aGk=",
    filename: "dot.png",
  } as const;
  await chat.sendMessage({ text: "What is this?", files: [file] });
  expect(seen).toMatchObject([
    { content_type: "image/png", content_url: "data:image/png;base64,aGk=", name: "dot.png" },
    { content_type: "text/plain", content: "What is this?" },
  ]);
});
