/** Agents as tools of MCP, with their runs in a file: `npx tsx examples/mcp-approval/server.ts refunds.db 8000` */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime, defineAgent } from "cadenza";
import { createMcpNodeListener } from "cadenza/mcp";
import * as z from "zod";
import { openStore } from "../durable-approval/store.ts";

const approval = z.object({ approved: z.boolean() });

const refund = defineAgent("refund", {
  durable: true,
  description: "Refunds an order, if a person approves it.",
  input: z.object({ amount: z.number() }),
}).run(async function* ({ amount }, { ask, step }) {
  const order = await step("find", () => ({ id: "A-17", paid: amount }));
  yield `Order ${order.id}: `;
  const { approved } = await ask(`Refund ${order.paid} €?`, { kind: "approval", schema: approval });
  yield approved ? `${await step("refund", () => order.paid)} € refunded.` : "refused.";
});

const [path = "refunds.db", port = "8000"] = process.argv.slice(2);
// A new process takes runs over after a second, instead of ten.
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 };
const runtime = new AgentRuntime({ store: await openStore(path, durability), agents: [refund] });
const listener = createMcpNodeListener(runtime, { basePath: "/mcp", pollIntervalMs: 100 });
const server = createServer(listener).listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
});
