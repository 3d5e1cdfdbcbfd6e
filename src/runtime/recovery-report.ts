import type { AgentVersion, FoundRun, Store } from "../core/ports.ts";
import type { DamagedRun } from "./damaged-runs.ts";
import type { Registry } from "./registry.ts";

/** A run whose code does not match its history: no entry is written until matching code comes. */
export interface BlockedRun {
  readonly run_id: string;
  readonly agent_name: string;
  readonly version: string | null;
  /** At which entry of the log: how many match. */
  readonly position: number;
  /** What the history holds next. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

/** What keeps runs of the store from getting on. */
export interface RecoveryReport {
  /** Durable runs whose code does not match their history, the oldest 1,000 of them, in any process. */
  readonly blocked: readonly BlockedRun[];
  /** Runs without an owner whose agent or version is not registered here, whether they need work now or wait. */
  readonly unregistered: number;
  /** Runs that this process took and could not read. Each is tried again from time to time. */
  readonly damaged: readonly DamagedRun[];
}

const MAX_REPORTED = 1_000;

/** Asks the store what keeps its runs from getting on. */
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
