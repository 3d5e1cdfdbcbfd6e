import { AgentRuntime } from "cadenza";
import { durable } from "cadenza/store";
import { storeOn } from "./store.ts";

/* A process that sends each message when the one before it is acknowledged. */
const [name, file = "", to = "", count] = process.argv.slice(2);
const runtime = new AgentRuntime({ store: durable(storeOn(file)) });
for (let n = 0; n < Number(count); n++) await runtime.send({ to, name: "order", data: `${name}-${n}` });
await runtime.close({ drainMs: 0 });
