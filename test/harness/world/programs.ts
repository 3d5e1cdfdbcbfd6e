import type { AgentContext } from "cadenza";
import { AgentError, awaitMessage } from "cadenza";
import { hashOf, Random } from "../random.ts";
import type { Script } from "./play.ts";
import { body } from "./play.ts";
import type { Process } from "./world.ts";

/*
 * Random agents. A program is a tree of what an agent can do. The same interpreter runs it as an agent of a runtime
 * and, for the judge, against a log.
 */

export type Node =
  | { readonly does: "says"; readonly text: string }
  | { readonly does: "emits" }
  | { readonly does: "closes" }
  | { readonly does: "step"; readonly name: string; readonly ms: number; readonly once?: boolean }
  | { readonly does: "fails"; readonly name: string; readonly attempts: number; readonly succeedsAt: number }
  | { readonly does: "streams"; readonly name: string; readonly tokens: number }
  | { readonly does: "asks"; readonly expires: boolean }
  | { readonly does: "awaits" }
  | { readonly does: "runs"; readonly agent: "child" | "asking-child" }
  | { readonly does: "reports"; readonly tokens: number }
  | { readonly does: "draws" }
  | { readonly does: "state" }
  | { readonly does: "history" }
  | { readonly does: "sequence"; readonly nodes: readonly Node[] }
  | { readonly does: "repeats"; readonly times: number; readonly node: Node }
  | { readonly does: "branches"; readonly name: string; readonly even: Node; readonly odd: Node }
  | { readonly does: "all"; readonly nodes: readonly Node[] }
  | { readonly does: "races"; readonly nodes: readonly Node[] }
  | { readonly does: "tries"; readonly node: Node; readonly otherwise: Node; readonly last: Node }
  | { readonly does: "throws" };

export interface Program {
  readonly seed: number;
  readonly node: Node;
  /** Whether it emits the same for any order in which its operations end. */
  readonly isOrderly: boolean;
}

const MAX_DEPTH = 4;
const names = ["a", "b", "c", "d"];
const leaves: readonly Node["does"][] = [
  "says",
  "says",
  "step",
  "step",
  "step",
  "step",
  "emits",
  "closes",
  "fails",
  "streams",
  "asks",
  "awaits",
  "runs",
  "reports",
  "draws",
  "state",
  "history",
];
const inner: readonly Node["does"][] = ["sequence", "repeats", "branches", "all", "all", "races", "tries"];

export function makeProgram(seed: number): Program {
  const random = new Random(seed);
  const isOrderly = random.chance(0.5);
  return { seed, isOrderly, node: new Maker(random, isOrderly).sequence(MAX_DEPTH, "top") };
}

/** Where a node is: at the top, where it may yield, or in a branch beside others. */
type Place = "top" | "branch";

class Maker {
  readonly #random: Random;
  readonly #isOrderly: boolean;
  #serial = 0;

  constructor(random: Random, isOrderly: boolean) {
    this.#random = random;
    this.#isOrderly = isOrderly;
  }

