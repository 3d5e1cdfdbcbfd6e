import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { createFakeClock } from "cadenza/testing";
import { expect, it, onTestFinished } from "vitest";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const SECONDS = 60;
/** The connection that listens is asked whether it lives, every ten seconds of the machine's time. */
const PULSES = SECONDS / 10;

it("an idle process sends at most two statements a second", async ({ skip }) => {
  const missing = missingServer(18);
  if (missing !== undefined) skip(missing);
  const real = newPool(18);
  const pool = new HookedPool(real);
  const store = await openPostgresStore({ pool, schema: newSchema(), hints: true });
  const clock = createFakeClock();
  const runtime = new AgentRuntime({ store, clock });
  onTestFinished(async () => {
    await runtime.close();
    await real.end();
  });
  const options = { durable: true, version: "1" } as const;
  runtime.register("mail", options, () => "sent");
  const pass = async (seconds: number): Promise<void> => {
    for (let second = 0; second < seconds; second++) {
      await clock.advance("1 s");
      await pool.settled();
    }
  };

  await clock.advance(500);
  // From now on the process looks for work between two readings of the pauses, as it does where answers take time.
  runtime.register("order", options, () => "ordered");
  await pass(10);
  const before = pool.statements.length;
  await pass(SECONDS);

  const sent = pool.statements.slice(before).filter((sql) => sql !== "SELECT 1");
  expect(sent.length).toBeGreaterThan(SECONDS);
  expect(sent.length + PULSES).toBeLessThanOrEqual(2 * SECONDS);
});
