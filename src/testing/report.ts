/** One way in which an agent was run, and what came of it. */
export interface WayResult {
  readonly kind: string;
  /** What happened to the agent, in words. */
  readonly where: string;
  /** How the run ended. */
  readonly status: string;
  /** What was wrong, in sentences; none if all is well. */
  readonly problems: readonly string[];
  /** What was wrong and was to be ignored. */
  readonly ignored: readonly string[];
}

/** What a tool of this kit found that runs an agent in many ways. As text it reads well in a failing test. */
export abstract class Report<Result extends WayResult> {
  readonly agent_name: string;
  readonly results: readonly Result[];

  constructor(agentName: string, results: readonly Result[]) {
    this.agent_name = agentName;
    this.results = results;
  }

  /** Whether nothing was wrong with any way. */
  get ok(): boolean {
    return this.results.every(({ problems }) => problems.length === 0);
  }

  /** Everything that went wrong, a line for each: `expect(report.problems).toEqual([])`. */
  get problems(): readonly string[] {
    return this.results.flatMap(({ where, problems }) => problems.map((problem) => lineOf(where, problem)));
  }

  /** Throws an error with the whole report if anything went wrong. */
  assert(): void {
    if (!this.ok) throw new Error(this.toString());
  }

  toString(): string {
    const wrong = this.results.filter(({ problems }) => problems.length > 0);
    const count = `${this.results.length} ${this.results.length === 1 ? "way" : "ways"} to run ${JSON.stringify(this.agent_name)}`;
    const ignored = this.results.reduce((sum, result) => sum + result.ignored.length, 0);
    const rest = ignored === 0 ? "" : ` (${ignored} ${ignored === 1 ? "problem" : "problems"} ignored)`;
    if (wrong.length === 0) return `${count}, all well${rest}: ${this.#tally()}.`;
    const lines = wrong.flatMap(({ where, problems }) => [`  ✗ ${where}`, ...problems.map(indented)]);
    return [`${count}, ${wrong.length} went wrong${rest}:`, "", ...lines, ""].join("\n");
  }

  #tally(): string {
    const kinds = new Map<string, number>();
    for (const { kind, where } of this.results) {
      const name = kind === "none" ? where : kind;
      kinds.set(name, (kinds.get(name) ?? 0) + 1);
    }
    return [...kinds].map(([name, count]) => `${count} × ${name}`).join(", ");
  }
}

/** A problem as `report.problems` shows it, and as it is ignored. */
export function lineOf(where: string, problem: string): string {
  return `${where}: ${problem}`;
}

function indented(problem: string): string {
  return problem
    .split("\n")
    .map((line) => `      ${line}`)
    .join("\n");
}
