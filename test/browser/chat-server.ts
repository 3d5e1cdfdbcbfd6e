import { once } from "node:events";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import * as ai from "ai";
import type { AgentContext, Message } from "cadenza";
import { AgentError, AgentRuntime } from "cadenza";
import { aiSdk, createChatNodeListener } from "cadenza/ai-sdk";
import * as z from "zod";
import { bundleOf } from "../../examples/page-bundle.ts";
import { answer, pretend } from "../faces/ai-sdk/models.ts";
import { sdkOf } from "../faces/ai-sdk/versions.ts";
import type { Deferred } from "../harness/promises.ts";
import { deferred } from "../harness/promises.ts";
import type { ChatVersion } from "./chat-rows.ts";
import { chatVersions } from "./chat-rows.ts";

/** The package of the hook for each version of `ai`. It brings the SDK. */
const hooks: Readonly<Record<ChatVersion, string>> = {
  "ai 5": "ai-sdk-react-5",
  "ai 6": "@ai-sdk/react",
  "ai 7": "ai-sdk-react-7",
};

const approval = z.object({ approved: z.boolean() });

/** Serves the pages of all versions, each on a host of its own, with the chats that they have. */
export class ChatServer {
  readonly #sites = new Map<string, Site>();
  readonly #server: Server;

