import { setTimeout as pause } from "node:timers/promises";
import type { AgentRuntime, DurableContext, StepScope } from "cadenza";
import { textOf } from "../program-player.ts";
import type { Act, WitnessLine } from "./messages.ts";

/** How long the body of a step takes, and that of a slow one, in milliseconds. */
const BODY_MS = 40;
const SLOW_MS = 1_500;
const SLEEP_MS = 700;
/** How many parts an agent emits at a time. */
const PARTS = 120;

/** What the agent of a run is given, and all that its output depends on besides the results of its operations. */
export interface Plan {
  readonly label: string;
  readonly acts: readonly Act[];
}

type Note = (line: Pick<WitnessLine, "is" | "run" | "key" | "body">) => void;

/** What libraries of some versions have. */
type Patched = { readonly patched?: (id: string) => boolean | Promise<boolean> };

/** Registers the agents of the trial, in terms that each version of the library knows. */
export function registerAgents(runtime: AgentRuntime, note: Note): void {
  const act = async (input: Parameters<typeof textOf>[0], context: DurableContext): Promise<string> =>
    JSON.stringify(await new Player(JSON.parse(textOf(input)) as Plan, context, note).play());
  runtime.register("order", { durable: true, version: "1" }, act);
  runtime.register("helper", { durable: true, version: "1" }, act);
}

/** One call of an agent. */
class Player {
  readonly #plan: Plan;
  readonly #context: DurableContext;
  readonly #note: Note;
  readonly #told: string[] = [];
  readonly #counts = new Map<string, number>();

  constructor(plan: Plan, context: DurableContext, note: Note) {
    this.#plan = plan;
    this.#context = context;
    this.#note = note;
  }

  /** Resolves with what it was told, in the order of its acts. */
  async play(): Promise<readonly string[]> {
    for (const [number, act] of this.#plan.acts.entries()) await this.#act(act, number);
    return this.#told;
  }

  async #act(act: Act, number: number): Promise<void> {
    const { ask, receive, sleep, emit, run } = this.#context;
    const { label } = this.#plan;
    switch (act) {
      case "step":
      case "slow":
      case "retry":
        this.#told.push(await this.#step(act));
        return;
      case "both":
        this.#told.push(...(await Promise.all([this.#step("left"), this.#step("right")])));
        return;
      case "ask":
        this.#told.push(String(Reflect.get(await ask(`${label}/${number}`), "answer")));
        return;
      case "receive":
        this.#told.push(String(await receive("word")));
        return;
      case "sleep":
        await sleep(SLEEP_MS);
        return;
      case "talk":
        for (let part = 0; part < PARTS; part++) await emit(`${number}.${part} `);
        return;
      case "sub": {
        const plan: Plan = { label: `${label}/${number}`, acts: ["step", "ask", "step"] };
        const { status, output } = await run("helper", JSON.stringify(plan));
        this.#told.push(`${status}: ${output.at(-1)?.parts[0]?.content}`);
        return;
      }
      case "patch": {
        const isPatched = await (this.#context as Patched).patched?.("new code");
        this.#told.push(await this.#step(isPatched === true ? "new" : "old"));
      }
    }
  }

  #step(name: string): Promise<string> {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    const key = `${name}#${count}`;
    const body = async ({ attempt, signal }: StepScope): Promise<string> => {
      const id = crypto.randomUUID();
      const about = { run: this.#context.run_id, key, body: id };
      this.#note({ ...about, is: "began" });
      try {
        await pause(name === "slow" ? SLOW_MS : BODY_MS, undefined, { signal });
      } catch {
        this.#note({ ...about, is: "stopped" });
        throw signal.reason;
      }
      if (name === "retry" && attempt === 1) {
        this.#note({ ...about, is: "failed" });
        throw new Error("The first attempt fails.");
      }
      this.#note({ ...about, is: "ended" });
      return id;
    };
    return this.#context.step(name, body, { retry: { attempts: 3, backoffMs: 50 } });
  }
}
