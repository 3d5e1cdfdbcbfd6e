import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import { endOf } from "../processes.ts";
import type { Said } from "./sender.ts";

/* How a run handles messages that several processes send it at a rate, and what that costs the other runs of its owner. */

/** For how long the rate of steps without messages is measured, in milliseconds. */
const ALONE_MS = 10_000;
/** How many runs do steps beside the messages. */
const STEPPERS = 8;
/** For how long the messages may be handled behind the last of them. */
const GIVE_UP_MS = 120_000;

export interface MessageOptions {
  readonly place: Place;
  readonly senders: number;
  /** All senders together. */
  readonly perSecond: number;
  readonly seconds: number;
}

export interface MessageFigures {
  readonly sent: number;
  /** How many of them the agent has taken. */
  readonly handled: number;
  /** How many came twice, or before an earlier one of their sender. */
  readonly outOfOrder: number;
  /** How often the agent was executed again. */
  readonly replays: number;
  /** How long after the last was acknowledged the last was taken. */
  readonly behindMs: number;
  /** How many messages a second were acknowledged. */
  readonly perSecond: number;
  /** Steps a second of other runs while messages come, as a share of those without messages. */
  readonly steps: number;
}

/** Sends messages to one run, whose owner is this process. */
export async function handleMessages({ place, senders, perSecond, seconds }: MessageOptions): Promise<MessageFigures> {
  const store = await openPlace(place);
  const runtime = new AgentRuntime({ store });
  let handled = 0;
  let outOfOrder = 0;
  let handledAt = 0;
  let replays = -1;
  runtime.register("listener", { durable: true }, async (_input, { receive }) => {
    const last = new Map<number, number>();
    replays += 1;
    for (let count = 1; ; count++) {
      const { sender, n } = (await receive("said")) as unknown as Said;
      if (n !== (last.get(sender) ?? 0) + 1) outOfOrder += 1;
      last.set(sender, n);
      // A replayed agent gets the first messages again.
      if (count <= handled) continue;
      handled = count;
      handledAt = performance.now();
    }
  });
  let steps = 0;
  let isOver = false;
  runtime.register("stepper", { durable: true }, async (_input, { step }) => {
    while (!isOver) steps = await step("work", () => steps + 1);
  });
  const { run_id } = await runtime.createRun({ agent_name: "listener", input: "", mode: "async" });
  for (let n = 0; n < STEPPERS; n++) await runtime.createRun({ agent_name: "stepper", input: "", mode: "async" });
  const children = Array.from({ length: senders }, (_, sender) => startSender(place, run_id, sender));
  await Promise.all(children.map((child) => once(child, "message")));

  const alone = await rateOf(() => steps, ALONE_MS);
  const begun = performance.now();
  const order = { perSecond: perSecond / senders, count: Math.round((perSecond * seconds) / senders) };
  for (const child of children) child.send(order);
  const beside = await rateOf(() => steps, 1_000 * seconds);
  isOver = true;
  await Promise.all(children.map(endOf));
  const acknowledgedAt = performance.now();
  const sent = order.count * senders;
  while (handled < sent && performance.now() - acknowledgedAt < GIVE_UP_MS) await pause(5);
  await runtime.cancel(run_id);
  await runtime.close({ drainMs: 1_000 });
  return {
    ...{ sent, handled, outOfOrder, replays },
    behindMs: Math.max(0, handledAt - acknowledgedAt),
    perSecond: sent / ((acknowledgedAt - begun) / 1_000),
    steps: beside / alone,
  };
}

function startSender(place: Place, run_id: string, sender: number): ChildProcess {
  const file = fileURLToPath(new URL("./sender.ts", import.meta.url));
  return fork(file, [JSON.stringify(place), run_id, `${sender}`]);
}

/** By how much a count grows a second. */
async function rateOf(count: () => number, ms: number): Promise<number> {
  const [before, since] = [count(), performance.now()];
  await pause(ms);
  return (count() - before) / ((performance.now() - since) / 1_000);
}