  constructor() {
    for (const version of chatVersions) this.#sites.set(hostOf(version), new Site(version));
    this.#server = createServer((request, response) => {
      const site = this.#sites.get((request.headers.host ?? "").replace(/:\d+$/, ""));
      if (site === undefined) return void response.writeHead(404).end();
      return void site.answer(request, response);
    });
  }

  async listen(): Promise<this> {
    this.#server.listen(0, "127.0.0.1");
    await Promise.all([once(this.#server, "listening"), ...[...this.#sites.values()].map((site) => site.build())]);
    return this;
  }

  addressOf(version: ChatVersion): string {
    return `http://${hostOf(version)}:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    for (const site of this.#sites.values()) await site.close();
  }
}

/** The program of the page with one version. */
export function chatProgram(version: ChatVersion): Promise<string> {
  const hook = hooks[version];
  const entry = fileURLToPath(new URL("./chat-matrix.jsx", import.meta.url));
  return bundleOf(entry, { "@ai-sdk/react": hook, ai: sdkOf(hook) });
}

function hostOf(version: ChatVersion): string {
  return `${version.replace(" ", "-")}.localhost`;
}

export const CHAT_PAGE = `<!doctype html><main id="page"></main><script type="module" src="/page.js"></script>`;

/** The page of one version, and its chats. */
class Site {
  readonly #version: ChatVersion;
  readonly #runtime: AgentRuntime;
  readonly #chats: (request: IncomingMessage, response: ServerResponse) => void;
  /** What the agents wait for, by session. */
  readonly #gates = new Map<string, Deferred<void>>();
  /** The open responses, by chat. */
  readonly #responses = new Map<string, Set<ServerResponse>>();
  #program = "";

  constructor(version: ChatVersion) {
    this.#version = version;
    this.#runtime = new AgentRuntime().register("desk", (input, context) => this.#desk(input, context));
    this.#chats = createChatNodeListener(this.#runtime, { basePath: "/chat", approvals: version !== "ai 5" });
  }

  async build(): Promise<void> {
    this.#program = await chatProgram(this.#version);
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://localhost");
    const chat = searchParams.get("chat") ?? "none";
    const session_id = this.#runtime.sessionId(chat);
    switch (pathname) {
      case "/page.js":
        response.setHeader("content-type", "text/javascript").setHeader("cache-control", "max-age=3600");
        response.end(this.#program);
        return;
      case "/go":
        this.#gate(session_id).resolve();
        return void response.end("null");
      case "/cut":
        for (const open of this.#responses.get(chat) ?? []) open.destroy();
        return void response.end("null");
      case "/runs":
        return void response.end(
          JSON.stringify((await this.#runtime.listRuns({ session_id })).map(({ status }) => status)),
        );
      default:
    }
    if (!pathname.startsWith("/chat/")) return void response.setHeader("content-type", "text/html").end(CHAT_PAGE);
    this.#note(`${request.headers["x-chat"]}`, response);
    this.#chats(request, response);
  }

  async close(): Promise<void> {
    await this.#runtime.close({ drainMs: 0 });
  }

  #note(chat: string, response: ServerResponse): void {
    const open = this.#responses.get(chat) ?? new Set();
    this.#responses.set(chat, open.add(response));
    response.once("close", () => open.delete(response));
  }

  #gate(session_id: string): Deferred<void> {
    const gate = this.#gates.get(session_id) ?? deferred();
    this.#gates.set(session_id, gate);
    return gate;
  }

  async *#desk(input: readonly Message[], context: AgentContext): AsyncGenerator<unknown, void> {
    const { ask, session, signal, step } = context;
    const opened = (): Promise<void> => this.#gate(session.id).promise;
    const words = wordsOf(input.at(-1));
    switch (words) {
      case "slow":
        yield "One ";
        await Promise.race([opened(), new Promise((_, leave) => signal.addEventListener("abort", leave))]);
        yield "two.";
        return;
      case "fail":
        yield "Half ";
        throw new AgentError("no_seat", "The train is full.");
      case "ask": {
        yield "Looking. ";
        const { approved } = await ask("Refund 40 €?", { schema: approval });
        yield approved ? "Refunded." : "Refused.";
        return;
      }
      case "name":
        yield `Hello ${wordsOf((await ask("Who are you?")) as Message)}.`;
        return;
      case "two": {
        const answers = await Promise.all([ask("First?", { schema: approval }), ask("Second?", { schema: approval })]);
        yield answers.map(({ approved }) => (approved ? "yes" : "no")).join(" ");
        return;
      }
      case "history":
        yield `I know: ${(await session.history()).map(wordsOf).join("; ")}`;
        return;
      case "files":
        for (const { name, content_type, content } of input.at(-1)?.parts ?? [])
          if (content_type !== "text/plain") yield `${name} ${content_type} ${content}`;
        return;
      case "chart":
        yield { name: "chart.png", content_type: "image/png", content: "aGk=", content_encoding: "base64" };
        return;
      case "data":
        yield jsonPart({ total: 3 });
        yield jsonPart({ step: 1 }, "state");
        yield { progress: 1 };
        yield jsonPart({ step: 2 }, "state");
        yield "Done.";
        return;
      case "torn":
        yield "First. ";
        await step(
          "model",
          async ({ emit, attempt }) => {
            await emit("One ");
            if (attempt > 1) return emit("two. ");
            await opened();
            throw new Error("The model broke off.");
          },
          { retry: { attempts: 2, backoffMs: 1 } },
        );
        yield "Last.";
        return;
      case "think":
      case "location":
      case "pay":
      case "weather":
        await callModel(words, context, opened);
        return;
      default: {
        const order = input.at(-1)?.parts.find(({ name }) => name === "order");
        yield order === undefined ? `You said ${words}.` : `order ${order.content} ${JSON.stringify(context.metadata)}`;
      }
    }
  }
}

function wordsOf(message: Message | undefined): string {
  return (
    message?.parts
      .map(({ name, content, content_type }) => (content_type === "text/plain" && name === undefined ? content : ""))
      .join("") ?? ""
  );
}

function jsonPart(value: object, name?: string): object {
  return { content_type: "application/json", content: JSON.stringify(value), ...(name && { name }) };
}

/** The call with which the model begins. */
const firstCalls: Readonly<Record<string, { readonly name: string; readonly input: object }>> = {
  location: { name: "getLocation", input: { precise: true } },
  pay: { name: "pay", input: { cents: 40 } },
  weather: { name: "weather", input: { city: "Ulm" } },
};

/** A model that thinks and answers, or calls a tool and answers then. */
async function callModel(words: string, context: AgentContext, opened: () => Promise<void>): Promise<void> {
  let calls = 0;
  const model = pretend("v3", () => {
    calls += 1;
    const call = calls === 1 ? firstCalls[words] : undefined;
    if (call !== undefined) return answer("", { id: `call-${context.run_id}`, ...call });
    if (words !== "think") return answer("Done.");
    return [
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "Let me " },
      { type: "reasoning-delta", id: "r", delta: "think." },
      { type: "reasoning-end", id: "r" },
      { type: "source", sourceType: "url", id: "s", url: "https://example.com/a", title: "A page" },
      ...answer("Done."),
    ];
  });
  const sdk = aiSdk(context);
  const tools = {
    getLocation: ai.tool({
      inputSchema: z.object({ precise: z.boolean() }),
      outputSchema: z.object({ city: z.string() }),
    }),
    pay: ai.tool({
      inputSchema: z.object({ cents: z.number() }),
      needsApproval: true,
      execute: async ({ cents }) => ({ paid: cents }),
    }),
    weather: ai.tool({
      inputSchema: z.object({ city: z.string() }),
      execute: async function* () {
        yield { sky: "looking" };
        await opened();
        yield { sky: "blue" };
      },
    }),
  };
  const given = { model: sdk.model(model), tools: sdk.tools(tools as never), prompt: words, onError: () => undefined };
  await sdk.consume(ai.streamText({ ...(given as object), stopWhen: ai.stepCountIs(5) } as never));
}
