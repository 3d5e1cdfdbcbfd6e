import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime, defineAgent } from "cadenza";
import { createMcpNodeListener } from "cadenza/mcp";
import * as z from "zod";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";

/* One of the processes behind an address. It tells its parent where it listens. */

/** How many questions a task asks. */
const QUESTIONS = 4;

const approval = z.object({ go: z.boolean() });
const asker = defineAgent("asker", { durable: true }, async function* (_input, { ask, step }) {
  for (let question = 1; question <= QUESTIONS; question++) {
    yield `${await step("number", () => question)} `;
    await ask(`Go on after ${question}?`, { schema: approval });
  }
});

const [place = ""] = process.argv.slice(2);
const store = await openPlace(JSON.parse(place) as Place, {
  durability: { leaseMs: 500, heartbeatMs: 150, scanMs: 50 },
});
const runtime = new AgentRuntime({ store, agents: [asker] });
const server = createServer(createMcpNodeListener(runtime)).listen(0, "127.0.0.1", () => {
  process.send?.({ port: (server.address() as AddressInfo).port });
});
process.once("disconnect", () => process.exit(0));
