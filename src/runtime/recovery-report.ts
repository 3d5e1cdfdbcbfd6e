import type { AgentVersion, FoundRun, Store } from "../core/ports.ts";
import type { DamagedRun } from "./damaged-runs.ts";
import type { Registry } from "./registry.ts";

/** A blocked run: its code does not match its history. Nothing is written to it until matching code is registered. */
export interface BlockedRun {
  readonly run_id: string;
  readonly agent_name: string;
  readonly version: string | null;
  /** The index in the log, from 0, of the first entry that does not match. */
  readonly position: number;
  /** What the history holds there. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

/** The runs of the store that cannot go on. */
export interface RecoveryReport {
  /** The oldest 1,000 blocked runs of all processes. */
  readonly blocked: readonly BlockedRun[];
  /**
   * How many runs without an owner have an agent or a version that is not registered here. It counts due and waiting
   * runs.
   */
  readonly unregistered: number;
  /** The runs that this process took and could not load. Loading each is tried again after a pause. */
  readonly damaged: readonly DamagedRun[];
}

const MAX_REPORTED = 1_000;

/** Asks the store for the runs that cannot go on. */
export async function reportOf(
  store: Store,
  registry: Registry,
  damaged: readonly DamagedRun[],
): Promise<RecoveryReport> {
  const blocked = await store.blocked({ limit: MAX_REPORTED });
  const backlog = await store.backlog();
  const isMissing = ({ agent_name, version }: AgentVersion): boolean =>
    registry.find(agent_name, version ?? undefined) === undefined;
  return {
    blocked: blocked.flatMap((found) => blockedRun(found) ?? []),
    unregistered: backlog.filter(isMissing).reduce((sum, { due, waiting }) => sum + due + waiting, 0),
    damaged,
  };
}

function blockedRun({ key, created, head: { blocked } }: FoundRun): BlockedRun | undefined {
  if (created === null || blocked === null) return undefined;
  const { agent_name, version = null } = created;
  return { run_id: key.run_id, agent_name, version, ...blocked };
}
