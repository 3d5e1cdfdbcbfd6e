import { expect, it } from "vitest";
import { anySeed, wholeSeed } from "../../harness/random.ts";
import { forkAll } from "../../harness/world/forks.ts";

/** A share of what `npm run test:durable -- --part forks` tries. */
const FORKS = 150;
const seed = wholeSeed(process.env["DURABLE_SEED"] ?? anySeed());

it(`random forks of random programs end as they must (DURABLE_SEED=${seed})`, async () => {
  const { trials, troubles, wrong } = await forkAll(seed, FORKS);
  expect(wrong.map((one) => `seed ${one.seed}, ${one.trouble}\n${one.wrong.join("\n")}`)).toEqual([]);
  expect(trials).toBeGreaterThanOrEqual(FORKS);
  expect(troubles).toBeGreaterThan(FORKS / 10);
});
