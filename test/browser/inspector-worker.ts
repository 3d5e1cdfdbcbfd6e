import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { durable } from "cadenza/store";
import Database from "libsql";
import { slow } from "./inspector-agents.ts";

/* A process that executes runs of the file that it is given, until it is killed. */

const [, , file = ""] = process.argv;
const store = new SqliteStore(new Database(file), { closeDatabase: true });
new AgentRuntime({ store: durable(store, { leaseMs: 1_500, heartbeatMs: 300, scanMs: 300 }), agents: [slow] });
setInterval(() => {}, 60_000);
process.stdout.write("ready\n");
