import type { Logger } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry, isStopped, settledQuestion } from "../core/state.ts";
import type { AskOptions, Question, SleepOptions } from "./agent-waits.ts";
import type { Asking } from "./ask.ts";
import { Ask, AskedQuestion, checkAskOptions, questionParts, withSchema, YieldedQuestion } from "./ask.ts";
import type { AskInfo, AskPassage, Interceptors } from "./interceptors.ts";
import type { Receiving } from "./receive.ts";
import { Receive, takeMail } from "./receive.ts";
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
  /** Whether the agent is not to go on. */
  readonly isStopped: boolean;
  readonly logger: Logger;
}

/** How a question is asked, as far as interceptors are told. */
type Asked = Pick<Asking, "parts" | "name" | "kind">;

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
      this.#perform(ask, { parts, name: asking.name, kind: asking.kind });
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
    this.#perform(new YieldedQuestion(agent, key, asking), asking);
  }

  /** Waits for a time. */
  async sleep(duration: number | string | Date, { name, signal }: SleepOptions): Promise<void> {
    const agent = this.#agent;
    const until = readUntil("duration", duration, agent.clock.now());
    const key = agent.operations.keyFor(name === undefined ? "sleep" : `sleep:${name}`);
    throwIfAborted(signal);
    await this.#wait((settlers) => new Sleep(agent, key, until, signal, settlers));
  }

  /** Waits for a message. */
  async receive(name: string, options: Receiving): Promise<unknown> {
    const agent = this.#agent;
    const key = agent.operations.keyFor(`receive:${name}`);
    throwIfAborted(options.signal);
    return this.#wait((settlers) => new Receive(agent, key, name, options, settlers));
  }

  /** The open question with this id. Undefined: the agent does not ask it. */
  question(awaitId: string): Ask | undefined {
    const operation = this.#agent.over ? undefined : this.#agent.operations.find(awaitId);
    return operation instanceof Ask ? operation : undefined;
  }

  /** The store has given the run to this process, perhaps because a deadline has passed. */
  onTaken(): void {
    const { operations } = this.#agent;
    for (const key of operations.open) {
      const operation = operations.find(key);
      if (operation instanceof Wait) operation.onTaken();
    }
  }

  /** Messages have arrived. */
  onMail(): void {
    takeMail(this.#agent.operations);
  }

  #perform(ask: Ask, asked: Asked): void {
    const { settings, isStopped, log, operations } = this.#agent;
    const { interceptors } = settings;
    // What the log has settled is not wrapped again.
    if (interceptors.ask !== undefined && !isStopped && settledQuestion(log.state, ask.key) === undefined)
      this.#observe(interceptors.ask, ask, asked);
    operations.perform(ask);
  }

  /** Tells the interceptors of a question. They observe it, and what they throw changes nothing. */
  #observe(wrap: NonNullable<Interceptors["ask"]>, ask: Ask, { parts, name, kind = "input" }: Asked): void {
    const { log, logger } = this.#agent;
    const { agent_name } = createdEntry(log.state);
    const settled = new Promise<AskPassage>((resolve) => {
      ask.onReleased = () => resolve(passageOf(log.state, ask.key));
    });
    const info: AskInfo = { ...log.key, agent_name, await_id: ask.key, name: name ?? null, kind, parts };
    const wrapped = (async () => wrap(info, () => settled))();
    wrapped.catch((error: unknown) =>
      logger.warn("An interceptor of questions failed.", { run_id: log.key.run_id, await_id: ask.key, error }),
    );
  }

  #wait(make: (settlers: Settlers) => Wait): Promise<unknown> {
    return new Promise((resolve, reject) => this.#agent.operations.perform(make({ resolve, reject })));
  }
}

/** What has become of a question that is not asked here any more. */
function passageOf(state: RunState, awaitId: string): AskPassage {
  const type = settledQuestion(state, awaitId)?.settled?.type;
  if (type === undefined) return isStopped(state) ? "withdrawn" : "left";
  if (type === "resumed") return "answered";
  return type === "timed-out" ? "expired" : type === "declined" ? "declined" : "withdrawn";
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason;
}
