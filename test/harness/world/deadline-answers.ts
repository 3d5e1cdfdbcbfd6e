import type { AgentContext, AwaitResume, Message, StandardSchema } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { z } from "zod";
import { Random } from "../random.ts";
import { openDatabase } from "../sqlite-files.ts";
import { World } from "./world.ts";

/* Answers to the question of a sub-run that come at its deadline: the agent gets each answer that is acknowledged. */

/** A kind of answer. */
export interface AnswerKind {
  readonly durable: boolean;
  readonly answer: "without a schema" | "that matches" | "that does not match";
}

export const answerKinds: readonly AnswerKind[] = [false, true].flatMap((durable) =>
  (["without a schema", "that matches", "that does not match"] as const).map((answer) => ({ durable, answer })),
);

/** The outcomes of some answers. */
export interface Verdicts {
  /** How many were taken, and how many were refused with each code. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly wrong: readonly string[];
}

/** The timeout of the question, in milliseconds. */
const TIME_MS = 60;
/** How far from the deadline an answer comes at most, in milliseconds. */
const WITHIN_MS = 10;
/** More steps of the world than a deadline takes. */
const MAX_STEPS = 12;
/** The codes with which an answer is refused that comes too late. */
const TOO_LATE = ["not_awaiting", "answer_conflict"];

/** In a simulated world: the answer comes between any two steps that happen at the deadline of its question. */
export async function answerInWorld(kind: AnswerKind, seed: number): Promise<Verdicts> {
  const random = new Random(seed);
  const got: Got = new Map();
  const world = new World({
    late: random.chance(0.8),
    reorders: seed % 2 === 1,
    random,
    register: ({ runtime }) => register(runtime, kind, got),
  });
  const process = world.start();
  const creating = process.runtime.createRun({ agent_name: "parent", input: "0", mode: "async" });
  const created = await world.until(creating, process);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  let { run_id } = created.value;
  while ((await world.stateOf(run_id)).question === null) await world.step();
  await world.pass(TIME_MS - 1);
  // The first step reaches the deadline.
  if (random.chance(0.6)) for (let steps = random.below(MAX_STEPS); steps > 0; steps--) await world.step();
  // Some answers go to the sub-run itself.
  if (random.chance(0.2)) run_id = await subRunOf(world, run_id);
  const mode = random.pick(["sync", "async"] as const);
  const answering = process.runtime.resume({ run_id, await_resume: answerOf(kind), mode });
  const outcome = await world.until(answering.then(taken, codeOf), process);
  await world.pass(5_000);
  return judge(
    kind,
    `seed ${seed}`,
    outcome !== undefined && "value" in outcome ? outcome.value : "none",
    got.get("0"),
  );
}

/**
 * With the machine's clock: many at once, each within 10 ms of the deadline of its question. Durable runs are kept in
 * the file.
 */
export async function answerInTime(kind: AnswerKind, count: number, seed: number, file: string): Promise<Verdicts> {
  const random = new Random(seed);
  const got: Got = new Map();
  const open = () => new SqliteStore(openDatabase(file), { synchronous: "NORMAL", closeDatabase: true });
  const runtime = new AgentRuntime(kind.durable ? { store: open() } : {});
  register(runtime, kind, got);
  const one = async (index: number): Promise<Verdicts> => {
    const input = String(index);
    const { run_id, await_request } = await runtime.createRun({ agent_name: "parent", input });
    const due = Date.parse(await_request?.expires_at ?? "") + (2 * random.number() - 1) * WITHIN_MS;
    await new Promise((resolve) => setTimeout(resolve, due - Date.now()));
    const mode = random.pick(["sync", "async"] as const);
    const outcome = await runtime.resume({ run_id, await_resume: answerOf(kind), mode }).then(taken, codeOf);
    for await (const _ of runtime.events(run_id, { until: "end" })) {
      // Waits for the end of the stream.
    }
    return judge(kind, `seed ${seed}, answer ${index}`, outcome, got.get(input));
  };
  const all = await Promise.all(Array.from({ length: count }, (_, index) => one(index)));
  await runtime.close({ drainMs: 0 });
  return sumOf(all);
}

export function sumOf(all: readonly Verdicts[]): Verdicts {
  const outcomes: Record<string, number> = {};
  for (const one of all)
    for (const [outcome, count] of Object.entries(one.outcomes)) outcomes[outcome] = (outcomes[outcome] ?? 0) + count;
  return { outcomes, wrong: all.flatMap(({ wrong }) => wrong) };
}

/** What the agent got, by the input of its run. */
type Got = Map<string, string>;

const byDefault = { n: 0 };

function register(runtime: AgentRuntime, { durable, answer }: AnswerKind, got: Got): void {
  runtime.register("child", { durable }, async (input: readonly Message[], { ask }: AgentContext) => {
    const given =
      answer === "without a schema"
        ? await ask("n?", { timeoutMs: TIME_MS, default: byDefault })
        : await ask("n?", { schema: slowly(runtime, number), timeoutMs: TIME_MS, default: byDefault });
    const name = input[0]?.parts[0]?.content ?? "";
    const text = JSON.stringify(given);
    // A replayed agent gets the same again.
    got.set(name, (got.get(name) ?? text) === text ? text : `${got.get(name)} and ${text}`);
  });
  runtime.register("parent", { durable }, async (input: readonly Message[], { run }: AgentContext) => {
    await run("child", [...input]);
  });
}

const number = z.object({ n: z.number() });

/** Makes the validation of an answer take some turns, in which the deadline may pass. */
function slowly<Output>(runtime: AgentRuntime, schema: StandardSchema<Output>): StandardSchema<Output> {
  const { validate, ...standard } = schema["~standard"];
  return {
    "~standard": {
      ...standard,
      validate: async (value) => {
        for (let turns = 0; turns < 3; turns++) await runtime.clock.turn();
        return validate(value);
      },
    },
  };
}

function answerOf({ answer }: AnswerKind): AwaitResume {
  return { n: answer === "that does not match" ? "many" : 7 };
}

function judge(kind: AnswerKind, which: string, outcome: string, got = "nothing"): Verdicts {
  const expected = JSON.stringify(outcome === "taken" ? answerOf(kind) : byDefault);
  const wrong: string[] = [];
  if (got !== expected) wrong.push(`${which}: ${outcome}, and the agent got ${got}`);
  const isFounded =
    outcome === "taken"
      ? kind.answer !== "that does not match"
      : TOO_LATE.includes(outcome) || (outcome === "answer_rejected" && kind.answer === "that does not match");
  if (!isFounded) wrong.push(`${which}: ${outcome}`);
  return {
    outcomes: { [outcome]: 1 },
    wrong: wrong.map((what) => `an answer ${kind.answer}, ${kind.durable ? "durable" : "plain"}, ${what}`),
  };
}

async function subRunOf(world: World, parent: string): Promise<string> {
  const runs = await world.store.list({ tenant: "", limit: 10, offset: 0 });
  const found = runs.find(({ created }) => created?.parent?.run_id === parent);
  if (found === undefined) throw new Error("There is no sub-run.");
  return found.key.run_id;
}

function taken(): string {
  return "taken";
}

function codeOf(error: unknown): string {
  return CadenzaError.is(error) ? error.code : String(error);
}
