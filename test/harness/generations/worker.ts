import { AgentRuntime } from "cadenza";
import { openPlace } from "../crash/place.ts";
import type { CountingReport, CountingSettings } from "./messages.ts";

/** So many turns are told at once. */
const TOLD = 100;
const MIB = 1_048_576;

const { place, turns, each, kept } = JSON.parse(process.argv[2] ?? "") as CountingSettings;
const store = await openPlace(place, { durability: { leaseMs: 1_000 } });
const runtime = new AgentRuntime({ store, retention: { keepGenerations: kept ?? Number.POSITIVE_INFINITY } });
const say = (report: CountingReport): void => void process.send?.(report);
const readyAt = performance.now();
let isAtWork = false;
let bodies = 0;

/** Counts turns, a step for each, and says a word in each generation. */
runtime.register("counter", { durable: true }, async (_input, { carry, continueAsNew, emit, generation, step }) => {
  const begun = Number(carry ?? 0);
  const [bodiesBefore, beganAt] = [bodies, performance.now()];
  let done = begun;
  const turn = (): number => {
    if (!isAtWork) say({ is: "at work", generation, ms: performance.now() - readyAt });
    isAtWork = true;
    bodies += 1;
    if (bodies % TOLD === 0) say({ is: "turns", count: TOLD });
    return done + 1;
  };
  while (done < begun + each) done = await step("turn", turn);
  await emit(`${generation} `);
  if (bodies - bodiesBefore === each) {
    const ms = (performance.now() - beganAt) / each;
    say({ is: "generation", generation, ms, mib: process.memoryUsage().rss / MIB });
  }
  return done < turns ? continueAsNew(done) : `${done}`;
});
// Until it is killed, also when the run has ended.
process.on("message", () => undefined);