  sequence(depth: number, place: Place): Node {
    const length = 1 + this.#random.below(depth + 1);
    return { does: "sequence", nodes: Array.from({ length }, () => this.#node(depth - 1, place)) };
  }

  #node(depth: number, place: Place): Node {
    const does = this.#random.pick(depth > 0 && this.#random.chance(0.45) ? inner : leaves);
    const isBeside = place === "branch";
    // An orderly program has no branches that emit in no fixed order.
    if (this.#isOrderly && isBeside && !["step", "fails", "sequence", "branches", "repeats"].includes(does))
      return this.#step();
    switch (does) {
      case "says":
        return { does, text: `text ${++this.#serial}` };
      case "step":
        return this.#step();
      case "fails": {
        const attempts = 1 + this.#random.below(3);
        return { does, name: this.#name("f"), attempts, succeedsAt: 1 + this.#random.below(4) };
      }
      case "streams":
        return { does, name: this.#name("m"), tokens: 1 + this.#random.below(4) };
      case "asks":
        return { does, expires: this.#random.chance(0.2) };
      case "awaits":
        return isBeside ? { does: "asks", expires: false } : { does };
      case "runs":
        return { does, agent: this.#random.chance(0.7) ? "child" : "asking-child" };
      case "reports":
        return { does, tokens: 1 + this.#random.below(5) };
      case "sequence":
        return this.sequence(depth, place);
      case "repeats":
        return { does, times: 1 + this.#random.below(3), node: this.#node(depth - 1, place) };
      case "branches":
        return {
          does,
          name: this.#isOrderly ? this.#name("decides") : "decides",
          even: this.sequence(depth - 1, place),
          odd: this.sequence(depth - 1, place),
        };
      case "all":
        return { does, nodes: this.#branches(depth) };
      case "races":
        return this.#isOrderly ? this.sequence(depth, place) : { does, nodes: this.#branches(depth) };
      case "tries": {
        const node = this.#random.chance(0.5)
          ? this.sequence(depth - 1, place)
          : ({ does: "sequence", nodes: [this.#node(depth - 1, place), { does: "throws" }] } as const);
        return { does, node, otherwise: this.#node(depth - 1, place), last: this.#node(depth - 1, place) };
      }
      default:
        return { does } as Node;
    }
  }

  #step(): Node {
    const once = this.#random.chance(0.1) && !this.#isOrderly;
    return { does: "step", name: this.#name("s"), ms: this.#random.below(40), ...(once && { once }) };
  }

  /** Orderly branches have names of their own, so that their operations are numbered the same each time. */
  #name(kind: string): string {
    return this.#isOrderly ? `${kind}${++this.#serial}` : `${kind}-${this.#random.pick(names)}`;
  }

  #branches(depth: number): Node[] {
    return Array.from({ length: 2 + this.#random.below(2) }, () => this.sequence(depth - 1, "branch"));
  }
}

/** What a program needs of its interpreter's caller. */
export interface Player {
  /** The value of an operation's key is the same each time. */
  body<T>(step: { readonly key: string; readonly attempt: number }, value: T, ms: number): Promise<T>;
  pause(ms: number): Promise<void>;
}

/** Runs a program as an agent. Its values depend on keys alone, and its branches on its values. */
export async function* perform(node: Node, context: AgentContext, player: Player): AsyncGenerator<unknown, number> {
  const here = (other: Node): AsyncGenerator<unknown, number> => perform(other, context, player);
  switch (node.does) {
    case "says":
      yield node.text;
      return 1;
    case "emits":
      yield { emitted: node.does };
      return 0;
    case "closes":
      yield null;
      return 0;
    case "step": {
      const { name, ms, once = false } = node;
      const work = context.step(name, (s) => player.body(s, hashOf(s.key) % 97, ms), { once });
      if (!once) return work;
      try {
        return await work;
      } catch {
        return 3;
      }
    }
    case "fails": {
      const { attempts, succeedsAt, name } = node;
      try {
        return await context.step(
          name,
          async (s) => {
            // The output must not depend on the number of attempts, which crashes change.
            await player.body(s, 0, 3);
            if (succeedsAt > attempts) throw new AgentError("unlucky", `${s.key} failed`);
            return hashOf(s.key) % 89;
          },
          { retry: { attempts, backoffMs: 20 } },
        );
      } catch (error) {
        yield `${(error as AgentError).code}`;
        return 1;
      }
    }
    case "streams":
      return context.step(node.name, async (s) => {
        await player.body(s, 0, 1);
        for (let token = 1; token <= node.tokens; token++) {
          await s.emit(`${s.key} ${token} `);
          await player.pause(7);
        }
        return node.tokens;
      });
    case "asks": {
      const { expires } = node;
      const answer = await context.ask(
        expires ? "Quick?" : "Well?",
        expires ? { timeoutMs: 30_000, default: { number: 5 } } : {},
      );
      return (answer as { number: number }).number;
    }
    case "awaits": {
      const answer = (yield awaitMessage("And?")) as { number: number };
      return answer.number;
    }
    case "runs": {
      const { status, output } = await context.run(node.agent, "Go.");
      yield `${status} ${output.map(({ parts }) => parts.map(({ content }) => content).join("")).join("/")}`;
      return 2;
    }
    case "reports":
      context.usage.add({ input_tokens: node.tokens, output_tokens: 1 });
      return 0;
    case "draws": {
      const kept = { uuid: context.uuid(), number: context.random(), now: context.now() };
      const same = await context.step("draws", (s) => player.body(s, kept, 2));
      yield `${same.uuid === kept.uuid} ${same.number === kept.number} ${same.now === kept.now}`;
      return 1;
    }
    case "state": {
      await context.session.setState({ count: 7 });
      return ((await context.session.getState()) as { count: number }).count;
    }
    case "history":
      return (await context.session.history()).length;
    case "sequence": {
      let sum = 0;
      for (const each of node.nodes) sum += yield* here(each);
      return sum;
    }
    case "repeats": {
      let sum = 0;
      for (let time = 0; time < node.times; time++) sum += yield* here(node.node);
      return sum;
    }
    case "branches": {
      const value = await context.step(node.name, (s) => player.body(s, hashOf(s.key) % 7, 1));
      return yield* here(value % 2 === 0 ? node.even : node.odd);
    }
    case "all": {
      const values = await Promise.all(node.nodes.map((each) => drained(here(each), context)));
      yield `all ${values.join()}`;
      return values.reduce((sum, value) => sum + value, 0);
    }
    case "races": {
      const racing = node.nodes.map(async (each, index) => `${index} with ${await drained(here(each), context)}`);
      yield `won by ${await Promise.race(racing)}`;
      await Promise.allSettled(racing);
      return 4;
    }
    case "tries": {
      try {
        return yield* here(node.node);
      } catch (error) {
        yield `caught ${(error as Error).message}`;
        return yield* here(node.otherwise);
      } finally {
        if (!context.signal.aborted) yield* here(node.last);
        else yield "stopped";
      }
    }
    case "throws":
      throw new AgentError("thrown", "on purpose");
  }
}

/** Emits what a branch yields. */
async function drained(branch: AsyncGenerator<unknown, number>, context: AgentContext): Promise<number> {
  for (;;) {
    const { done, value } = await branch.next();
    if (done === true) return value;
    await context.emit(value);
  }
}

/** A program and its client. Some questions are not answered, and some runs are cancelled. */
export function scriptOf({ seed, node }: Program): Script {
  const cancelAt = hashOf(`${seed}`) % 10 === 0 ? 3 + (hashOf(`at ${seed}`) % 12) : Number.POSITIVE_INFINITY;
  return {
    register: (process) => {
      const options = { durable: true, version: "1" };
      const playerOf = (context: AgentContext): Player => playerIn(process, context);
      process.runtime.register("agent", options, async function* (_input, context) {
        yield* perform(node, context, playerOf(context));
      });
      process.runtime.register("child", options, async function* (_input, context) {
        context.usage.add({ input_tokens: 2, output_tokens: 2 });
        yield String(await context.step("inner", (s) => playerOf(context).body(s, 11, 9)));
      });
      process.runtime.register("asking-child", options, async function* (_input, context) {
        const answer = (await context.ask("Child?")) as { number: number };
        yield `child ${answer.number}`;
      });
    },
    answer: ({ message, await_id }) =>
      message.parts[0]?.content === "Quick?" ? undefined : { number: hashOf(await_id.split("/").at(-1) ?? "") % 9 },
    cancelWhen: (_state, log) => log.length >= cancelAt,
  };
}

function playerIn(process: Process, context: AgentContext): Player {
  return {
    body: (step, value, ms) => body(process, context, step, value, ms),
    pause: (ms) => process.wait(ms),
  };
}
