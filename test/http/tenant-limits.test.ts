import type { CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import type { Setting } from "../harness/tenants/customers.ts";
import { begin, loseNothing, openApplication, order, refusal, refused } from "../harness/tenants/customers.ts";
import { GreedyCustomer } from "../harness/tenants/greedy-customer.ts";

/* One tenant is at each of its limits, and the others lose no request, no run and no key. */

describe.each<{ readonly of: string; readonly setting: Setting; readonly most: number }>([
  { of: "half of maxLiveRuns, by default", setting: { runtime: { limits: { maxLiveRuns: 20 } } }, most: 10 },
  {
    of: "its own number",
    setting: { runtime: { limits: { maxLiveRuns: 20, perTenant: { liveRuns: 3 } } } },
    most: 3,
  },
])("a tenant with as many live runs as it may have: $of", ({ setting, most }) => {
  it("is refused another one, and the others are not", async () => {
    const { customer, close } = openApplication(setting);
    const [red, blue] = [customer("red"), customer("blue")];
    const before = await begin(red);
    for (let count = 0; count < most; count++) await blue.run("asks");
    expect(await refused(await blue.create("asks"))).toEqual(refusal("perTenant.liveRuns"));
    await loseNothing(red, before);
    await close();
  });
});

it("a tenant whose sub-runs are as many as its live runs may be gets no further one", async () => {
  const { runtime, customer, close } = openApplication({ runtime: { limits: { maxLiveRuns: 20 } } });
  let atMost = 0;
  runtime.register("family", async (input, { run }) => {
    const { live } = await runtime.stats();
    atMost = Math.max(atMost, live["in-progress"] ?? 0);
    // The deepest one says why there is no other one.
    return run("family", input).then(
      ({ output }) => output[0]?.parts[0]?.content,
      (error: CadenzaError) => error.limit,
    );
  });
  const red = customer("red");
  const before = await begin(red);
  const { output } = await customer("blue").run("family");
  expect(output).toMatchObject([{ parts: [{ content: "perTenant.liveRuns" }] }]);
  expect(atMost).toBe(10);
  await loseNothing(red, before);
  await close();
});

it.each([
  { limits: { maxQueuedRuns: 6 }, most: 3 },
  { limits: { maxQueuedRuns: 6, perTenant: { queuedRuns: 2 } }, most: 2 },
])("a tenant with as many queued runs as it may have is refused alone: $limits", async ({ limits, most }) => {
  const { customer, close } = openApplication({ runtime: { limits } });
  const [red, blue] = [customer("red"), customer("blue")];
  const before = await begin(red);
  for (let count = 0; count < 1 + most; count++) await blue.run("works", { mode: "async" });
  expect(await refused(await blue.create("works"))).toEqual(refusal("perTenant.queuedRuns"));
  await loseNothing(red, before);
  await close();
});

it.each([
  { setting: { maxReaders: 12 }, most: 6 },
  { setting: { maxReaders: 12, runtime: { limits: { perTenant: { readers: 2 } } } }, most: 2 },
])("a tenant with as many streams as it may have is refused alone: $setting", async ({ setting, most }) => {
  const { runtime, customer, close } = openApplication(setting);
  runtime.register("endless", (_input, { signal }) => {
    return new Promise<string>((resolve) => signal.addEventListener("abort", () => resolve("stopped")));
  });
  const [red, blue] = [customer("red"), customer("blue")];
  const before = await begin(red);
  const { run_id } = await blue.run("endless", { mode: "async" });
  for (let count = 0; count < most; count++) {
    expect((await blue.follow(run_id)).status).toBe(200);
    expect((await blue.view()).status).toBe(200);
  }
  for (const response of [
    await blue.follow(run_id),
    await blue.create("echo", { mode: "stream" }),
    await blue.view(),
    await blue.send("acp", `/runs/${run_id}/events`),
  ])
    expect(await refused(response)).toEqual(refusal("perTenant.readers"));
  await loseNothing(red, before);
  await close();
});

it.each([
  { of: "maxRuns of the retention", runtime: { retention: { maxRuns: 12 } } },
  { of: "storedRuns", runtime: { limits: { perTenant: { storedRuns: 12 } } } },
])("a tenant with more ended runs than $of loses its own oldest ones alone", async ({ runtime }) => {
  const { customer, close } = openApplication({ runtime });
  const [red, blue] = [customer("red"), customer("blue")];
  const [before, others] = [await begin(red), await begin(blue)];
  for (let count = 0; count < 40; count++) await blue.run("echo");
  await loseNothing(red, before);
  const { keyed, waiting } = others;
  expect((await blue.send("acp", `/runs/${keyed["run_id"]}`)).status).toBe(404);
  expect((await order(blue))["run_id"]).not.toBe(keyed["run_id"]);
  expect((await blue.send("acp", `/runs/${waiting["run_id"]}`)).status).toBe(200);
  expect(await blue.count()).toBeLessThanOrEqual(12 + 1);
  await close();
});

it("a tenant with more sessions than it may have loses its own oldest ones alone", async () => {
  const { runtime, customer, close } = openApplication({ runtime: { limits: { perTenant: { sessions: 4 } } } });
  const [red, blue] = [customer("red"), customer("blue")];
  const before = await begin(red);
  const sessions = Array.from({ length: 20 }, () => crypto.randomUUID());
  for (const session_id of sessions) await blue.run("echo", { session_id });
  await loseNothing(red, before);
  const statuses = await Promise.all(sessions.map((id) => blue.send("acp", `/sessions/${id}`)));
  expect(statuses.map(({ status }) => status)).toEqual([...Array(16).fill(404), ...Array(4).fill(200)]);
  expect((await runtime.scope({ tenant: "blue" }).listRuns()).length).toBe(20);
  await close();
});

it("an application without tenants has all of each total", async () => {
  const { customer, close } = openApplication({ runtime: { limits: { maxLiveRuns: 4 } }, maxReaders: 4 });
  const all = customer("");
  const runs = [
    await all.run("asks"),
    await all.run("asks"),
    await all.run("asks"),
    await all.run("works", { mode: "async" }),
  ];
  expect(await refused(await all.create("asks"))).toEqual(refusal("maxLiveRuns"));
  for (let count = 0; count < 4; count++) expect((await all.follow(runs[3]?.["run_id"])).status).toBe(200);
  expect(await refused(await all.follow(runs[3]?.["run_id"]))).toEqual(refusal("maxReaders"));
  await close();
});

it("what a tenant has used is free again when it is not used any more", async () => {
  const { customer, close } = openApplication({
    runtime: { limits: { maxLiveRuns: 4, maxQueuedRuns: 2 } },
    maxReaders: 2,
  });
  const blue = customer("blue");
  for (let round = 0; round < 3; round++) {
    const works = [await blue.run("works", { mode: "async" }), await blue.run("works", { mode: "async" })];
    expect(await refused(await blue.create("works"))).toEqual(refusal("perTenant.liveRuns"));
    const response = await blue.follow(works[0]?.["run_id"]);
    expect(await refused(await blue.follow(works[0]?.["run_id"]))).toEqual(refusal("perTenant.readers"));
    for (const { run_id } of works.reverse()) await blue.send("acp", `/runs/${run_id}/cancel`, {});
    expect(await response.text()).toContain("run.cancelled");
    for (const { run_id } of works) await (await blue.follow(run_id)).text();
  }
  await close();
});

it("others lose nothing during ten minutes in which a tenant is at each of its limits", async () => {
  const clock = new FakeClock();
  const { customer, close } = openApplication({
    runtime: {
      clock,
      limits: { maxLiveRuns: 40, maxQueuedRuns: 12, perTenant: { sessions: 8 } },
      retention: { maxRuns: 60, maxAgeMs: 3_600_000 },
    },
    maxReaders: 40,
  });
  const [red, green] = [customer("red"), customer("green")];
  const had = await begin(red);
  const blue = new GreedyCustomer(customer("blue"));
  await blue.fill({ ended: 100, queued: 10, atOnce: 8 });
  for (let round = 0; round < 60; round++) {
    await blue.press(5);
    await clock.advance(10_000);
    if (round % 5 === 0) await loseNothing(green, await begin(green));
  }
  await loseNothing(red, had);
  expect([...blue.refusals.keys()].sort()).toEqual(["perTenant.liveRuns", "perTenant.queuedRuns", "perTenant.readers"]);
  expect(await blue.customer.count()).toBeLessThanOrEqual(20 + 60);
  await blue.leave();
  // What it has used is free again.
  await blue.customer.run("asks");
  await close();
});
