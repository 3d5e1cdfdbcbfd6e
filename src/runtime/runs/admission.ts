import { CadenzaError } from "../../core/errors.ts";
import type { CreatedEntry, Growing } from "../../core/log.ts";
import type { RunWrite } from "../../core/ports.ts";
import type { Slot } from "../../core/slots.ts";
import { shareOf } from "../../core/tenants.ts";
import type { Agent, AgentOptions, ConcurrencyOptions } from "../agent/agent.ts";
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

  /**
   * Throws `limit_reached` if a run needs slots of this process, one of them is not free, and the run must not wait for it. A run
   * that begins later may: as little as in a store is known what is free then.
   */
  checkSlots(agent: Agent, slots: readonly Slot[], tenant: string, startAt: number | undefined): void {
    const refusing = slots.length === 0 ? undefined : this.#slots.refusing(slots);
    if (refusing === undefined) return;
    if (rejects(agent.options) && startAt === undefined) throw fullError(agent, refusing.key);
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

/** The error for a run that must not wait for a slot. `key`: the key of the slot; undefined if the store has not said it. */
export function fullError({ name, options }: Agent, key: string | undefined): CadenzaError {
  const isOwn = key === undefined ? options.concurrency?.whenFull === "reject" : !key.startsWith(":");
  const [of] = key?.slice(1).split("/", 1) ?? [];
  const limit = isOwn ? "concurrency" : of === undefined ? "limits" : `limits.${of}`;
  const message = `A new run of agent ${name} would have to wait for its ${limit}, which whenFull "reject" does not allow.`;
  return new CadenzaError("limit_reached", message, { agent_name: name, limit });
}

/** Whether `createRun` refuses a run that would have to wait for a slot. */
export function rejects({ concurrency, limits }: AgentOptions): boolean {
  return concurrency?.whenFull === "reject" || limits?.some(({ whenFull }) => whenFull === "reject") === true;
}

/** Whether the slots of an agent are counted over all processes, where the store can. */
export function isCountedByStore({ concurrency, limits }: AgentOptions): boolean {
  return (isLimit(concurrency) && concurrency.per !== "process") || (limits !== undefined && limits.length > 0);
}

function isLimit(concurrency: ConcurrencyOptions | undefined): concurrency is ConcurrencyOptions {
  return concurrency !== undefined && concurrency.max !== Number.POSITIVE_INFINITY;
}

/** The slots of which a run with this first entry needs permits, in the order of their keys. */
export function slotsOf(
  { name, options }: Agent,
  tenant: string,
  { parent, session_id, queue }: CreatedEntry,
): readonly Slot[] {
  const { concurrency } = options;
  if (parent !== undefined) return noSlots;
  const limits = queue?.slots ?? noSlots;
  if (!isLimit(concurrency)) return limits;
  const own = slotOf(name, concurrency, tenant, session_id);
  return limits.length === 0 ? [own] : [...limits, own].sort((one, other) => (one.key < other.key ? -1 : 1));
}

const noSlots: readonly Slot[] = [];

/** What a durable store needs to queue a new run. */
export function placeOf(
  agent: Agent,
  tenant: string,
  created: CreatedEntry,
): Pick<RunWrite, "slots" | "gate" | "priority"> {
  const { parent, queue, agent_name, version = "" } = created;
  const place: Growing<Pick<RunWrite, "slots" | "gate" | "priority">> = {};
  if (parent !== undefined) return place;
  if (isCountedByStore(agent.options)) {
    const slots = slotsOf(agent, tenant, created);
    if (slots.length > 0) place.slots = slots;
  }
  const { priority = 0, fair = tenant } = queue ?? {};
  if (priority !== 0) place.priority = priority;
  // The length keeps a version that contains a slash apart from others.
  if (fair !== "" && !hasOwnLines(agent.options))
    place.gate = `~${agent_name}/${priority}/${version.length}/${version}/${fair}`;
  return place;
}

/**
 * Whether runs of one customer may wait for different permits. Those that wait for one of them would stand in front of all
 * others at the gate of the customer. Few are due at a time as it is: those that hold a permit.
 */
function hasOwnLines({ concurrency, limits }: AgentOptions): boolean {
  return concurrency?.per === "session" || limits?.some(({ key }) => key !== undefined) === true;
}

/**
 * The slot of a run under `concurrency`. A session has an id, so that no session has the slot of a tenant. `waitingLine`
 * reads the key.
 */
function slotOf(agentName: string, { max, per }: ConcurrencyOptions, tenant: string, sessionId: string): Slot {
  if (per !== "session" && per !== "tenant") return { key: agentName, max };
  return { key: `${agentName}/${per === "session" ? sessionId : ""}/${tenant}`, max };
}
