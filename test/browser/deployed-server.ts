/** A server of the waiting desk in a process of its own. It drains on SIGTERM, as docs/guides/mounting.md has it. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime } from "cadenza";
import { createChatNodeListener } from "cadenza/ai-sdk";
import { SqliteStore } from "cadenza/sqlite";
import type { Deferred } from "../harness/promises.ts";
import { deferred } from "../harness/promises.ts";
import { openDatabase } from "../harness/sqlite-files.ts";
import { waitingDesk } from "./waiting-desk.ts";

/** What the process is started with. */
export interface ServerSettings {
  readonly name: string;
  readonly file: string;
  readonly drainMs: number;
}

/** Lets the runs with these words go on. */
export interface ServerOrder {
  readonly words: string;
}

/** Where it listens, or how its runs stand. */
export interface ServerReport {
  readonly port: number;
}

const { file, drainMs } = JSON.parse(process.argv[2] ?? "") as ServerSettings;
const gates = new Map<string, Deferred<void>>();

function gate(words: string): Deferred<void> {
  const known = gates.get(words) ?? deferred();
  gates.set(words, known);
  return known;
}

// A short lease, so that another process goes on soon after a kill.
const durability = { leaseMs: 2_000, heartbeatMs: 500, scanMs: 100 };
const store = new SqliteStore(openDatabase(file), { closeDatabase: true, durability });
const runtime = new AgentRuntime({ store, agents: [waitingDesk((words) => gate(words).promise)] });
const server = createServer(createChatNodeListener(runtime, { basePath: "/chat" })).listen(0, "127.0.0.1");
process.on("message", ({ words }: ServerOrder) => gate(words).resolve());
process.once("SIGTERM", async () => {
  server.close();
  await runtime.close({ drainMs });
  server.closeAllConnections();
  process.disconnect();
});
await once(server, "listening");
process.send?.({ port: (server.address() as AddressInfo).port } satisfies ServerReport);
