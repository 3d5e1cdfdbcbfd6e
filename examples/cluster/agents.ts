/** The agents of a shop: an order, which asks and waits, and its invoice, which is a sub-run. */
import { setTimeout as after } from "node:timers/promises";
import { defineAgent, textOf } from "cadenza";
import * as z from "zod";

/** What a worker tells the program that has started it: a step of a run begins, or has ended. */
export interface StepReport {
  readonly run_id: string;
  /** The same for all attempts at a step, and for no other step. */
  readonly step: string;
  readonly isDone: boolean;
}

const STEP_MS = 300;

async function work(run_id: string, step: string): Promise<void> {
  process.send?.({ run_id, step, isDone: false } satisfies StepReport);
  await after(STEP_MS);
  process.send?.({ run_id, step, isDone: true } satisfies StepReport);
}

export const order = defineAgent("order", { durable: true, version: "1" }, async (input, context) => {
  const { run_id, step, ask, sleep, run } = context;
  await step("reserve", ({ idempotencyKey }) => work(run_id, idempotencyKey));
  const { isPaid } = await ask("Is it paid?", { name: "paid", schema: z.object({ isPaid: z.boolean() }) });
  if (!isPaid) return `${textOf(input)}: cancelled`;
  await sleep(500);
  const { status } = await run("invoice", input);
  await step("ship", ({ idempotencyKey }) => work(run_id, idempotencyKey));
  return `${textOf(input)}: shipped, invoice ${status}`;
});

export const invoice = defineAgent("invoice", { durable: true, version: "1" }, async (_input, { run_id, step }) => {
  await step("write", ({ idempotencyKey }) => work(run_id, idempotencyKey));
});

export const agents = [order, invoice];
export type Agents = typeof agents;
