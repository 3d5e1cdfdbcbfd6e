import { setTimeout as pause } from "node:timers/promises";
import type { AgentRuntime } from "cadenza";
import { CadenzaError } from "cadenza";

/** A refused run is created again after so many milliseconds. */
const RETRY_MS = 50;
const STEPS = 5;
const LOOK_MS = 20;

/** Runs of a few steps, so many at a time. */
export class Load {
  readonly #runtime: AgentRuntime;
  readonly #stepMs: number;
  readonly #workers: Promise<void>[] = [];
  /** How long each run took that has ended since the last count. */
  #took: number[] = [];
  readonly #begun: Map<string, number>;
  #isOver = false;
  /** How many runs have completed. */
  completed = 0;
  /** How many calls were refused. */
  refused = 0;
  readonly wrong: string[] = [];

  /**
   * @param begun How often the body of each step began, in all processes.
   * @param stepMs How long a step takes.
   */
  constructor(runtime: AgentRuntime, begun: Map<string, number>, stepMs: number) {
    this.#runtime = runtime;
    this.#begun = begun;
    this.#stepMs = stepMs;
    runtime.register("works", { durable: true }, async (_input, { step, run_id }) => {
      for (let n = 0; n < STEPS; n++) await step(`step ${n}`, () => this.body(`${run_id} ${n}`));
      return "done";
    });
  }

  /** The body of a step that is to begin once. */
  async body(key: string): Promise<number> {
    this.#begun.set(key, (this.#begun.get(key) ?? 0) + 1);
    await pause(this.#stepMs);
    return 1;
  }

  start(atOnce: number): void {
    for (let n = 0; n < atOnce; n++) this.#workers.push(this.#work());
  }

  async #work(): Promise<void> {
    while (!this.#isOver) {
      const since = performance.now();
      try {
        const { status, error } = await this.#runtime.createRun({ agent_name: "works", input: "" });
        if (status !== "completed") this.wrong.push(`a run is ${status}: ${error?.message}`);
        this.completed += 1;
        this.#took.push(performance.now() - since);
      } catch (error) {
        if (!CadenzaError.is(error) || error.code !== "store_failed") this.wrong.push(String(error));
        this.refused += 1;
        await pause(RETRY_MS);
      }
    }
  }

  /** How many runs have ended since the last call, and how long the longest of them took, in milliseconds. */
  count(): { readonly ended: number; readonly longestMs: number } {
    const took = this.#took;
    this.#took = [];
    return { ended: took.length, longestMs: Math.max(0, ...took) };
  }

  /** Resolves when so many more runs have ended. */
  async next(count: number): Promise<void> {
    const until = this.completed + count;
    while (this.completed < until) await pause(LOOK_MS);
  }

  /** Resolves when the last run has ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#workers);
  }
}
