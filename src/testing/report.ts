/** One way in which an agent was executed, and its outcome. */
export interface WayResult {
  readonly kind: string;
  /** What happened to the agent, in words. */
  readonly where: string;
  /** How the run ended. */
  readonly status: string;
  /** The problems, in sentences; none if there were none. */
  readonly problems: readonly string[];
  /** The problems that the options ignore. */
  readonly ignored: readonly string[];
}

/** The result of a tool that executes an agent in many ways. As text it is the message of a failing test. */
export abstract class Report<Result extends WayResult> {
  readonly agent_name: string;
  readonly results: readonly Result[];
  /** What the numbers of `Math.random()` follow from; undefined if the agent has drawn none. */
  readonly seed: number | undefined;

  constructor(agentName: string, results: readonly Result[], seed?: number) {
    this.agent_name = agentName;
    this.results = results;
    this.seed = seed;
  }

  /** Whether no way had a problem. */
  get ok(): boolean {
    return this.results.every(({ problems }) => problems.length === 0);
  }

  /** All problems, a line for each: `expect(report.problems).toEqual([])`. */
  get problems(): readonly string[] {
    return this.results.flatMap(({ where, problems }) => problems.map((problem) => lineOf(where, problem)));
  }

  /** Throws an error with the whole report if there are problems. */
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
    return [
      `${count}, ${wrong.length} went wrong${rest}:`,
      "",
      ...lines,
      "",
      ...wrong.slice(0, 1).map(this.#again),
      "",
    ].join("\n");
  }

  /** How to execute that way alone. */
  readonly #again = ({ where }: Result): string => {
    const seed = this.seed === undefined ? "" : `, seed: ${this.seed}`;
    return `To run the first one alone, add to the options: only: ${JSON.stringify(where)}${seed}`;
  };

  #tally(): string {
    const kinds = new Map<string, number>();
    for (const { kind, where } of this.results) {
      const name = kind === "none" ? where : kind;
      kinds.set(name, (kinds.get(name) ?? 0) + 1);
    }
    return [...kinds].map(([name, count]) => `${count} × ${name}`).join(", ");
  }
}

/** A problem as a line of `report.problems`, to which `ignore` applies. */
export function lineOf(where: string, problem: string): string {
  return `${where}: ${problem}`;
}

function indented(problem: string): string {
  return problem
    .split("\n")
    .map((line) => `      ${line}`)
    .join("\n");
}
