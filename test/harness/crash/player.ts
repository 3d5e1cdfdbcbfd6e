import type { AgentContext, AgentFunction, Message, StepScope } from "cadenza";
import { awaitMessage, CadenzaError } from "cadenza";
import * as z from "zod";
import { hashOf } from "../random.ts";
import { numberIn } from "./answers.ts";
import type { Statement } from "./programs.ts";
import { programOf } from "./programs.ts";

/** What the steps of a program act on, and what observes the agent. */
export interface World {
  /** A step's body does its work; it may take a while. */
  work(work: Work): Promise<void>;
  /** A body waits in the middle of its work. */
  pause(ms: number): Promise<void>;
  /** The agent has been handed the result of an operation. */
  got(got: { readonly run_id: string; readonly input: string; readonly key: string }): void;
  /** The agent is about to end. */
  ending(input: string): Promise<void>;
}

/** What a step's body is about to do. */
export interface Work {
  readonly run_id: string;
  readonly input: string;
  readonly key: string;
  readonly attempt: number;
  readonly ms: number;
  readonly signal: AbortSignal;
}

const answerSchema = z.object({ value: z.number() });

/** An agent that does what the program of its input says. */
export function player(world: World): AgentFunction {
  return async function* play(messages, context) {
    const input = textOf(messages);
    const program = programOf(input);
    const game = new Game(input, context, world);
    try {
      yield `${input}: `;
      for (const statement of program.body) {
        if (statement.is === "say") yield game.line(statement.text);
        else if (statement.is === "await") game.take("await", numberIn(yield awaitMessage("What about this?")));
        else await game.play(statement);
      }
      await world.ending(input);
      if (program.fails) throw new Error(`the program ends here, at ${game.total}`);
      yield `= ${game.total}`;
    } finally {
      yield null;
    }
  };
}

/** One run of a program, in one process. */
class Game {
  readonly #input: string;
  readonly #context: AgentContext;
  readonly #world: World;
  readonly #occurrences = new Map<string, number>();
  /** A value that all results so far have changed: it depends on their order. */
  total = 1;

  constructor(input: string, context: AgentContext, world: World) {
    this.#input = input;
    this.#context = context;
    this.#world = world;
  }

  line(text: string): string {
    return `${text}${this.total} `;
  }

