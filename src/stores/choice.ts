import type { AgentVersion, Slot, TakeRequest } from "../core/ports.ts";

/** What decides whether `take` may give a run. */
export interface Candidate {
  readonly takeovers: number;
  /** The slot of which the run needs a permit; null if it needs none, or holds one. */
  readonly needs: Slot | null;
}

/** Picks runs for one `take`. The runs that need work are offered to it in order. */
export class Choice {
  readonly #suspects: { readonly takeovers: number; readonly limit: number };
  readonly #holders: (slot: string) => number;
  /** How many runs hold each requested slot, including the picked ones. */
  readonly #held = new Map<string, number>();
  /** The slots for which a run has to wait. */
  readonly #waiting = new Set<string>();
  #left: number;
  #suspectsLeft: number;

  /** `holders`: how many runs hold a slot. */
  constructor({ limit, suspects }: TakeRequest, holders: (slot: string) => number) {
    this.#holders = holders;
    this.#suspects = suspects ?? { takeovers: Number.POSITIVE_INFINITY, limit: 0 };
    this.#left = limit;
    this.#suspectsLeft = this.#suspects.limit;
  }

  /** Whether no more may be picked. */
  get isOver(): boolean {
    return this.#left <= 0;
  }

  /** Whether the run is picked. Within one slot, once one run has to wait, so do all that come after it. */
  takes({ takeovers, needs }: Candidate): boolean {
    const isSuspect = takeovers >= this.#suspects.takeovers;
    if (this.isOver || (isSuspect && this.#suspectsLeft <= 0)) return false;
    if (needs !== null && !this.#getsPermit(needs)) return false;
    this.#left -= 1;
    if (isSuspect) this.#suspectsLeft -= 1;
    return true;
  }

  /** Whether a run has to wait for a permit of the slot. All others that need one wait too. */
  isWaitedFor(slot: string): boolean {
    return this.#waiting.has(slot);
  }

  #getsPermit({ key, max }: Slot): boolean {
    if (this.#waiting.has(key)) return false;
    const held = this.#held.get(key) ?? this.#holders(key);
    if (held < max) {
      this.#held.set(key, held + 1);
      return true;
    }
    this.#waiting.add(key);
    return false;
  }
}

/** The agents, each of them once. */
export function distinctAgents(agents: readonly AgentVersion[]): readonly AgentVersion[] {
  const seen = new Map<string, AgentVersion>();
  for (const agent of agents) seen.set(JSON.stringify([agent.agent_name, agent.version]), agent);
  return [...seen.values()];
}
