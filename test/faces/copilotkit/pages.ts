import type * as client from "@ag-ui/client";
import type { HttpAgentConfig, Interrupt, Message, ResumeEntry, RunAgentInput, Tool } from "@ag-ui/client";
import * as z from "zod";
import type { Packages } from "../../harness/packages.ts";

/* Pages of the clients that speak AG-UI: the official client in two versions, and CopilotKit's core with its own. */

export type ClientModule = Pick<typeof client, "HttpAgent" | "runHttpRequest" | "transformHttpEventStream">;

/** A tool that the page executes. */
export interface PageTool {
  readonly name: string;
  /** Throws: the tool has failed. */
  readonly handler: (input: Readonly<Record<string, unknown>>) => unknown;
  /** `false`: its result is sent together with the next message of the user. Default: at once. */
  readonly followUp?: false;
  /** `human-in-the-loop`: a page that opens a thread executes a call that has no result. */
  readonly type?: "human-in-the-loop";
}

/** What the user of a thread sees and does. */
export interface Page {
  say(text: string, id?: string): Promise<void>;
  /** Replies to all questions, each with the same. */
  reply(reply: Omit<ResumeEntry, "interruptId">): Promise<void>;
  /** Shows what was said in the thread, and follows its run. */
  open(): Promise<void>;
  /** Leaves. */
  leave(): void;
  /** Resolves when the page shows a message. */
  shows(text: string): Promise<void>;
  readonly agent: Agent;
  /** What the user was told of errors. */
  readonly errors: readonly string[];
}

type Agent = InstanceType<ClientModule["HttpAgent"]>;

export interface Client {
  readonly name: string;
  /** Whether a client that finds a question expired can tell the server. */
  readonly declinesLate: boolean;
  visit(url: string, threadId: string, tools?: readonly PageTool[]): Page;
}

/** The official client. It leaves tools to its host, which is this page. */
export function officialClient(name: string, module: ClientModule, declinesLate: boolean): Client {
  return {
    name,
    declinesLate,
    visit: (url, threadId, tools = []) => new OfficialPage(agentOf(module, { url, threadId }), tools),
  };
}

/** CopilotKit's core. It executes tools, and sends their results. */
export async function copilotKit(packages: Packages, module: ClientModule): Promise<Client> {
  const { CopilotKitCore } = (await packages.load("@copilotkit/core")) as CopilotKit;
  return {
    name: "CopilotKit's core 1.75.0",
    declinesLate: false,
    visit: (url, threadId, tools = []) => {
      const agent = agentOf(module, { url, threadId, agentId: "desk" });
      const described = tools.map((tool) => ({ ...tool, parameters: z.object({ of: z.string() }) }));
      const core = new CopilotKitCore({ agents__unsafe_dev_only: { desk: agent }, tools: described });
      return new CopilotKitPage(core, agent);
    },
  };
}

/** What the tests use of `@copilotkit/core`. */
interface CopilotKit {
  readonly CopilotKitCore: new (options: {
    readonly agents__unsafe_dev_only: Readonly<Record<string, object>>;
    readonly tools: readonly (PageTool & { readonly parameters: object })[];
  }) => Core;
}

interface Core {
  runAgent(options: { readonly agent: object; readonly resume?: readonly ResumeEntry[] }): Promise<unknown>;
  connectAgent(options: { readonly agent: object }): Promise<unknown>;
  stopAgent(options: { readonly agent: object }): void;
  subscribe(subscriber: {
    readonly onError: (event: { readonly code: string; readonly error: Error }) => void;
  }): unknown;
}

/** The agent of docs/guides/pages.md, which opens a thread again. */
function agentOf(module: ClientModule, config: HttpAgentConfig): Agent {
  const { HttpAgent, runHttpRequest, transformHttpEventStream } = module;
  class ThreadAgent extends HttpAgent {
    protected override connect({ threadId, runId, tools, protocolVersion }: RunAgentInput) {
      const query = new URLSearchParams({ threadId, runId });
      if (protocolVersion !== undefined) query.set("protocolVersion", protocolVersion);
      for (const { name } of tools) query.append("tool", name);
      return transformHttpEventStream(runHttpRequest(() => fetch(`${this.url}?${query}`)));
    }
  }
  return new ThreadAgent(config);
}

/** What all pages have. */
class Screen {
  readonly agent: Agent;
  readonly errors: string[] = [];
  #onChange: () => void = () => {};

