import { measureAwaits } from "./awaits.mjs";
import { measureGrowthOfLive, measureGrowthOfWaiting } from "./growth-live.mjs";
import { measureGrowthOfListeners, measureGrowthOfParts, measureGrowthOfRemembered } from "./growth-other.mjs";
import { measureHttp } from "./http.mjs";
import { measureImport } from "./imports.mjs";
import { measureLive } from "./live.mjs";
import { measureRuns } from "./runs.mjs";
import { measureSqlite } from "./sqlite.mjs";
import { measureStreams } from "./streams.mjs";
import { measureWaiting } from "./waiting.mjs";

/** What can be measured. Each takes the name of a subject and a scale, and answers with figures by name. */
export const cases = {
  runs: measureRuns,
  awaits: measureAwaits,
  streams: measureStreams,
  waiting: measureWaiting,
  live: measureLive,
  imports: measureImport,
  http: measureHttp,
  sqlite: measureSqlite,
  "growth-live": measureGrowthOfLive,
  "growth-waiting": measureGrowthOfWaiting,
  "growth-remembered": measureGrowthOfRemembered,
  "growth-listeners": measureGrowthOfListeners,
  "growth-parts": measureGrowthOfParts,
  // These load a driver, and are loaded when they are needed.
  "one process": async (...call) => (await speed()).measureProcesses(1, ...call),
  "four processes": async (...call) => (await speed()).measureProcesses(4, ...call),
  sessions: async (...call) => (await speed()).measureSessions(...call),
  hints: async (...call) => (await speed()).measureHints(...call),
  "session writes": async (...call) => (await onStore()).measureSessionWrites(...call),
  appends: async (...call) => (await onStore()).measureAppends(...call),
  looking: async (...call) => (await onStore()).measureLooking(...call),
  following: async (...call) => (await onStore()).measureFollowing(...call),
  log: async (...call) => (await onStore()).measureLog(...call),
};

function speed() {
  return import("./postgres-speed.mjs");
}

function onStore() {
  return import("./postgres-store.mjs");
}
