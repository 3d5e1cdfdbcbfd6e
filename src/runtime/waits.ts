import { ignore } from "../core/promises.ts";
import type { AskOptions, Question, SleepOptions } from "./agent-waits.ts";
import { Ask, AskedQuestion, checkAskOptions, questionParts, withSchema, YieldedQuestion } from "./ask.ts";
import type { Operation } from "./operations.ts";
import type { Receiving } from "./receive.ts";
import { Receive } from "./receive.ts";
import type { Settlers } from "./sleep.ts";
import { readUntil, Sleep } from "./sleep.ts";
import { jsonSchemaOf } from "./standard-schema.ts";
import type { WaitHost } from "./wait.ts";
import { Wait } from "./wait.ts";
import type { AwaitYield } from "./yields.ts";

/** The agent that waits. */
export interface WaitingAgent extends WaitHost {
  /** How many values the agent has emitted. */
  readonly emitted: number;
  /** Whether nothing that the agent does counts any more. */
  readonly over: boolean;
}

/** What an agent waits for: answers, time and messages. The waits themselves are among its operations. */
export class Waits {
  readonly #agent: WaitingAgent;

  constructor(agent: WaitingAgent) {
    this.#agent = agent;
  }

  /** Asks the client. The rejection is handled here, so that an agent that drops the promise does no harm. */
  ask(question: Question, options: AskOptions<unknown, boolean> | undefined): Promise<unknown> {
    try {
      if (options !== undefined) checkAskOptions(options);
      const { schema, details = false, ...asking } = options ?? {};
      const agent = this.#agent;
      const key = agent.operations.keyFor("ask");
      throwIfAborted(asking.signal);
      const parts = withSchema(questionParts(question), schema === undefined ? undefined : jsonSchemaOf(schema), key);
      const ask = new AskedQuestion(agent, key, { ...asking, parts, emitted: agent.emitted }, schema, details);
      agent.operations.perform(ask);
      return ask.answer;
    } catch (error) {
      const refused = Promise.reject(error);
      refused.catch(ignore);
      return refused;
    }
  }

  /** Asks the client by an await request that the agent has yielded. */
  onAwait({ message, timeoutMs, default: fallback }: AwaitYield): void {
    const agent = this.#agent;
    const key = agent.operations.keyFor("await");
    const asking = { parts: questionParts(message), timeoutMs, default: fallback, emitted: agent.emitted };
    agent.operations.perform(new YieldedQuestion(agent, key, asking));
  }

  /** Waits for a time. */
  async sleep(duration: number | string | Date, { name, signal }: SleepOptions): Promise<void> {
    const agent = this.#agent;
    const until = readUntil("duration", duration, agent.clock.now());
    const key = agent.operations.keyFor(name === undefined ? "sleep" : `sleep:${name}`);
    throwIfAborted(signal);
    await this.#perform((settlers) => new Sleep(agent, key, until, signal, settlers));
  }

  /** Waits for a message. */
  async receive(name: string, options: Receiving): Promise<unknown> {
    const agent = this.#agent;
    const key = agent.operations.keyFor(`receive:${name}`);
    throwIfAborted(options.signal);
    return this.#perform((settlers) => new Receive(agent, key, name, options, settlers));
  }

  /** The open question with this id. Undefined: the agent does not ask it. */
  question(awaitId: string): Ask | undefined {
    const operation = this.#agent.over ? undefined : this.#agent.operations.find(awaitId);
    return operation instanceof Ask ? operation : undefined;
  }

  /** The store has given the run to this process, perhaps because a deadline has passed. */
  onTaken(): void {
    for (const operation of this.#open) if (operation instanceof Wait) operation.onTaken();
  }

  /** Messages have arrived. The receives take them in the order in which they began. */
  onMail(): void {
    for (const operation of this.#open) if (operation instanceof Receive) operation.take();
  }

  get #open(): readonly (Operation | undefined)[] {
    const { operations } = this.#agent;
    return operations.open.map((key) => operations.find(key));
  }

  #perform(make: (settlers: Settlers) => Wait): Promise<unknown> {
    return new Promise((resolve, reject) => this.#agent.operations.perform(make({ resolve, reject })));
  }
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason;
}
