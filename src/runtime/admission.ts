import { CadenzaError } from "../core/errors.ts";
import { createdEntry } from "../core/state.ts";
import type { Agent } from "./agent.ts";
import type { LiveRun } from "./live-run.ts";
import type { Settings } from "./options.ts";
import type { Slots } from "./slots.ts";

/** Refuses new runs above the limits of the runtime, and above the `concurrency` of their agent. */
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
  checkSlots({ name, options: { concurrency } }: Agent, tenant: string, sessionId: string): void {
    if (concurrency === undefined) return;
    if (this.#slots.isFree(slotKey(name, concurrency.per, tenant, sessionId), concurrency.max)) return;
    if (concurrency.whenFull === "reject") {
      const message = `Agent ${name} has as many runs at work as its concurrency allows.`;
      throw new CadenzaError("limit_reached", message, { agent_name: name, limit: "concurrency" });
    }
    const { maxQueuedRuns } = this.#limits;
    if (this.#slots.queued < maxQueuedRuns) return;
    const message = `${maxQueuedRuns} runs wait for a slot already, as many as limits.maxQueuedRuns allows.`;
    throw new CadenzaError("limit_reached", message, { limit: "maxQueuedRuns" });
  }
}

/** The key of the run's slot. Undefined: the run needs none. */
export function slotKeyOf({ agent: { name, options }, log }: LiveRun): string | undefined {
  const { parent, session_id } = createdEntry(log.state);
  if (options.concurrency === undefined || parent !== undefined) return undefined;
  return slotKey(name, options.concurrency.per, log.key.tenant, session_id);
}

function slotKey(agentName: string, per: "agent" | "session" | undefined, tenant: string, sessionId: string): string {
  return per === "session" ? `${agentName}/${sessionId}/${tenant}` : agentName;
}
