import { CadenzaError } from "../core/errors.ts";
import type { Slot } from "../core/ports.ts";
import { createdEntry } from "../core/state.ts";
import type { Agent, ConcurrencyOptions } from "./agent.ts";
import type { LiveRun } from "./live-run.ts";
import type { Settings } from "./options.ts";
import type { Slots } from "./slots.ts";

/** Refuses new runs above the limits of the runtime, and above the `concurrency` of their agent in this process. */
export class Admission {
  readonly #limits: Settings["limits"];
  readonly #slots: Slots;

  constructor(limits: Settings["limits"], slots: Slots) {
    this.#limits = limits;
    this.#slots = slots;
  }

  /** `live` is the number of loaded runs that count. Throws `limit_reached`. */
  checkLiveRuns(live: number): void {
    const { maxLiveRuns } = this.#limits;
    if (live < maxLiveRuns) return;
    const message = `There are ${maxLiveRuns} live runs already, as many as limits.maxLiveRuns allows.`;
    throw new CadenzaError("limit_reached", message, { limit: "maxLiveRuns" });
  }

  /** Throws `limit_reached` if no slot is free and the run must not wait for one. */
  checkSlots(agent: Agent, tenant: string, sessionId: string): void {
    const { concurrency } = agent.options;
    if (concurrency === undefined) return;
    const { key, max } = slotOf(agent.name, concurrency, tenant, sessionId);
    if (this.#slots.isFree(key, max)) return;
    if (concurrency.whenFull === "reject") throw fullError(agent.name);
    const { maxQueuedRuns } = this.#limits;
    if (this.#slots.queued < maxQueuedRuns) return;
    const message = `${maxQueuedRuns} runs wait for a slot already, as many as limits.maxQueuedRuns allows.`;
    throw new CadenzaError("limit_reached", message, { limit: "maxQueuedRuns" });
  }
}

/** The error for a run that must not wait for a slot. */
export function fullError(agentName: string): CadenzaError {
  const message = `Agent ${agentName} has as many runs at work as its concurrency allows.`;
  return new CadenzaError("limit_reached", message, { agent_name: agentName, limit: "concurrency" });
}

/** Whether the slots of an agent are counted over all processes, where the store can. */
export function isCountedByStore(concurrency: ConcurrencyOptions | undefined): concurrency is ConcurrencyOptions {
  return concurrency !== undefined && concurrency.per !== "process" && concurrency.max !== Number.POSITIVE_INFINITY;
}

/** The key of the run's slot. Undefined: the run needs none. */
export function slotKeyOf({ agent: { name, options }, log }: LiveRun): string | undefined {
  const { parent, session_id } = createdEntry(log.state);
  if (options.concurrency === undefined || parent !== undefined) return undefined;
  return slotOf(name, options.concurrency, log.key.tenant, session_id).key;
}

/** The slot of a run. A session has an id, so that no session has the slot of a tenant. */
export function slotOf(agentName: string, { max, per }: ConcurrencyOptions, tenant: string, sessionId: string): Slot {
  if (per !== "session" && per !== "tenant") return { key: agentName, max };
  return { key: `${agentName}/${per === "session" ? sessionId : ""}/${tenant}`, max };
}
