/* A process that sends messages to a run of another process, at a rate, one after the other. */

import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";

/** What a message says. */
export interface Said {
  readonly sender: number;
  /** 1 for the first message of the sender. */
  readonly n: number;
}

const [place = "", to = "", sender = "0"] = process.argv.slice(2);
const store = await openPlace(JSON.parse(place) as Place);
const runtime = new AgentRuntime({ store, work: false });
process.send?.("ready");
const [{ perSecond, count }] = (await once(process, "message")) as [{ perSecond: number; count: number }];
const begun = performance.now();
for (let n = 1; n <= count; n++) {
  const earlyMs = begun + ((n - 1) * 1_000) / perSecond - performance.now();
  if (earlyMs > 1) await pause(earlyMs);
  await runtime.send({ to, name: "said", data: { sender: Number(sender), n } });
}
await runtime.close();
process.disconnect();
