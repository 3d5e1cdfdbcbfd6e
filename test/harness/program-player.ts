import type { AgentContext, AgentFunction, Message, StandardSchema, StepOptions, StepScope } from "cadenza";
import { AgentError, awaitMessage, CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import * as z from "zod";
import { BY_DEFAULT, NO_ANSWER, NO_MAIL, numberIn, numberOf } from "./answers.ts";
import type { Block, Emission, NamedProgram, Statement, Wait } from "./program.ts";
import { bodiesOf, contains, inputOf, parseInput } from "./program.ts";
import { hashOf } from "./random.ts";
import { markOf } from "./tenants.ts";

/** What the steps of a program act on, and what observes the agent. */
export interface Player {
  /** The body of a step does its work. It may take a while. */
  work(work: Work): Promise<void>;
  /** A body waits in the middle of its work. */
  pause(ms: number): Promise<void>;
  /** The agent has been handed the result of an operation. */
  got?(got: { readonly run_id: string; readonly tenant: string | undefined; readonly key: string }): void;
  /** The agent has read a value: the result of an operation, or the messages of its session. */
  read?(read: { readonly tenant: string | undefined; readonly key: string; readonly value: unknown }): void;
  /** Runs a call of the agent that begins a sub-run. Default: calls it. */
  begin?<T>(tenant: string | undefined, call: () => T): T;
  /** Runs a branch of the agent. `all`: it is waited for, as are those beside it. Default: runs it. */
  branch?(branch: () => Promise<void>, all: boolean): Promise<void>;
}

/** What the body of a step is about to do. */
export interface Work {
  readonly run_id: string;
  readonly tenant: string | undefined;
  readonly name: string;
  readonly key: string;
  readonly attempt: number;
  readonly idempotencyKey: string;
  readonly ms: number;
  readonly signal: AbortSignal;
}

/** An agent that performs the program in its input, in one of the four forms of agent function. */
export function agentOf(player: Player): AgentFunction {
  return (input, context) => {
    const named = parseInput(textOf(input));
    const form = formOf(named);
    // What a generator drains may not give a value of its own.
    const end: End = { returns: form !== "a plain generator" };
    return forms[form](perform(named, context, player, end), context, end) as ReturnType<AgentFunction>;
  };
}

type Form = "an async generator" | "a plain generator" | "an async function" | "a plain function";

/** What the agent returns, once its program has ended. */
interface End {
  value?: unknown;
  /** Whether the performance itself returns it, too. */
  readonly returns: boolean;
}

type Perform = (performance: AsyncGenerator<unknown, unknown>, context: AgentContext, end: End) => unknown;

const forms: Readonly<Record<Form, Perform>> = {
  "an async generator": (performance) => performance,
  // What it yields is drained by the runtime, which hands answers to it.
  "a plain generator": (performance, _context, end) =>
    (function* () {
      yield performance;
      return end.value;
    })(),
  "an async function": async (performance, context, end) => {
    for await (const value of performance) await context.emit(value as never);
    return end.value;
  },
  "a plain function": (performance, context, end) => {
    const goOn = ({ done, value }: IteratorResult<unknown>): unknown =>
      done === true ? end.value : context.emit(value as never).then(() => performance.next().then(goOn));
    return performance.next().then(goOn);
  },
};

/** The form of a program's agent, which is the same in each process. A function cannot ask by `yield`. */
function formOf({ name, program }: NamedProgram): Form {
  const names = Object.keys(forms) as readonly Form[];
  const asks = bodiesOf(program).some((body) => contains(body, ({ does }) => does === "await"));
  const mayBe = asks ? names.slice(0, 2) : names;
  return mayBe[hashOf(name) % mayBe.length] ?? "an async generator";
}

/** Runs a generation of a program. Its values depend on keys alone, and its branches on its values. `end`: gets what it returns. */
export async function* perform(
  named: NamedProgram,
  context: AgentContext,
  player: Player,
  end: End = { returns: true },
): AsyncGenerator<unknown, unknown> {
  const { program } = named;
  const { generation, carry, continueAsNew } = context;
  const bodies = bodiesOf(program);
  const tally = new Tally();
  if (carry !== undefined) tally.total = Number(carry);
  yield* new Performance(named, context, player).block(bodies[generation - 1] ?? [], tally);
  if (generation < bodies.length) {
    end.value = continueAsNew(tally.total);
    return end.returns ? end.value : undefined;
  }
  if (program.fails) throw new Error(`The program ends here, at ${tally.total}.`);
  return undefined;
}

/** The program of a run, by its log. Undefined: the log is empty, or its run has no program. */
export function namedIn([created]: readonly Entry[]): NamedProgram | undefined {
  const text = created?.type === "created" ? textOf(created.input) : "";
  return text.startsWith("{") ? parseInput(text) : undefined;
}

export function textOf(messages: readonly Message[]): string {
  return messages.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join("");
}

const answerSchema = z.object({ value: z.number() });
/** How long a schema needs at most that answers later, in milliseconds. */
const JUDGING_MS = 30;

/** The schema of a wait. `answersLater`: its receive takes a message a while after the message has arrived. */
export interface WaitSchema extends StandardSchema<unknown, { value: number }> {
  readonly answersLater?: true;
}

/** Some schemas answer at once and others later, the same each time. */
function schemaFor({ pause }: Player, key: string): WaitSchema {
  const ms = hashOf(key) % (2 * JUDGING_MS);
  if (ms >= JUDGING_MS) return answerSchema;
  const { "~standard": given } = answerSchema;
  const validate: typeof given.validate = (value) => pause(ms).then(() => given.validate(value));
  return { "~standard": { version: 1, vendor: "test", validate }, answersLater: true };
}

/**
 * They do not grow: interrupted attempts count, so that a step would pause for longer than its killed processes live.
 */
const PAUSES = { backoffMs: 20, maxBackoffMs: 20 } as const;
/** What counts for a step that was interrupted, where the output tells so. */
const INTERRUPTED = 3;
/** What counts for a sleep, for a wait that the agent has aborted, and for the mishaps of a wait. */
const SLEPT = 11;
const ABORTED = 13;
const mishaps: readonly string[] = ["answer_declined", "receive_timeout", "message_rejected"];

/** A value that all results so far have changed, in all branches: it depends on their order. */
class Tally {
  total = 1;

  add(value: number): void {
    this.total = (this.total * 31 + value) % 1_000_003;
  }
}

/** How a wait has ended. */
interface Ended {
  readonly value: number;
  /** What the output tells. Undefined: nothing. */
  readonly says?: string;
}

interface Result {
  readonly key: string;
  readonly value: number;
  /** Whose result it is, if tenants are told apart. */
  readonly of?: string | undefined;
}

/** One run of a program, in one process. */
class Performance {
  readonly #name: string;
  readonly #tenant: string | undefined;
  /** At the beginning of each text of the run. */
  readonly #mark: string;
  readonly #context: AgentContext;
  readonly #player: Player;
  readonly #occurrences = new Map<string, number>();

  constructor({ name, tenant }: NamedProgram, context: AgentContext, player: Player) {
    this.#name = name;
    this.#tenant = tenant;
    this.#mark = markOf(tenant);
    this.#context = context;
    this.#player = player;
  }

  async *block(block: Block, tally: Tally): AsyncGenerator<unknown, void> {
    for (const statement of block) yield* this.#play(statement, tally);
  }

  async *#play(statement: Statement, tally: Tally): AsyncGenerator<unknown, void> {
    const { usage, signal, session } = this.#context;
    switch (statement.does) {
      case "emit":
        if (statement.by === "yield") yield this.#emittedBy(statement, tally);
        else await this.#context.emit(this.#emittedBy(statement, tally));
        return;
      case "step":
        tally.add(
          (await this.#step(statement.name, (step) => this.#succeed(step, statement), manyTries(statement))).value,
        );
        return;
      case "fail":
        return yield* this.#fail(statement.name, statement.attempts, tally);
      case "stream":
        tally.add((await this.#step(statement.name, (step) => this.#stream(step, statement))).value);
        return;
      case "once":
        return this.#once(statement, tally);
      case "ask":
      case "ask in vain":
      case "sleep":
      case "receive":
      case "receive in time":
        return yield* this.#tell(await this.#wait(statement), tally);
      case "first":
        return yield* this.#first(statement.waits, tally);
      case "await":
        return yield* this.#await(tally);
      case "run":
        return yield* this.#run(statement, tally);
      case "report":
        usage.add({ input_tokens: statement.tokens, output_tokens: 1 });
        return;
      case "draw":
        return yield* this.#draw();
      case "state": {
        const keys = [this.#keyOf("session.setState"), this.#keyOf("session.getState")] as const;
        this.#received(keys[0], await session.setState({ count: 7, ...this.#of }));
        tally.add((this.#received(keys[1], await session.getState()) as { readonly count: number }).count);
        return;
      }
      case "history":
        this.#read("history", await session.history());
        return;
      case "patched":
        if (this.#context.patched(statement.id)) return yield* this.block(statement.body, tally);
        yield `${this.#mark}without ${statement.id} `;
        return;
      case "repeat": {
        const times = statement.times === "total" ? tally.total % 4 : statement.times;
        for (let time = 0; time < times; time++) yield* this.block(statement.body, tally);
        return;
      }
      case "branch": {
        const { by, ways } = statement;
        const chosen = by === null ? tally.total : (await this.#step(by, (step) => this.#decide(step))).value;
        return yield* this.block(ways[chosen % ways.length] ?? [], tally);
      }
      case "all": {
        await Promise.all(statement.branches.map((branch) => this.#branch(branch, tally, true)));
        yield `${this.#mark}all ${tally.total} `;
        return;
      }
      case "race":
        return yield* this.#race(statement.branches, statement.leaves, tally);
      case "try":
        try {
          return yield* this.block(statement.body, tally);
        } catch (error) {
          yield `${this.#mark}caught ${(error as Error).message} `;
          return yield* this.block(statement.otherwise, tally);
        } finally {
          if (signal.aborted) yield `${this.#mark}stopped `;
          else yield* this.block(statement.last, tally);
        }
      case "throw":
        throw new AgentError("thrown", "on purpose");
    }
  }

  async #step(name: string, body: (step: StepScope) => Promise<Result>, options: StepOptions = {}): Promise<Result> {
    const key = this.#keyOf(name);
    const result = this.#received(key, await this.#context.step(name, body, options));
    if (result.key !== key || result.of !== this.#tenant)
      throw new Error(`${this.#mark}${key} was given the result of ${markOf(result.of)}${result.key}.`);
    return result;
  }

  async #succeed(step: StepScope, { ms, failures }: Statement & { does: "step" }): Promise<Result> {
    await this.#work(step, ms);
    // Attempts are counted across crashes: the attempt that should fail may be the one that was interrupted.
    if (step.attempt <= failures) throw new Error("not yet");
    return this.#resultOf(step);
  }

  async *#fail(name: string, attempts: number, tally: Tally): AsyncGenerator<unknown, void> {
    const key = this.#keyOf(name);
    const body = async (step: StepScope): Promise<never> => {
      await this.#work(step, 3);
      throw new AgentError("unlucky", `${this.#mark}${step.key} failed`);
    };
    try {
      await this.#context.step(name, body, { retry: { ...PAUSES, attempts } });
    } catch (error) {
      if (CadenzaError.is(error)) throw error;
      const { code, message } = error as AgentError;
      // An agent whose run has ended gets failures that the log does not have.
      if (!this.#context.signal.aborted) this.#received(key, message);
      tally.add(hashOf(message) % 1_000);
      yield `${this.#mark}${code} `;
    }
  }

  async #stream(step: StepScope, { tokens, ms }: Statement & { does: "stream" }): Promise<Result> {
    await this.#work(step, 1);
    for (let token = 0; token < tokens; token++) {
      await step.emit(`${this.#mark}${step.key}/${token} `);
      await this.#player.pause(ms);
    }
    return this.#resultOf(step);
  }

  async #once({ name, ms, tells }: Statement & { does: "once" }, tally: Tally): Promise<void> {
    const key = this.#keyOf(name);
    const body = async (step: StepScope): Promise<Result> => {
      await this.#work(step, ms);
      return this.#resultOf(step);
    };
    const value = await this.#context.step(name, body, { once: true }).then(
      (result) => result.value,
      (error: unknown) => {
        if (!CadenzaError.is(error) || error.code !== "step_interrupted") throw error;
        return INTERRUPTED;
      },
    );
    this.#received(key, value);
    if (tells) tally.add(value);
  }

  async *#await(tally: Tally): AsyncGenerator<unknown, void> {
    const key = this.#keyOf("await");
    try {
      tally.add(numberIn(this.#received(key, yield awaitMessage(`${this.#mark}What about this?`))));
    } catch (error) {
      yield* this.#tell(this.#received(key, mishapOf(error)), tally);
    }
  }

  /** Waits for one thing. Mishaps that a program may meet, such as a declined question, are results too. */
  async #wait(wait: Wait, signal?: AbortSignal): Promise<Ended> {
    const key = this.#keyOf(nameOf(wait));
    const ended = await this.#waitFor(wait, key, signal).catch((error: unknown) => {
      if (signal?.aborted === true && error === signal.reason) return { value: ABORTED, says: "aborted" };
      return mishapOf(error);
    });
    return this.#received(key, ended);
  }

  async #waitFor(wait: Wait, key: string, signal: AbortSignal | undefined): Promise<Ended> {
    const { ask, sleep, receive } = this.#context;
    switch (wait.does) {
      case "ask":
      case "ask in vain": {
        const [question, options] =
          wait.does === "ask"
            ? ([`${this.#mark}What about this?`, {}] as const)
            : ([`${this.#mark}${NO_ANSWER}`, { timeoutMs: wait.ms, default: { ...BY_DEFAULT, ...this.#of } }] as const);
        const schema = wait.does === "ask" && wait.schema ? schemaFor(this.#player, key) : undefined;
        if (wait.details !== true) {
          const answer = await (schema === undefined
            ? ask(question, { ...options, signal })
            : ask(`${this.#mark}How much?`, { schema, signal }));
          return { value: numberIn(answer) };
        }
        const { value, how } = await (schema === undefined
          ? ask(question, { ...options, signal, details: true })
          : ask(`${this.#mark}How much?`, { schema, signal, details: true }));
        return { value: numberIn(value), says: how };
      }
      case "sleep":
        await sleep(wait.ms, wait.name === null ? { signal } : { name: wait.name, signal });
        return { value: SLEPT };
      case "receive":
      case "receive in time": {
        const limits =
          wait.does === "receive" ? {} : { timeoutMs: wait.ms, ...(wait.otherwise && { default: NO_MAIL }) };
        const data = await (wait.schema
          ? receive(wait.name, { ...limits, schema: schemaFor(this.#player, key), signal })
          : receive(wait.name, { ...limits, signal }));
        return { value: typeof data === "string" ? hashOf(data) % 1_000 : numberIn(data) };
      }
    }
  }

  async *#tell({ value, says }: Ended, tally: Tally): AsyncGenerator<unknown, void> {
    tally.add(value);
    if (says !== undefined) yield `${this.#mark}${says} `;
  }

  /** The first wait to end makes the agent abort the others. Each of them may have ended meanwhile all the same. */
  async *#first(waits: readonly Wait[], tally: Tally): AsyncGenerator<unknown, void> {
    const controller = new AbortController();
    const racing = waits.map((wait) => this.#wait(wait, controller.signal));
    const winner = await Promise.race(racing.map((one, index) => one.then(() => index)));
    controller.abort(new AgentError("lost", `The first was ${winner}.`));
    for (const ended of await Promise.all(racing)) yield* this.#tell(ended, tally);
    tally.add(winner);
    yield `${this.#mark}first ${winner}, ${tally.total} `;
  }

  async *#run(
    { agent, program, show = false }: Statement & { does: "run" },
    tally: Tally,
  ): AsyncGenerator<unknown, void> {
    const key = this.#keyOf(`run:${agent}`);
    const name = `${this.#name}.${numberOf(key)}`;
    const input = inputOf({ name, program, isShown: show, tenant: this.#tenant });
    const { run } = this.#context;
    const begin = (): ReturnType<typeof run> => run(agent, input, { show });
    const running = this.#player.begin?.(this.#tenant, begin) ?? begin();
    const { status, output } = this.#received(key, await running);
    const text = `${status} ${output.map(({ parts }) => parts.map(({ content }) => content).join("")).join("/")}`;
    tally.add(hashOf(text) % 1_000);
    yield `${this.#mark}${text} `;
  }

  async *#draw(): AsyncGenerator<unknown, void> {
    const { uuid, random, now } = this.#context;
    const drawn = { uuid: uuid(), number: random(), now: now(), ...this.#of };
    const key = this.#keyOf("draw");
    const body = async (step: StepScope): Promise<typeof drawn> => {
      await this.#work(step, 2);
      return drawn;
    };
    const first = this.#received(key, await this.#context.step("draw", body));
    yield `${this.#mark}${first.uuid === drawn.uuid} ${first.number === drawn.number} ${first.now === drawn.now} `;
  }

  async *#race(branches: readonly Block[], leaves: boolean, tally: Tally): AsyncGenerator<unknown, void> {
    const racing = branches.map(async (branch, index) => {
      await this.#branch(branch, tally, false);
      return index;
    });
    const winner = await Promise.race(racing);
    tally.add(winner);
    yield `${this.#mark}won by ${winner}, ${tally.total} `;
    if (!leaves) await Promise.allSettled(racing);
  }

  /** The value of a step that decides which way the program goes. */
  async #decide(step: StepScope): Promise<Result> {
    await this.#work(step, 1);
    return { key: step.key, value: hashOf(step.key) % 7, ...this.#of };
  }

  #branch(block: Block, tally: Tally, all: boolean): Promise<void> {
    const branch = (): Promise<void> => this.#drain(block, tally);
    return this.#player.branch?.(branch, all) ?? branch();
  }

  /** Emits what a branch yields. */
  async #drain(branch: Block, tally: Tally): Promise<void> {
    for await (const value of this.block(branch, tally)) await this.#context.emit(value);
  }

  #resultOf({ key }: StepScope): Result {
    return { key, value: hashOf(`${this.#name} ${key}`) % 1_000, ...this.#of };
  }

  /** In each object of the run. */
  get #of(): { readonly of?: string } {
    return this.#tenant === undefined ? {} : { of: this.#tenant };
  }

  #emittedBy({ what, text }: Emission, { total }: Tally): unknown {
    switch (what) {
      case "part":
        return `${this.#mark}${text} ${total} `;
      case "message":
        return { parts: [{ content: `${this.#mark}${text} ${total}` }] };
      case "object":
        return { text, total, ...this.#of };
      case "close":
        return null;
    }
  }

  #work({ key, attempt, idempotencyKey, signal }: StepScope, ms: number): Promise<void> {
    const { run_id } = this.#context;
    const [name, tenant] = [this.#name, this.#tenant];
    return this.#player.work({ run_id, tenant, name, key, attempt, idempotencyKey, ms, signal });
  }

  /** Notes that the agent has been handed a result. */
  #received<T>(key: string, result: T): T {
    this.#player.got?.({ run_id: this.#context.run_id, tenant: this.#tenant, key });
    this.#read(key, result);
    return result;
  }

  #read(key: string, value: unknown): void {
    this.#player.read?.({ tenant: this.#tenant, key, value });
  }

  #keyOf(name: string): string {
    const occurrence = (this.#occurrences.get(name) ?? 0) + 1;
    this.#occurrences.set(name, occurrence);
    return keyIn(this.#context.generation, name, occurrence);
  }
}

/** The key of an operation of a generation. */
export function keyIn(generation: number, name: string, occurrence: number): string {
  return `${name}#${generation === 1 ? "" : `${generation}.`}${occurrence}`;
}

/** What the program makes of an error that a wait may end with. Throws every other error. */
function mishapOf(error: unknown): Ended {
  if (!CadenzaError.is(error) || !mishaps.includes(error.code)) throw error;
  return { value: hashOf(error.code) % 1_000, says: error.code };
}

/** The name of an operation that waits, as it is part of its key. */
function nameOf(wait: Wait): string {
  switch (wait.does) {
    case "ask":
    case "ask in vain":
      return "ask";
    case "sleep":
      return wait.name === null ? "sleep" : `sleep:${wait.name}`;
    case "receive":
    case "receive in time":
      return `receive:${wait.name}`;
  }
}

function manyTries({ failures }: Statement & { does: "step" }): StepOptions {
  return failures === 0 ? {} : { retry: { ...PAUSES, attempts: 1_000 } };
}
