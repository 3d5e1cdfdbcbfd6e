/*
 * A process that sends messages to runs of another process: to one run at a rate, one after the other, or to many runs as fast
 * as it can, to each of them one after the other.
 */

import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";

/** After this time a message is sent again for which there was no room, in milliseconds. */
const FULL_MS = 50;

/** What a message says. */
export interface Said {
  readonly sender: number;
  /** 1 for the first message of the sender to the run. */
  readonly n: number;
}

/** What a sender is told. `perSecond`: Infinity for as fast as it can. */
export interface Order {
  readonly perSecond: number;
  /** How many messages it sends. */
  readonly count: number;
  /** How many of them are under way at a time: fewer than there are runs, or 1. */
  readonly atOnce: number;
}

const [place = "", to = "[]", sender = "0"] = process.argv.slice(2);
const runs = JSON.parse(to) as readonly string[];
const store = await openPlace(JSON.parse(place) as Place);
const runtime = new AgentRuntime({ store, work: false });
process.send?.("ready");
const [{ perSecond, count, atOnce }] = (await once(process, "message")) as [Order];
const begun = performance.now();
let next = 0;
const sendAll = async () => {
  while (next < count) {
    const n = next++;
    const earlyMs = begun + (n * 1_000) / perSecond - performance.now();
    if (earlyMs > 1) await pause(earlyMs);
    const data: Said = { sender: Number(sender), n: Math.floor(n / runs.length) + 1 };
    while (!(await isTaken(runs[n % runs.length] ?? "", data))) await pause(FULL_MS);
  }
};
/** False: too many messages wait for the run. */
const isTaken = async (to: string, data: Said): Promise<boolean> => {
  try {
    await runtime.send({ to, name: "said", data: { ...data } });
    return true;
  } catch (error) {
    if (CadenzaError.is(error) && error.limit === "maxWaitingMessages") return false;
    throw error;
  }
};
await Promise.all(Array.from({ length: atOnce }, sendAll));
await runtime.close();
process.disconnect();
