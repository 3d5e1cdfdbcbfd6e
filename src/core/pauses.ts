import type { JsonValue } from "../protocol/json.ts";

/** Which runs a pause covers: those that match everything that it names. It names an agent or a tenant, or both. */
export interface PausedRuns {
  /** Left out: runs of all agents. */
  readonly agent_name?: string | undefined;
  /** Of the named agent; null: runs of the agent without a version. Left out: runs of all its versions. */
  readonly version?: string | null | undefined;
  /** Left out: runs of all tenants. */
  readonly tenant?: string | undefined;
}

/** A pause as it is made. */
export interface NewPause extends PausedRuns {
  /** Durable runs at work are released between two steps. Left out: they go on to their next rest. */
  readonly now?: true | undefined;
}

/** A pause as a store keeps it. */
export interface Pause extends NewPause {
  /** Since when, in milliseconds since the epoch, by the store's clock. */
  readonly at: number;
  /** Who has paused the runs; null: it is not known. */
  readonly by: JsonValue;
}

/**
 * What is added to the `due_at` of a run that a pause of its tenant has set aside: so it is due later than any date. A store
 * makes it due again with `comeBack`.
 */
export const ASIDE_MS = 8_700_000_000_000_000;

/** Tells the pauses of different runs apart. */
export function pauseKey({ agent_name, version, tenant }: PausedRuns): string {
  return JSON.stringify([agent_name ?? null, version === undefined ? [] : [version], tenant ?? null]);
}

/** Whether a pause covers a run of an agent and a version, of a tenant. */
export function covers(pause: PausedRuns, agentName: string, version: string | null, tenant: string): boolean {
  if (pause.tenant !== undefined && pause.tenant !== tenant) return false;
  if (pause.agent_name !== undefined && pause.agent_name !== agentName) return false;
  return pause.version === undefined || pause.version === version;
}
