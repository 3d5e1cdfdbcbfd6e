import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import type { InspectorOptions } from "cadenza/inspector";
import { createInspectorNodeListener } from "cadenza/inspector";
import { SqliteStore } from "cadenza/sqlite";
import Database from "libsql";
import type { Report } from "../harness/commands/report.ts";
import { fill, LIVE, STORED } from "./many-runs.ts";

const TALKERS = 10;
const PAUSE_MS = 20;

/** Ten runs of a busy process emit 50 parts a second each. */
export interface BusyInspector {
  readonly origin: string;
  /** The id of one that emits. */
  readonly run_id: string;
  /** Makes a run that ends at once, and waits for its end. */
  request(): Promise<unknown>;
  close(): Promise<void>;
}

/** Serves an inspector from a process with 100,000 stored runs, 1,000 of them live, and ten more that emit, on SQLite. */
export async function serveBusyInspector(report: Report, options: InspectorOptions): Promise<BusyInspector> {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-bench-inspector-"));
  const store = new SqliteStore(new Database(join(folder, "runs.db")), { synchronous: "NORMAL", closeDatabase: true });
  await fill(store);
  const runtime = new AgentRuntime({ store });
  let isOver = false;
  runtime.register("talks", async function* () {
    while (!isOver) {
      yield "la ";
      await wait(PAUSE_MS);
    }
  });
  runtime.register("quick", () => "done");
  const talkers = await Promise.all(
    Array.from({ length: TALKERS }, () => runtime.createRun({ agent_name: "talks", input: "", mode: "async" })),
  );
  const server = createServer(createInspectorNodeListener(runtime, options));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  report.say(`SQLite: ${STORED} runs, ${LIVE} of them live, ${TALKERS} that emit 50 parts a second`);
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    run_id: talkers[0]?.run_id ?? "",
    request: () => runtime.createRun({ agent_name: "quick", input: "" }),
    close: async () => {
      isOver = true;
      server.closeAllConnections();
      server.close();
      await runtime.close({ drainMs: 2_000 });
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
