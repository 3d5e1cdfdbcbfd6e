import { setTimeout as after } from "node:timers/promises";
import { AgentRuntime, defineAgent } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import type { Waker } from "cadenza/store";
import type pg from "pg";

/** How many runs meet each failure. */
export const RUNS = 20;
const STEP_MS = 100;

/** What is the matter with a process from its start on. */
export type Fault = "none" | "clock" | "waker";

const ticker = defineAgent("ticker", { durable: true }, async function* (input, { step }) {
  const parts = Number(input[0]?.parts[0]?.content);
  for (let part = 0; part < parts; part++) yield await step("tick", () => after(STEP_MS, `${part}`));
});

/** A waker whose server does not answer. */
const down = (): never => {
  throw new Error("The waker is down.");
};
const downWaker: Waker = { wake: down, start: down, stop: down };

/** @param work Whether the process executes runs. */
export async function open(pool: pg.Pool, work: boolean, fault: Fault): Promise<AgentRuntime> {
  const durability = fault === "waker" ? { waker: downWaker } : {};
  const store = await openPostgresStore({ pool, durability });
  return new AgentRuntime({ store, agents: [ticker], ...(!work && { work }) });
}
