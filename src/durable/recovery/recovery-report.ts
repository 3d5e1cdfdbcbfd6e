import type { AgentVersion, FoundRun, Store } from "../../core/ports.ts";
import type { Registry } from "../../runtime/agent/registry.ts";
import type { BlockedRun, RemoteReport } from "../../runtime/runs/remote-runs.ts";

const MAX_REPORTED = 1_000;

/** Asks the store for the runs that cannot go on. */
export async function reportOf(
  store: Store,
  registry: Registry,
  here: Pick<RemoteReport, "damaged" | "differences" | "heartbeatAgeMs">,
): Promise<RemoteReport> {
  const blocked = await store.blocked({ limit: MAX_REPORTED });
  const backlog = await store.backlog();
  const isMissing = ({ agent_name, version }: AgentVersion): boolean =>
    registry.known(agent_name, version ?? undefined) === undefined;
  return {
    blocked: blocked.flatMap((found) => blockedRun(found) ?? []),
    unregistered: backlog.filter(isMissing).reduce((sum, { due, waiting }) => sum + due + waiting, 0),
    ...here,
  };
}

function blockedRun({ key, created, head: { blocked } }: FoundRun): BlockedRun | undefined {
  if (created === null || blocked === null) return undefined;
  const { agent_name, version = null } = created;
  return { run_id: key.run_id, agent_name, version, ...blocked };
}
