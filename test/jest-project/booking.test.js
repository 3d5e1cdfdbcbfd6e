const { defineAgent, MemoryStore } = require("cadenza");
const { drive, everyInterruption, matchers, record, replay, storeContract } = require("cadenza/testing");

expect.extend(matchers);

const booking = defineAgent("booking", async function* (_input, { ask, step }) {
  yield await step("plan", () => "via Brussels");
  await ask("Book it?", { timeoutMs: 86_400_000 });
  yield "Booked.";
});

it("an agent is driven", async () => {
  const t = drive(booking, "Paris", { steps: { plan: "over the moon" } });
  expect(await t.next()).toMatchObject({ type: "part", text: "over the moon" });
  expect(await t.finish()).toBeAwaiting("Book it?");
  await t.answer("Yes");
  expect(await t.finish()).toHaveCompleted();
  expect(t).toHaveSaid(/Booked/);
  expect(await replay(booking, await record(t))).toHaveCompleted();
});

it("time passes under jest's fake timers, too", async () => {
  jest.useFakeTimers();
  const t = drive(booking, "Paris", { patienceMs: 20 });
  await t.until("await");
  await t.clock.advance("24h");
  expect(await t.finish()).toHaveFailed("await_timeout");
  await expect(drive(() => new Promise(() => {}), "x", { patienceMs: 20 }).next()).rejects.toThrow("no activity");
  jest.useRealTimers();
});

it("every interruption leads to the same output", async () => {
  expect(await everyInterruption(booking, "Paris", { answers: ["Yes"] })).toSurviveInterruptions();
});

it.each(storeContract.slice(0, 3))("$name", ({ run }) =>
  run(() => {
    const store = new MemoryStore();
    return { first: store, second: store, close: () => store.close() };
  }),
);
