import type { AgentContext, AgentRuntime, Message, RunInput } from "cadenza";
import { defineAgent } from "cadenza";
import { hashOf, Random } from "../random.ts";
import { GOOD, hostileSchema, hostileValue } from "./values.ts";

/** What a run does with a hostile value before it asks its question. */
const deeds = [
  "yield",
  "emit",
  "emit in a step",
  "step",
  "step throws",
  "throw",
  "state",
  "return",
  "question",
] as const;
const rareDeeds = ["yielded question", "options", "sub-run", "usage", "log", "sleep"] as const;

type Deed = (typeof deeds)[number] | (typeof rareDeeds)[number] | "nothing" | "receive";

/** What a run is to do. It is the first text of its input. */
export interface Plan {
  readonly deed: Deed;
  readonly seed: string;
  readonly asks: "sound" | "hostile";
}

/** A plan of this kind of case. */
export function planFor(kind: string, random: Random, seed: string): Plan {
  const asks = kind === "schema" || (kind === "answer" && random.chance(0.3)) ? "hostile" : "sound";
  if (kind === "output") return { deed: random.chance(0.75) ? random.pick(deeds) : random.pick(rareDeeds), seed, asks };
  return { deed: kind === "message" ? "receive" : "nothing", seed, asks };
}

/** The hostile value of a plan, and the schema of its question. */
export function hostileOf({ seed }: Plan): ReturnType<typeof hostileValue> {
  return hostileValue(new Random(hashOf(`${seed} value`)));
}

export function schemaOf({ seed, asks }: Plan): ReturnType<typeof hostileSchema> {
  if (asks === "sound") return { name: "sound", schema: undefined, takesGood: true, isSlow: false };
  return hostileSchema(new Random(hashOf(`${seed} schema`)));
}

/** The schema of the messages that a run receives. */
function messageSchemaOf({ seed }: Plan): ReturnType<typeof hostileSchema> {
  return hostileSchema(new Random(hashOf(`${seed} messages`)));
}

/** What a run emits after its question was answered. Each face has to show it. */
export function laterText({ seed }: Plan): string {
  return `later-${hashOf(seed)}`;
}

/** The plan in the input of a run. An input without one has the plan to do nothing. */
function planIn(input: readonly Message[]): Plan {
  try {
    return JSON.parse(input[0]?.parts[0]?.content ?? "") as Plan;
  } catch {
    return { deed: "nothing", seed: "none", asks: "sound" };
  }
}

async function* hostile(input: readonly Message[], context: AgentContext): AsyncGenerator<unknown, unknown> {
  const plan = planIn(input);
  // The value is made anew, as a replay does.
  const { value } = hostileOf(plan);
  if (plan.deed === "yield") yield value;
  if (plan.deed === "yielded question") yield { type: "message", message: value };
  if (plan.deed === "throw") throw value;
  if (plan.deed === "nothing" && plan.seed !== "none") for (const message of input.slice(0, 5)) yield message;
  const schema = schemaOf(plan).schema;
  const receiving = receive(plan, context);
  await perform(plan, context).catch(() => undefined);
  const answer = await (schema === undefined ? context.ask("Well?") : context.ask("Well?", { schema }));
  await receiving;
  yield laterText(plan);
  if (plan.deed === "nothing") yield { answered: typeof answer };
  if (plan.deed === "return") return value;
  return undefined;
}

async function perform({ deed, ...plan }: Plan, context: AgentContext): Promise<void> {
  const { value } = hostileOf({ deed, ...plan });
  const foreign = value as never;
  switch (deed) {
    case "emit":
      return context.emit(value);
    case "emit in a step":
      await context.step("emits", async ({ emit }) => {
        await emit(value);
        await emit("more");
      });
      return;
    case "step":
      await context.step("step", () => foreign);
      return;
    case "step throws":
      await context.step("throws", () => {
        throw value;
      });
      return;
    case "state":
      await context.session.setState(foreign);
      await context.session.getState();
      await context.session.history();
      return;
    case "question":
      await context.ask(foreign);
      return;
    case "options":
      await context.ask("Which?", { name: "which", default: foreign, timeoutMs: 60_000, schema: foreign });
      return;
    case "sub-run":
      await context.run("child", foreign);
      return;
    case "usage":
      context.usage.add(foreign);
      return;
    case "log":
      context.logger.warn("A hostile value.", foreign);
      return;
    case "sleep":
      await context.sleep(foreign);
  }
}

async function receive(plan: Plan, { receive: next }: AgentContext): Promise<void> {
  if (plan.deed !== "receive") return;
  const { schema } = messageSchemaOf(plan);
  await (schema === undefined ? next("m") : next("m", { schema })).catch(() => undefined);
}

/** How many typed agents there are. Each has hostile schemas of its own. */
export const TYPED = 24;

/** The schemas of a typed agent. */
function typedSchemas(index: number) {
  const schemas = ["input", "output", "messages"].map((what) => hostileSchema(new Random(hashOf(`${index} ${what}`))));
  const [input, output, messages] = schemas as [Schemas, Schemas, Schemas];
  return { input, output, messages };
}

type Schemas = ReturnType<typeof hostileSchema>;

function typed(index: number, durable: boolean) {
  const { input, output, messages } = typedSchemas(index);
  const schemas = {
    ...(input.schema !== undefined && { input: input.schema }),
    ...(output.schema !== undefined && { output: output.schema }),
    ...(messages.schema !== undefined && { messages: { m: messages.schema } }),
  };
  return defineAgent(`typed-${durable ? "durable" : "plain"}-${index}`, { durable, ...schemas } as object).run((async (
    _input: unknown,
    { ask }: AgentContext,
  ) => {
    await ask("Well?");
    return GOOD;
  }) as never);
}

/** Registers all agents, or declares them in a process that executes none. */
export function addAgents(runtime: AgentRuntime, executes: boolean): void {
  const child = (input: readonly Message[]): readonly Message[] => input;
  for (const durable of [true, false]) {
    const name = durable ? "durable" : "plain";
    if (executes) runtime.register(name, { durable }, hostile);
    else runtime.declare({ name, durable });
    for (let index = 0; index < TYPED; index++) {
      const agent = typed(index, durable);
      if (executes) runtime.register(agent);
      else runtime.declare(agent);
    }
  }
  if (executes) runtime.register("child", { durable: true }, child);
  else runtime.declare({ name: "child", durable: true });
}

/** The input of a run with a plan, and further parts. */
export function inputOf(plan: Plan, parts: readonly unknown[] = []): RunInput {
  return [{ content: JSON.stringify(plan) }, ...parts] as RunInput;
}
