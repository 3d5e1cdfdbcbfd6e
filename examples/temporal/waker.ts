import { fileURLToPath } from "node:url";
import { Context } from "@temporalio/activity";
import { Client, Connection } from "@temporalio/client";
import { NativeConnection, Worker } from "@temporalio/worker";
import type { Waker } from "cadenza/store";
import type { Activities } from "./workflows.ts";
import { attend, wake } from "./workflows.ts";

export interface TemporalWakerOptions {
  /** Host and port of the server. */
  readonly address: string;
  readonly namespace?: string;
  /** Default: `cadenza`. */
  readonly taskQueue?: string;
}

/** More often than the six seconds after which a worker counts as dead. */
const HEARTBEAT_MS = 2_000;
const MAX_LOOKS = 1_000;

/** Brings runs to workers by a Temporal server. The steps of agents are no steps of Temporal. */
export function temporalWaker(options: TemporalWakerOptions): Waker {
  const { address, namespace = "default", taskQueue = "cadenza" } = options;
  const client = new Client({ connection: Connection.lazy({ address }), namespace });
  let connection: NativeConnection | undefined;
  let worker: Worker | undefined;
  let running: Promise<void> | undefined;
  return {
    async wake(key, at) {
      const workflowId = `${taskQueue}/${key.tenant}/${key.run_id}`;
      await client.workflow.signalWithStart(attend, {
        workflowId,
        taskQueue,
        args: [key],
        signal: wake,
        signalArgs: [at],
      });
    },
    async start(look, capacity) {
      const activities: Activities = {
        async look(key) {
          const context = Context.current();
          const beating = setInterval(() => context.heartbeat(), HEARTBEAT_MS);
          try {
            return (await look(key)) ?? null;
          } finally {
            clearInterval(beating);
          }
        },
      };
      connection ??= await NativeConnection.connect({ address });
      worker = await Worker.create({
        connection,
        namespace,
        taskQueue,
        workflowsPath: fileURLToPath(new URL("./workflows.ts", import.meta.url)),
        activities,
        maxConcurrentActivityTaskExecutions: Math.min(capacity(), MAX_LOOKS),
        // So long a workflow waits for the worker that has executed it last, before another one does.
        stickyQueueScheduleToStartTimeout: "1 second",
      });
      running = worker.run();
      // If it fails, the scans of the runtime find the runs, and `stop` rejects with the reason.
      running.catch(() => undefined);
    },
    async stop() {
      if (worker?.getState() === "RUNNING") worker.shutdown();
      await running;
      await connection?.close();
      await client.connection.close();
    },
  };
}
