import type { AgentContext, AgentFunction, Message, StepScope } from "cadenza";
import { awaitMessage, CadenzaError } from "cadenza";
import * as z from "zod";
import { textOf } from "../program-player.ts";
import type { Act, AskAct, Plan, ReceiveAct, StepAct } from "./plans.ts";
import type { ByAgent } from "./witness.ts";

/* An agent that follows the plan in its input, and notes each of its effects with the witness. */

/** Takes an agent's notes. */
export interface Outside {
  note(noted: ByAgent): void;
  /** A unique name. */
  name(): string;
  /** When the runtime last read the clock, and how many bodies have begun since then. Counts one more body. */
  look(): { readonly lookedMs: number; readonly begunSince: number };
}

/** The text of a question. It tells the client which run asks, and which answers match. */
export interface QuestionText extends Omit<AskAct, "do"> {
  /** The run that asks, and under which key. */
  readonly run: string;
  readonly key: string;
}

const dataSchema = z.object({ value: z.number(), nonce: z.string() });
/** The names of what an agent gets that no client sends: at a deadline, after a sleep, and for an unfit message. */
export const DEFAULT = "default";
export const SLEPT = "slept";
export const REJECTED = "message_rejected";
const byDefault = { value: -1, nonce: DEFAULT };

export function agentOf(outside: Outside, durable: boolean): AgentFunction {
  return async function* follow(input, context) {
    const plan = JSON.parse(textOf(input)) as Plan;
    const game = new Game(outside, context);
    game.note({ is: "called", plan: plan.id, durable });
    try {
      for (const act of plan.acts) {
        if (act.do === "ask" && act.by === "yield") yield* game.askByYield(act);
        else await game.play(act);
      }
      if (plan.fails) throw new Error("The plan ends here.");
    } finally {
      game.note({ is: "left" });
    }
  };
}

type Undressed<T> = T extends unknown ? Omit<T, "run" | "incarnation"> : never;

/** One call of the agent function. */
class Game {
  readonly #outside: Outside;
  readonly #context: AgentContext;
  readonly #incarnation: string;
  readonly #occurrences = new Map<string, number>();

  constructor(outside: Outside, context: AgentContext) {
    this.#outside = outside;
    this.#context = context;
    this.#incarnation = outside.name();
  }

  note(noted: Undressed<ByAgent>): void {
    this.#outside.note({ ...noted, run: this.#context.run_id, incarnation: this.#incarnation } as ByAgent);
  }

  async play(act: Act): Promise<void> {
    const { emit, session, run } = this.#context;
    switch (act.do) {
      case "say":
        return emit(`${act.text} `);
      case "step":
        return this.#step(act);
      case "ask":
        return this.#wait("ask", act.timeoutMs, (key) => this.#answer(act, key));
      case "sleep":
        return this.#wait("sleep", act.ms, () => this.#sleep(act.ms));
      case "receive":
        return this.#wait(`receive:${act.name}`, act.timeoutMs, () => this.#message(act));
      case "all":
        await Promise.all(act.acts.map((each) => this.play(each)));
        return;
      case "state": {
        const state = (await session.getState()) as { readonly count: number } | null;
        return session.setState({ count: (state?.count ?? 0) + 1 });
      }
      case "run": {
        const key = this.#keyOf(`run:${act.agent}`);
        const ended = await run(act.agent, JSON.stringify(act.plan));
        this.note({ is: "child", key, child: ended.run_id });
        return this.#emit(key, ended.status);
      }
    }
  }