  async play(statement: Statement): Promise<void> {
    const { emit } = this.#context;
    switch (statement.is) {
      case "say":
        return emit(this.line(statement.text));
      case "message":
        return emit({ parts: [{ content: this.line(statement.text) }] });
      case "generic":
        return emit({ total: this.total });
      case "close":
        return emit(null);
      case "step": {
        const { name, ms, failures } = statement;
        const options = failures === 0 ? {} : { retry: { attempts: 1_000 } };
        return this.#step(name, ms, options, async ({ attempt }) => {
          // Attempts are counted across crashes: the attempt that should fail may be the one that was interrupted.
          if (attempt <= failures) throw new Error("not yet");
        });
      }
      case "failing":
        return this.#failing(statement.name);
      case "stream":
        return this.#step(statement.name, 0, {}, async (step) => {
          for (let token = 0; token < statement.tokens; token++) {
            await step.emit(`${step.key}/${token} `);
            if (token === 0) await this.#world.pause(statement.ms);
          }
        });
      case "once":
        return this.#once(statement.name, statement.ms);
      case "ask":
        return this.#ask(statement.schema);
      case "unanswered":
        return this.#unanswered(statement.ms);
      case "await":
        throw new Error("a question that is asked by yield is at the top of a program only");
      case "chance":
        return this.#chance();
      case "loop": {
        const times = statement.times === "result" ? this.total % 4 : statement.times;
        for (let turn = 0; turn < times; turn++) await this.#playAll(statement.body);
        return;
      }
      case "branch":
        return this.#playAll(statement.ways[this.total % statement.ways.length] ?? []);
      case "all":
        await Promise.all(statement.branches.map((branch) => this.#playAll(branch)));
        return;
      case "race": {
        const winner = await Promise.race(
          statement.branches.map(async (branch, index) => {
            await this.#playAll(branch);
            return index;
          }),
        );
        this.#add(winner);
        return emit(this.line(`winner ${winner}, `));
      }
      case "child":
        return this.#child();
    }
  }

  /** Takes the result of an operation. */
  take(name: string, value: number): void {
    this.#received(this.#keyOf(name));
    this.#add(value);
  }

  async #playAll(body: readonly Statement[]): Promise<void> {
    for (const statement of body) await this.play(statement);
  }

  async #step(
    name: string,
    ms: number,
    options: { readonly retry?: { readonly attempts: number } },
    body: (step: StepScope) => Promise<void>,
  ): Promise<void> {
    const key = this.#keyOf(name);
    const result = await this.#context.step(
      name,
      async (step) => {
        await this.#work(step, ms);
        await body(step);
        return { key: step.key, value: hashOf(`${this.#input} ${step.key}`) % 1_000 };
      },
      options,
    );
    this.#received(key);
    if (result.key !== key) throw new Error(`${key} was given the result of ${result.key}`);
    this.#add(result.value);
  }

  async #failing(name: string): Promise<void> {
    const key = this.#keyOf(name);
    try {
      await this.#context.step(name, async (step) => {
        await this.#work(step, 0);
        throw new Error(`no luck with ${step.key}`);
      });
    } catch (error) {
      if (CadenzaError.is(error)) throw error;
      this.#received(key);
      await this.#context.emit(`(${(error as Error).message}) `);
    }
  }

  async #once(name: string, ms: number): Promise<void> {
    const key = this.#keyOf(name);
    await this.#context
      .step(name, (step) => this.#work(step, ms), { once: true })
      .catch((error: unknown) => {
        if (!CadenzaError.is(error) || error.code !== "step_interrupted") throw error;
      });
    this.#received(key);
  }

  async #ask(schema: boolean): Promise<void> {
    const key = this.#keyOf("ask");
    const value = schema
      ? (await this.#context.ask("How much?", { schema: answerSchema })).value
      : numberIn(await this.#context.ask("What about this?"));
    this.#received(key);
    this.#add(value);
  }

  async #unanswered(ms: number): Promise<void> {
    const key = this.#keyOf("ask");
    await this.#context.ask(NO_ANSWER, { timeoutMs: ms, default: {} });
    this.#received(key);
  }

  async #chance(): Promise<void> {
    const key = this.#keyOf("look at the clock");
    const { now, random, uuid } = this.#context;
    const seen = [now(), random(), uuid()];
    const before = await this.#context.step("look at the clock", async (step) => {
      await this.#work(step, 0);
      return seen;
    });
    this.#received(key);
    if (JSON.stringify(before) !== JSON.stringify(seen)) throw new Error(`${key}: ${before} has become ${seen}`);
  }

  async #child(): Promise<void> {
    const key = this.#keyOf(`run:${CHILD}`);
    const run = await this.#context.run(CHILD, `${this.#input}.${key.split("#").at(-1)}`);
    this.#received(key);
    this.#add(hashOf(run.output.map(({ parts }) => parts.map(({ content }) => content).join("")).join("|")) % 1_000);
  }

  #work({ key, attempt, signal }: StepScope, ms: number): Promise<void> {
    return this.#world.work({ run_id: this.#context.run_id, input: this.#input, key, attempt, ms, signal });
  }

  #add(value: number): void {
    this.total = (this.total * 31 + value) % 1_000_003;
  }

  #received(key: string): void {
    this.#world.got({ run_id: this.#context.run_id, input: this.#input, key });
  }

  #keyOf(name: string): string {
    const occurrence = (this.#occurrences.get(name) ?? 0) + 1;
    this.#occurrences.set(name, occurrence);
    return `${name}#${occurrence}`;
  }
}

/** The name of the agent that sub-runs are of. */
export const CHILD = "child";
/** A question with this text is left to its deadline. */
export const NO_ANSWER = "Is there an answer?";

export function textOf(messages: readonly Message[]): string {
  return messages.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join("");
}
