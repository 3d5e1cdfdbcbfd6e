import { createServer } from "node:http";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { openDatabase } from "../../harness/sqlite-files.ts";

/*
 * Programs that only the runtime keeps alive. The parameters are the name of one, and a file for those that need one.
 */

const [, , name = "", file = ""] = process.argv;

function say(text: string | null): void {
  process.stdout.write(`${text}\n`);
}

/** A caller that waits for a run which is between two attempts. */
async function retry(): Promise<void> {
  const runtime = new AgentRuntime();
  const call = ({ attempt }: { attempt: number }): string => {
    if (attempt < 2) throw new Error("busy");
    return "ok";
  };
  runtime.register("flaky", (_input, { step }) => step("call", call, { retry: { attempts: 2, backoffMs: 100 } }));
  say((await runtime.createRun({ agent_name: "flaky", input: "" })).status);
}

/** A caller that waits for a question to expire. */
async function deadline(): Promise<void> {
  const runtime = new AgentRuntime();
  runtime.register("asks", (_input, { ask }) => ask("Well?", { timeoutMs: 100, default: { ok: false } }));
  const { run_id, status } = await runtime.createRun({ agent_name: "asks", input: "" });
  say(status);
  for await (const { type } of runtime.events(run_id, { after: 3, until: "end" })) say(type);
}

function openRuntime(): AgentRuntime {
  const runtime = new AgentRuntime({ store: new SqliteStore(openDatabase(file), { closeDatabase: true }) });
  return runtime.register("flaky", { durable: true }, async (_input, { step }) => {
    const call = (): Promise<string> =>
      name === "handover" ? Promise.reject(new Error("busy")) : Promise.resolve("taken over");
    return step("call", call, { retry: { attempts: 9, backoffMs: 2_000 } });
  });
}

/** A service that is stopped while a run is between two attempts. */
async function handover(): Promise<void> {
  const runtime = openRuntime();
  const server = createServer().listen(0, "127.0.0.1");
  process.once("SIGTERM", async () => {
    server.close();
    const { left } = await runtime.close({ drainMs: 100 });
    server.closeAllConnections();
    say(`left ${left.map((run) => run.waits_for).join()}`);
  });
  await runtime.createRun({ agent_name: "flaky", input: "", mode: "async" });
  setTimeout(() => process.kill(process.pid, "SIGTERM"), 100);
}

/** The next process. It would wait for the lease of a run that was not released. */
async function next(): Promise<void> {
  const store = new SqliteStore(openDatabase(file), { closeDatabase: true });
  const [found] = await store.list({ tenant: "", offset: 0, limit: 1 });
  say(found?.head.owner === null ? "released" : "owned");
  store.close();
  const runtime = openRuntime();
  const [run] = await runtime.listRuns();
  for await (const event of runtime.events(run?.run_id ?? "", { until: "end" }))
    if (event.type === "message.part") say(event.part.content ?? "");
  await runtime.close();
}

const programs: Readonly<Record<string, () => Promise<void>>> = { retry, deadline, handover, next };
await programs[name]?.();
