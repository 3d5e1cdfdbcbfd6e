import type { AgentVersion, TakeRequest } from "../core/ports.ts";

/** Picks runs for one `take`. The runs that need work are offered to it in order. */
export class Choice {
  readonly #suspects: { readonly takeovers: number; readonly limit: number };
  #left: number;
  #suspectsLeft: number;

  constructor({ limit, suspects }: TakeRequest) {
    this.#suspects = suspects ?? { takeovers: Number.POSITIVE_INFINITY, limit: 0 };
    this.#left = limit;
    this.#suspectsLeft = this.#suspects.limit;
  }

  /** Whether no more may be picked. */
  get isOver(): boolean {
    return this.#left <= 0;
  }

  /** Whether a run with so many `takeovers` is picked. `begins`: whether it can begin now. Asked only if it may be picked. */
  takes(takeovers: number, begins: () => boolean): boolean {
    const isSuspect = takeovers >= this.#suspects.takeovers;
    if (this.isOver || (isSuspect && this.#suspectsLeft <= 0) || !begins()) return false;
    this.#left -= 1;
    if (isSuspect) this.#suspectsLeft -= 1;
    return true;
  }
}

/** The agents, each of them once. */
export function distinctAgents(agents: readonly AgentVersion[]): readonly AgentVersion[] {
  const seen = new Map<string, AgentVersion>();
  for (const agent of agents) seen.set(JSON.stringify([agent.agent_name, agent.version]), agent);
  return [...seen.values()];
}
