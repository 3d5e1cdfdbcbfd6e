import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { AgentRuntime } from "cadenza";
import { openSqliteStore } from "cadenza/sqlite";
import { agents } from "./agents.ts";

/**
 * Opens the runs in a file. All processes with the same file share them. `work: false`: this process accepts and shows runs,
 * and leaves their execution to others.
 */
export function openRuntime(file = process.env.STORE ?? "data/runs.db", { work }: { work?: false } = {}) {
  mkdirSync(dirname(file), { recursive: true });
  // How soon another process takes over the runs of one that was killed. In production leave it at its default of 10 s.
  const store = openSqliteStore(file, { durability: { leaseMs: 2_000 } });
  const runtime = new AgentRuntime({ store, agents, work, logger: { ...console, debug() {}, info() {} } });
  return {
    runtime,
    /** Lets steps at work end for so long. Open runs go on in another process, or in the next one. */
    close: (drainMs = 5_000) => runtime.close({ drainMs }),
  };
}
