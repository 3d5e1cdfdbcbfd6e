import type { Message } from "cadenza";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { aiSdk, createChatHandler } from "cadenza/ai-sdk";
import { createAcpHandler } from "cadenza/http";
import * as z from "zod";
import { Random } from "../random.ts";
import { Bodies, CALL, Words } from "./bodies.ts";
import type { Answered, Face, Seen, Sent } from "./oracle.ts";
import { Oracle } from "./oracle.ts";

/* Plays what clients claim: several chats, each with several bodies over one face, and a look at each chat afterwards. */

/** What was found in so many bodies over one face. */
export interface ClaimsReport {
  readonly bodies: number;
  /** How many bodies had each status. */
  readonly statuses: ReadonlyMap<number, number>;
  readonly wrong: readonly Wrong[];
}

export interface Wrong {
  /** The body that was sent last, by its number. */
  readonly at: number;
  readonly what: string;
  readonly sent: string;
}

const AT_ONCE_IN_A_WORLD = 2_000;
const BODIES_OF_A_CHAT = 8;

/** Plays so many bodies over one face. The same seed plays the same ones. */
export async function playClaims(face: Face, seed: number | string, count: number): Promise<ClaimsReport> {
  const statuses = new Map<number, number>();
  const wrong: Wrong[] = [];
  const random = new Random(`${seed} ${face}`);
  for (let played = 0; played < count; ) {
    const world = new World(random);
    const end = Math.min(count, played + AT_ONCE_IN_A_WORLD);
    while (played < end) {
      const { chat, agent } = world.newChat();
      let last = "";
      for (let index = 0; index < BODIES_OF_A_CHAT && played < end; index++, played++) {
        const { sent, status, problems } = await world.play(face, agent, chat);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        last = `${sent.path} ${JSON.stringify(sent.headers)} ${sent.body.slice(0, 3_000)}`;
        for (const what of problems) wrong.push({ at: played, what, sent: last });
      }
      for (const what of await world.look(agent, chat)) wrong.push({ at: played - 1, what, sent: last });
    }
    await world.runtime.close({ drainMs: 0 });
  }
  return { bodies: count, statuses, wrong };
}

interface Chat {
  readonly agent: string;
  readonly questions: string[];
  readonly runs: string[];
  readonly given: Message[];
  readonly model: { role: string }[];
  readonly values: unknown[];
}

type Handler = (request: Request) => Promise<Response>;

class World {
  readonly runtime: AgentRuntime;
  readonly #store = new MemoryStore();
  readonly #handlers: Readonly<Record<Face, Handler>>;
  readonly #random: Random;
  readonly #bodies: Bodies;
  readonly #oracle = new Oracle([CALL]);
  readonly #chats = new Map<string, Chat>();
  readonly #answers: Answered[] = [];
  /** The chat of each run, by the id of its session. */
  readonly #chatOf = new Map<string, string>();
  #said = 0;
  #sent: Sent[] = [];

