import type { UIMessage, UIMessageChunk } from "ai";
import { readUIMessageStream } from "ai";
import type { CallableAgent } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { createChatHandler } from "cadenza/ai-sdk";
import type { ChatClientOptions, Client, ClientRun, ConnectionOptions } from "cadenza/client";
import { chatOptions, createClient, loadChat } from "cadenza/client";
import { createAcpHandler } from "cadenza/http";
import { durable } from "cadenza/store";
import * as z from "zod";
import { FakeClock } from "../harness/clock.ts";

/* Each call of the client, against a server of its own. */

const approval = z.object({ approved: z.boolean() });
const CHAT = "c1";

/** A server with one run that waits for an answer. */
export class World {
  readonly clock = new FakeClock();
  readonly runtime = new AgentRuntime({ clock: this.clock, store: durable(new MemoryStore({ clock: this.clock })) });
  readonly #handlers: Readonly<Record<"acp" | "chat", (request: Request) => Promise<Response>>>;
  readonly #connection: ConnectionOptions & { readonly url: string };
  readonly client: Client<readonly CallableAgent[]>;
  run!: ClientRun;

  /** `connect`: how its clients reach it. `url`: below it lie the agents, and `/chat` for pages. */
  constructor(connect: (world: World) => ConnectionOptions & { readonly url: string }) {
    this.runtime.register("desk", { durable: true }, async function* (input, { ask }) {
      if (input[0]?.parts[0]?.content === "Hello") {
        yield "Hello, ";
        yield "Ada.";
        return;
      }
      yield "Looking. ";
      const { approved } = await ask("Refund 40 €?", { name: "approval", schema: approval });
      yield approved ? "Refunded." : "Refused.";
    });
    this.#handlers = {
      acp: createAcpHandler(this.runtime, { extensions: true }),
      chat: createChatHandler(this.runtime, { basePath: "/chat" }),
    };
    this.#connection = { backoffMs: 0, ...connect(this) };
    this.client = createClient(this.#connection);
  }

  handle(request: Request): Promise<Response> {
    return this.#handlers[new URL(request.url).pathname.startsWith("/chat/") ? "chat" : "acp"](request);
  }

  async begin(): Promise<this> {
    const { run_id } = await this.runtime.createRun(
      { agent_name: "desk", input: "x", mode: "async" },
      { sessionKey: CHAT },
    );
    this.run = this.client.attach("desk", run_id);
    await this.clock.settle();
    return this;
  }

  /** What the server has after a call: its runs, and how often they were answered. */
  async effects(): Promise<unknown> {
    await this.clock.settle();
    const effects: unknown[] = [];
    for (const { run_id, status } of await this.runtime.listRuns()) {
      let answers = 0;
      for await (const { type } of this.runtime.events(run_id, { detail: true, until: "now" }))
        if (type === "question.settled") answers += 1;
      effects.push({ status, answers });
    }
    return effects;
  }

  get chat(): ChatClientOptions {
    return { ...this.#connection, api: `${this.#connection.url}/chat/desk`, id: CHAT };
  }
}

async function read(stream: AsyncIterable<unknown> | null): Promise<unknown[]> {
  const chunks: unknown[] = [];
  for await (const chunk of stream ?? []) chunks.push(chunk);
  return chunks;
}

/** The message that a page has in the end, and how its response has ended. */
async function shown(chunks: ReadableStream<UIMessageChunk> | null): Promise<unknown> {
  if (chunks === null) return null;
  const [here, there] = chunks.tee();
  const finished = read(there);
  let last: UIMessage | undefined;
  for await (const state of readUIMessageStream({ stream: here })) last = state;
  // A step may be empty, where the connection broke off in it.
  return {
    parts: last?.parts.filter(({ type }) => type !== "step-start"),
    ends: (await finished).filter((chunk) => isEnd(chunk)),
  };
}

function isEnd(chunk: unknown): boolean {
  return /^(?:finish|error|abort)$/.test((chunk as UIMessageChunk).type);
}

const message = { id: "m1", role: "user", parts: [{ type: "text", text: "Hello" }] } as const;
const sending = { chatId: CHAT, trigger: "submit-message", messageId: undefined, abortSignal: undefined } as const;

async function answeredBelow(world: World): Promise<void> {
  await world.runtime.resume({ run_id: world.run.run_id, await_resume: { approved: true } });
}

export const calls: Readonly<Record<string, (world: World) => Promise<unknown>>> = {
  run: async ({ client }) => (await client.run("desk", "x")).run_id.length,
  record: ({ run }) => run.record(),
  questions: ({ run }) => run.questions(),
  answer: ({ run }) => run.answer({ await_id: "ask#1" }, { approved: true }),
  "answer by name": ({ run }) => run.answer("approval", { approved: true }),
  decline: ({ run }) => run.decline("approval", { reason: "No time." }),
  cancel: ({ run }) => run.cancel(),
  events: async (world) => {
    await answeredBelow(world);
    return read(world.run.events({ detail: true }));
  },
  result: async (world) => {
    await answeredBelow(world);
    return world.run.result();
  },
  watch: async (world) => {
    await answeredBelow(world);
    return new Promise((resolve, reject) => {
      const stop = world.run.watch(() => {
        if (world.run.view.status !== "completed") return;
        stop();
        resolve(world.run.view);
      }, reject);
    });
  },
  "loading a chat": async ({ chat }) => {
    const { messages, resume } = await loadChat(chat);
    return { messages, resume };
  },
  "a message": async (world) => {
    await answeredBelow(world);
    await world.clock.settle();
    return shown(await chatOptions(world.chat).transport.sendMessages({ ...sending, messages: [message] }));
  },
  following: async ({ chat }) => shown(await chatOptions(chat).transport.reconnectToStream({})),
};

/** The result of a call without what differs from run to run. */
export function plain(value: unknown): unknown {
  const ids = /[0-9a-f]{8}-[0-9a-f-]{27}/g;
  const times = /\d{4}-\d\d-\d\dT[\d:.]+Z/g;
  return JSON.parse(
    JSON.stringify(value ?? null)
      .replace(ids, "id")
      .replace(times, "time"),
  );
}
