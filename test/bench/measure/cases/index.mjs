import { measureAwaits } from "./awaits.mjs";
import { measureGrowthOfLive, measureGrowthOfParked } from "./growth-live.mjs";
import { measureGrowthOfListeners, measureGrowthOfParts, measureGrowthOfRemembered } from "./growth-other.mjs";
import { measureImport } from "./imports.mjs";
import { measureLive } from "./live.mjs";
import { measureRuns } from "./runs.mjs";
import { measureStreams } from "./streams.mjs";
import { measureParked } from "./waiting.mjs";

/** What can be measured. Each takes the name of a subject and a scale, and answers with figures by name. */
export const cases = {
  runs: measureRuns,
  awaits: measureAwaits,
  streams: measureStreams,
  waiting: measureParked,
  live: measureLive,
  imports: measureImport,
  "growth-live": measureGrowthOfLive,
  "growth-waiting": measureGrowthOfParked,
  "growth-remembered": measureGrowthOfRemembered,
  "growth-listeners": measureGrowthOfListeners,
  "growth-parts": measureGrowthOfParts,
};