  constructor(random: Random) {
    this.#random = random;
    this.#bodies = new Bodies(random, new Words());
    this.runtime = this.#start();
    this.#handlers = {
      acp: createAcpHandler(this.runtime, { extensions: true }),
      chat: createChatHandler(this.runtime, { approvals: true }),
      agUi: createAgUiHandler(this.runtime),
    };
  }

  #start(): AgentRuntime {
    const typed = defineAgent("typed", { input: z.unknown() }).run(async (value, context) => {
      this.#chatIn(context.session.id)?.values.push(value);
      return { parts: [{ content: this.#words() }] };
    });
    const runtime = new AgentRuntime({ store: this.#store, agents: [typed], limits: { maxLiveRuns: 100_000 } });
    const schema = z.looseObject({ approved: z.boolean() });
    runtime.register("desk", async (input, context) => {
      const { session, run_id } = context;
      const chat = this.#chatIn(session.id);
      const history = await session.history();
      chat?.given.push(...history, ...input);
      for (const { role, content } of aiSdk(context).messages([...history, ...input]))
        chat?.model.push({ role, ...{ content } });
      const words = input.flatMap(({ parts }) => parts.map(({ content = "" }) => content)).join(" ");
      const ask = async (name: string, question: () => Promise<unknown>): Promise<void> => {
        const id = `${run_id}/${name}`;
        chat?.questions.push(id);
        const value = await question().catch((error: unknown) => {
          if (context.signal.aborted) throw error;
          return "declined";
        });
        this.#answers.push({ id, chat: this.#chatOf.get(session.id) ?? "", value });
      };
      if (/\bask\b/.test(words)) {
        await ask("ask#1", () => context.ask(this.#words()));
        await ask("ask#2", () => context.ask(this.#words()));
      }
      if (/\bapprove\b/.test(words)) await ask("ask#1", () => context.ask(this.#words(), { kind: "approval", schema }));
      const metadata = {
        kind: "trajectory" as const,
        tool_name: "look",
        tool_call_id: CALL,
        tool_input: {},
        tool_output: {},
      };
      return { role: "agent", parts: [{ content: this.#words() }, { metadata }] };
    });
    return runtime;
  }

  /** What an agent says. */
  #words(): string {
    this.#said += 1;
    return `A${this.#said}A`;
  }

  #chatIn(session: string): Chat | undefined {
    return this.#chats.get(this.#chatOf.get(session) ?? "");
  }

  newChat(): { readonly chat: string; readonly agent: string } {
    const chat = `chat ${this.#chats.size}`;
    const agent = this.#random.chance(0.2) ? "typed" : "desk";
    this.#chats.set(chat, { agent, questions: [], runs: [], given: [], model: [], values: [] });
    this.#chatOf.set(this.runtime.sessionId(chat), chat);
    this.#sent = [];
    return { chat, agent };
  }

  /** Sends a body, or the one before once more, and judges what it has done. */
  async play(face: Face, agent: string, chat: string) {
    const session = this.runtime.sessionId(chat);
    const known = this.#chats.get(chat) as Chat;
    const others = [...this.#chats.values()].slice(-3).flatMap(({ questions }) => questions.slice(-2));
    const isAgain = this.#sent.length > 0 && this.#random.chance(0.25);
    const messages = this.#sent.flatMap(({ body }) => /"id":"(M\d+M)"/.exec(body)?.[1] ?? []);
    const sent = isAgain
      ? this.#random.pick(this.#sent)
      : this.#bodies.make(face, {
          ...{ agent, chat, session, messages },
          runs: known.runs.slice(-2),
          questions: [...known.questions.slice(-2), ...others],
        });
    this.#sent.push(sent);
    this.#learn(sent);
    const before = await this.#stateOf(session);
    this.#answers.length = 0;
    const response = await this.#handlers[face](
      new Request(`http://a${sent.path}`, {
        method: "POST",
        headers: { "content-type": "application/json", ...sent.headers },
        body: sent.body,
      }),
    );
    await response.text();
    const after = await this.#stateOf(session);
    const runs = after.runs.filter((id) => !before.runs.includes(id));
    known.runs.push(...runs);
    const done = {
      status: response.status,
      runs,
      answers: this.#answers.splice(0),
      changesSession: before.session !== after.session,
    };
    return { sent, status: response.status, problems: this.#oracle.judge(sent, done) };
  }

  /** A body may name a chat of its own. */
  #learn({ body }: Sent): void {
    try {
      const { id, threadId = id } = JSON.parse(body) as { id?: string; threadId?: string };
      if (threadId === undefined) return;
      const session = this.runtime.sessionId(threadId);
      if (!this.#chatOf.has(session)) this.#chatOf.set(session, threadId);
    } catch {
      // It names none.
    }
  }

  async #stateOf(session_id: string) {
    const runs = await this.runtime.listRuns({ session_id, limit: 100 });
    const session = await this.runtime.getSession(session_id).catch(() => null);
    return { runs: runs.map(({ run_id }) => run_id), session: JSON.stringify(session) };
  }

  /** Judges what is to be seen of a chat. */
  async look(agent: string, chat: string): Promise<readonly string[]> {
    const session_id = this.runtime.sessionId(chat);
    const { given, model, values } = this.#chats.get(chat) as Chat;
    const session = await this.runtime.getSession(session_id).catch(() => ({ history: [], state: null }));
    const log: Seen["log"][number][] = [];
    for (const { run_id } of await this.runtime.listRuns({ session_id, limit: 100 }))
      log.push(...((this.#store.read({ tenant: "", run_id }, 0, 1_000) ?? []) as unknown as typeof log));
    const get = async (face: Face, path: string): Promise<string> =>
      (await this.#handlers[face](new Request(`http://a${path}`))).text();
    const name = encodeURIComponent(chat);
    const page = JSON.parse(await get("chat", `/${agent}/${name}/messages`)) as { messages: Seen["page"] };
    const lines = (await get("agUi", `/${agent}?threadId=${name}&runId=r`)).split("\n");
    const thread = lines
      .filter((line) => line.startsWith("data: "))
      .map((line) => JSON.parse(line.slice("data: ".length)) as Seen["thread"][number]);
    return this.#oracle.look({
      ...{ given: given as unknown as Seen["given"], model, values, log, page: page.messages, thread },
      session: session.history as unknown as Seen["session"],
      state: session.state,
    });
  }
}