  /** As {@link #wait}, for a question that is asked by a `yield`. */
  async *askByYield(act: AskAct): AsyncGenerator<ReturnType<typeof awaitMessage>, void, unknown> {
    const key = this.#keyOf("await");
    let nonce = "nothing";
    this.note({ is: "waiting", key, ms: null });
    try {
      try {
        nonce = nonceOf(yield awaitMessage(this.#question(act, key)));
      } catch (error) {
        nonce = mishap(error);
      }
      this.note({ is: "after", key, nonce });
    } catch (error) {
      nonce = threw(error);
      throw error;
    } finally {
      this.note({ is: "finally", key, nonce });
    }
    await this.#emit(key, nonce);
  }

  /** Waits for an answer, a time or a message, and notes what it gets. */
  async #wait(name: string, ms: number | null, wait: (key: string) => Promise<unknown>): Promise<void> {
    const key = this.#keyOf(name);
    let nonce = "nothing";
    this.note({ is: "waiting", key, ms });
    try {
      nonce = await wait(key).then(nonceOf, mishap);
      this.note({ is: "after", key, nonce });
    } catch (error) {
      nonce = threw(error);
      throw error;
    } finally {
      this.note({ is: "finally", key, nonce });
    }
    await this.#emit(key, nonce);
  }

  #answer(act: AskAct, key: string): Promise<unknown> {
    const question = this.#question(act, key);
    const time = act.timeoutMs === null ? {} : { timeoutMs: act.timeoutMs };
    const { ask } = this.#context;
    if (act.schema) return ask(question, { schema: dataSchema, ...time, ...(act.defaults && { default: byDefault }) });
    return ask(question, { ...time, ...(act.defaults && { default: byDefault }) });
  }

  #message({ name, timeoutMs, defaults }: ReceiveAct): Promise<unknown> {
    const options = { ...(timeoutMs !== null && { timeoutMs }), ...(defaults && { default: byDefault }) };
    const { receive } = this.#context;
    return name === "order" ? receive(name, { schema: dataSchema, ...options }) : receive(name, options);
  }

  async #sleep(ms: number): Promise<unknown> {
    await this.#context.sleep(ms);
    return { nonce: SLEPT };
  }

  #question({ by, schema, timeoutMs, defaults }: AskAct, key: string): string {
    const text: QuestionText = { run: this.#context.run_id, key, by, schema, timeoutMs, defaults };
    return JSON.stringify(text);
  }

  async #step({ name, ms, holdMs, failures, tokens, heeds }: StepAct): Promise<void> {
    const key = this.#keyOf(name);
    const body = async (step: StepScope): Promise<string> => {
      const id = this.#outside.name();
      this.note({ is: "began", key, attempt: step.attempt, body: id, ...this.#outside.look() });
      hold(holdMs);
      try {
        for (let token = 0; token < tokens; token++) await step.emit(`<${key}:${step.attempt}:${token}>`);
        await pause(ms, heeds ? step.signal : undefined);
        // Attempts are counted across crashes: the attempt that should fail may be the one that was interrupted.
        if (step.attempt <= failures) throw new Error("not yet");
      } finally {
        this.note({ is: "ended", key, body: id });
      }
      return id;
    };
    const result = await this.#context.step(name, body, failures === 0 ? {} : { retry: { attempts: 1_000 } });
    this.note({ is: "got", key, body: result });
    await this.#emit(key, result);
  }

  /** Emits the result of an operation. */
  #emit(key: string, result: string): Promise<void> {
    return this.#context.emit(`[${key}=${result}]`);
  }

  #keyOf(name: string): string {
    const occurrence = (this.#occurrences.get(name) ?? 0) + 1;
    this.#occurrences.set(name, occurrence);
    return `${name}#${occurrence}`;
  }
}

/** The name of an answer, however it comes: as an object, as a message, or as what a `yield` gives. */
export function nonceOf(answer: unknown): string {
  const { nonce, parts, message } = answer as {
    readonly nonce?: string;
    readonly parts?: Message["parts"];
    readonly message?: Message;
  };
  if (nonce !== undefined) return nonce;
  const text = (parts ?? message?.parts)?.[0]?.content ?? "{}";
  return (JSON.parse(text) as { readonly nonce?: string }).nonce ?? "no name";
}

/** The name of an error that a wait may end with, and after which the agent goes on. Throws every other error. */
function mishap(error: unknown): string {
  if (!CadenzaError.is(error)) throw error;
  switch (error.code) {
    case "answer_declined":
      return /was declined: (.*)$/.exec(error.message)?.[1] ?? "no reason";
    case "receive_timeout":
      return DEFAULT;
    case "message_rejected":
      return REJECTED;
    default:
      throw error;
  }
}

function threw(error: unknown): string {
  return `threw ${CadenzaError.is(error) ? error.code : String(error)}`;
}

/** Blocks the event loop of this process for a while. */
function hold(ms: number): void {
  for (const until = Date.now() + ms; Date.now() < until; );
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  if (ms === 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    if (signal?.aborted === true) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
