import { CadenzaError } from "../../core/errors.ts";
import type { CreatedEntry } from "../../core/log.ts";
import type { Slot } from "../../core/ports.ts";
import { shareOf } from "../../core/tenants.ts";
import type { Agent, ConcurrencyOptions } from "../agent/agent.ts";
import type { Slots } from "../log/run-slot.ts";
import type { Settings } from "./options.ts";

/**
 * Refuses new runs above the limits of the runtime, in total and for each tenant, and above the `concurrency` of their
 * agent in this process.
 */
export class Admission {
  readonly #limits: Settings["limits"];
  readonly #perTenant: Settings["perTenant"];
  readonly #slots: Slots;

  constructor({ limits, perTenant }: Settings, slots: Slots) {
    this.#limits = limits;
    this.#perTenant = perTenant;
    this.#slots = slots;
  }

  /** `live` and `ofTenant`: how many loaded runs count, in all and of the tenant. Throws `limit_reached`. */
  checkLiveRuns(tenant: string, ofTenant: number, live: number): void {
    const { maxLiveRuns } = this.#limits;
    const share = shareOf(tenant, this.#perTenant.liveRuns, maxLiveRuns);
    if (live >= maxLiveRuns) throw limitError("maxLiveRuns", `There are ${maxLiveRuns} live runs`);
    if (ofTenant >= share) throw limitError("perTenant.liveRuns", `The tenant has ${share} live runs`);
  }

  /** Throws `limit_reached` if no slot is free and the run must not wait for one. */
  checkSlots(agent: Agent, tenant: string, sessionId: string): void {
    const { concurrency } = agent.options;
    if (concurrency === undefined) return;
    const { key, max } = slotOf(agent.name, concurrency, tenant, sessionId);
    if (this.#slots.free(key, max) > 0) return;
    if (concurrency.whenFull === "reject") throw fullError(agent.name);
    const { maxQueuedRuns } = this.#limits;
    const { queued } = this.#slots;
    const share = shareOf(tenant, this.#perTenant.queuedRuns, maxQueuedRuns);
    if (queued.total >= maxQueuedRuns) throw limitError("maxQueuedRuns", `${maxQueuedRuns} runs wait for a slot`);
    if (queued.of(tenant) >= share)
      throw limitError("perTenant.queuedRuns", `${share} runs of the tenant wait for a slot`);
  }
}

function limitError(limit: string, found: string): CadenzaError {
  return new CadenzaError("limit_reached", `${found} already, as many as limits.${limit} allows.`, { limit });
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

/** The key of the slot of a run with this first entry. Undefined: the run needs none. */
export function slotKeyOf(
  { name, options }: Agent,
  tenant: string,
  { parent, session_id }: CreatedEntry,
): string | undefined {
  if (options.concurrency === undefined || parent !== undefined) return undefined;
  return slotOf(name, options.concurrency, tenant, session_id).key;
}

/**
 * The slot of a run. A session has an id, so that no session has the slot of a tenant. `waitingLine` reads the key.
 */
export function slotOf(
  agentName: string,
  { max, per }: ConcurrencyOptions,
  tenant: string,
  sessionId: string,
): Slot & { readonly max: number } {
  if (per !== "session" && per !== "tenant") return { key: agentName, max };
  return { key: `${agentName}/${per === "session" ? sessionId : ""}/${tenant}`, max };
}
