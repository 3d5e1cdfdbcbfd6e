/** Run by `node --test`, from node-test.system.test.ts: the kit needs no test runner of its own. */
import assert from "node:assert/strict";
import { it } from "node:test";
import { defineAgent, MemoryStore } from "cadenza";
import { drive, everyInterruption, record, replay, storeContract } from "cadenza/testing";

const booking = defineAgent("booking", async function* (_input, { ask, step }) {
  yield await step("plan", () => "via Brussels");
  await ask("Book it?", { timeoutMs: 86_400_000 });
  yield "Booked.";
});

it("an agent is driven", async () => {
  const t = drive(booking, "Paris", { steps: { plan: "over the moon" } });
  assert.equal((await t.until("part")).text, "over the moon");
  assert.equal((await t.until("await")).question, "Book it?");
  await t.answer("Yes");
  assert.equal((await t.finish()).status, "completed");
  assert.equal((await replay(booking, await record(t))).status, "completed");
});

it("the clock of a drive is advanced", async () => {
  const t = drive(booking, "Paris");
  await t.until("await");
  await t.clock.advance("24h");
  assert.equal((await t.finish()).status, "failed");
});

it("an agent that waits for ever is reported, although nothing holds the process open", async () => {
  const t = drive(() => new Promise<never>(() => {}), "x", { patienceMs: 50 });
  await assert.rejects(t.next(), /no activity for 50ms/);
});

it("every interruption leads to the same output", async () => {
  (await everyInterruption(booking, "Paris", { answers: ["Yes"] })).assert();
});

for (const { name, run } of storeContract.slice(0, 3))
  it(name, () =>
    run(() => {
      const store = new MemoryStore();
      return { first: store, second: store, close: () => store.close() };
    }),
  );
