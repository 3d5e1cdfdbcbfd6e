import { expect, inject, it } from "vitest";
import { newSchemaOn } from "../../harness/crash/place.ts";
import { manyProcesses } from "../../harness/crash/processes.ts";
import { missingServer } from "../../harness/postgres-stores.ts";
import { share } from "../../harness/share.ts";

const missing = missingServer(18);
const seed = process.env["CRASH_SEED"] ?? `${Date.now()}`;
const KILLS = share(10, 4);

it.skipIf(missing !== undefined)(
  `two workers and a web process of which ${KILLS} are killed lose no run, and no step runs twice (CRASH_SEED=${seed})${missing ? `: ${missing}` : ""}`,
  { timeout: 120_000 },
  async () => {
    const { kills, wrong, runs } = await manyProcesses({
      seed,
      processes: 2,
      webs: 1,
      runs: 1_000,
      atOnce: 20,
      kills: KILLS,
      killEveryMs: 300,
      atMostMs: 60_000,
      place: newSchemaOn(inject("postgres")[18]),
    });
    expect(wrong).toEqual([]);
    expect(kills).toBe(KILLS);
    expect(runs).toBeGreaterThan(20);
  },
);
