import { expect, it } from "vitest";
import { newFile } from "../harness/crash/place.ts";
import { seededRandom } from "../harness/fuzz.ts";
import { pollThroughKills } from "../harness/pollers/pollers.ts";
import { PROCESS_TIMEOUT_MS } from "../harness/processes.ts";

it(
  "a poller of a task sees each state once and in order, through kills of the processes behind one address",
  async () => {
    const { wrong, tasks } = await pollThroughKills(newFile(), 3, seededRandom());
    expect(wrong).toEqual([]);
    expect(tasks).toBeGreaterThan(0);
  },
  PROCESS_TIMEOUT_MS,
);