  constructor(agent: Agent) {
    this.agent = agent;
    // A client tells of a run those who have subscribed before it.
    agent.subscribe({ onMessagesChanged: () => this.#onChange() });
  }

  shows(text: string): Promise<void> {
    return new Promise((resolve) => {
      this.#onChange = () => {
        if (this.agent.messages.some((message) => shownOf(message) === text)) resolve();
      };
      this.#onChange();
    });
  }
}

class OfficialPage extends Screen implements Page {
  readonly #tools: readonly PageTool[];

  constructor(agent: Agent, tools: readonly PageTool[]) {
    super(agent);
    this.#tools = tools;
    agent.subscribe({
      onRunErrorEvent: ({ event }) => {
        if (event.code !== "abort") this.errors.push(event.message);
      },
    });
  }

  say(content: string, id = `m${this.agent.messages.length}`): Promise<void> {
    this.agent.addMessage({ id, role: "user", content });
    return this.#run();
  }

  reply(reply: Omit<ResumeEntry, "interruptId">): Promise<void> {
    return this.#run(resumeOf(this.agent.pendingInterrupts, reply));
  }

  async open(): Promise<void> {
    await this.agent.connectAgent({ tools: this.#sent() });
    await this.#execute(({ type }) => type === "human-in-the-loop");
  }

  leave(): void {
    this.agent.abortRun();
  }

  async #run(resume?: ResumeEntry[]): Promise<void> {
    try {
      await this.agent.runAgent({ tools: this.#sent(), ...(resume && { resume }) });
    } catch (error) {
      this.errors.push((error as Error).message);
      return;
    }
    await this.#execute(() => true);
  }

  /** Executes the calls without a result, and puts the results where a host puts them: at the end. */
  async #execute(isExecuted: (tool: PageTool) => boolean): Promise<void> {
    const { messages } = this.agent;
    const done = new Set(messages.map((message) => (message.role === "tool" ? message.toolCallId : undefined)));
    let isGoingOn = false;
    for (const call of messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []))) {
      const tool = this.#tools.find(({ name }) => name === call.function.name);
      if (tool === undefined || done.has(call.id) || !isExecuted(tool)) continue;
      const result = { id: `r-${call.id}`, role: "tool", toolCallId: call.id } as const;
      try {
        const given = await tool.handler(JSON.parse(call.function.arguments));
        this.agent.addMessage({ ...result, content: typeof given === "string" ? given : JSON.stringify(given) });
        if (tool.followUp !== false) isGoingOn = true;
      } catch (error) {
        this.agent.addMessage({ ...result, content: "", error: (error as Error).message });
      }
    }
    if (isGoingOn) await this.#run();
  }

  #sent(): Tool[] {
    return this.#tools.map(({ name }) => ({ name, description: name, parameters: { type: "object" } }));
  }
}

class CopilotKitPage extends Screen implements Page {
  readonly #core: Core;

  constructor(core: Core, agent: Agent) {
    super(agent);
    this.#core = core;
    core.subscribe({
      onError: ({ code, error }) => {
        // What fails on the page itself.
        if (code !== "tool_handler_failed") this.errors.push(error.message);
      },
    });
  }

  async say(content: string, id = `m${this.agent.messages.length}`): Promise<void> {
    this.agent.addMessage({ id, role: "user", content });
    await this.#core.runAgent({ agent: this.agent });
  }

  async reply(reply: Omit<ResumeEntry, "interruptId">): Promise<void> {
    await this.#core.runAgent({ agent: this.agent, resume: resumeOf(this.agent.pendingInterrupts, reply) });
  }

  async open(): Promise<void> {
    await this.#core.connectAgent({ agent: this.agent });
  }

  leave(): void {
    this.#core.stopAgent({ agent: this.agent });
  }
}

function resumeOf(questions: readonly Interrupt[], reply: Omit<ResumeEntry, "interruptId">): ResumeEntry[] {
  return questions.map(({ id }) => ({ interruptId: id, ...reply }));
}

/** A message, in short: the role and what is in it. */
export function shownOf(message: Message): string {
  if (message.role === "tool")
    return `tool: ${message.error === undefined ? message.content : `Error: ${message.error}`}`;
  if (message.role !== "assistant" || message.toolCalls === undefined)
    return `${message.role}: ${typeof message.content === "string" ? message.content : JSON.stringify(message.content)}`;
  return message.toolCalls.map(({ function: { name, arguments: given } }) => `calls ${name} ${given}`).join();
}
