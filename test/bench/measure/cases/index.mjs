import { measureAwaits } from "./awaits.mjs";
import { measureGrowthOfLive, measureGrowthOfWaiting } from "./growth-live.mjs";
import { measureGrowthOfListeners, measureGrowthOfParts, measureGrowthOfRemembered } from "./growth-other.mjs";
import { measureImport } from "./imports.mjs";
import { measureLive } from "./live.mjs";
import { measureRuns } from "./runs.mjs";
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
  "growth-live": measureGrowthOfLive,
  "growth-waiting": measureGrowthOfWaiting,
  "growth-remembered": measureGrowthOfRemembered,
  "growth-listeners": measureGrowthOfListeners,
  "growth-parts": measureGrowthOfParts,
};
