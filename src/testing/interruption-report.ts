import type { Interruption } from "./interruption.ts";

/** One interruption, and what came of it. */
export interface InterruptionResult {
  readonly kind: Interruption["kind"];
  /** The number of the last thing that the agent had done before, counted from 1; 0 for none. */
  readonly yield_index: number;
  /** The interruption in words: `cancelled after yield 2 (part "Looking for trains…")`. */
  readonly where: string;
  /** How the run ended. */
  readonly status: string;
  /** What the agent did not keep, in sentences; none if all is well. */
  readonly problems: readonly string[];
}

/** What `everyInterruption` found. As text it reads well in a failing test. */
export class InterruptionReport {
  readonly agent_name: string;
  readonly results: readonly InterruptionResult[];

  constructor(agentName: string, results: readonly InterruptionResult[]) {
    this.agent_name = agentName;
    this.results = results;
  }

  /** Whether the agent kept every promise at every point. */
  get ok(): boolean {
    return this.results.every(({ problems }) => problems.length === 0);
  }

  /** Everything that went wrong, a line for each: `expect(report.problems).toEqual([])`. */
  get problems(): readonly string[] {
    return this.results.flatMap(({ where, problems }) => problems.map((problem) => `${where}: ${problem}`));
  }

  /** Throws an error with the whole report if anything went wrong. */
  assert(): void {
    if (!this.ok) throw new Error(this.toString());
  }

  toString(): string {
    const wrong = this.results.filter(({ problems }) => problems.length > 0);
    const name = JSON.stringify(this.agent_name);
    const count = `${this.results.length} ${this.results.length === 1 ? "way" : "ways"} to run ${name}`;
    if (wrong.length === 0) return `${count}, all well: ${this.#tally()}.`;
    const lines = wrong.flatMap(({ where, problems }) => [`  ✗ ${where}`, ...problems.map((text) => `      ${text}`)]);
    return [`${count}, ${wrong.length} went wrong:`, "", ...lines, ""].join("\n");
  }

  #tally(): string {
    const kinds = new Map<string, number>();
    for (const { kind } of this.results) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    return [...kinds].map(([kind, count]) => `${count} × ${kind === "none" ? "not interrupted" : kind}`).join(", ");
  }
}
