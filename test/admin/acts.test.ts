import { MemoryStore, AgentRuntime as Runtime } from "cadenza";
import type { Admin } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import { describe, expect, it } from "vitest";
import { actCases, endOf, startProcess } from "../harness/acts.ts";
import { FakeClock } from "../harness/clock.ts";
import { operatorStores } from "../harness/operator-stores.ts";
import { hookedStore } from "../harness/store-proxy.ts";

describe.each(operatorStores)("%s, an operator who acts on many runs", (_name, withStore) => actCases(withStore));

type Refusal = readonly [what: string, query: object, message: string];

const forBoth: readonly Refusal[] = [
  ["no condition", {}, "at least one condition"],
  ["conditions that are none", { labels: {}, roots: false, tenant: undefined }, "at least one condition"],
  ["a page", { tenant: "acme", limit: 10 }, "there is no option"],
  ["some runs", { among: [] }, "there is no option"],
  ["no status", { tenant: "acme", status: [] }, "query.status"],
  ["a status in which nothing is to be done", { status: ["completed"] }, "query.status"],
  ["a time that ends before it begins", { createdAfter: 2, createdBefore: 2 }, "after query.createdAfter"],
  ["the acts themselves", { tenant: "cadenza:operators" }, "of the application"],
];

it.each([
  ...forBoth.flatMap((refusal) => [["cancelMany", ...refusal] as const, ["retryMany", ...refusal] as const]),
  ["cancelMany", "runs that have failed", { status: "failed" }, "one of created, in-progress, awaiting"],
  ["retryMany", "runs that wait", { status: ["failed", "awaiting"] }, "one of failed"],
] as const)("%s refuses a query with %s", async (method, _what, query, message) => {
  const runtime = new Runtime();
  const refused = createAdmin(runtime)[method](query as Parameters<Admin["cancelMany"]>[0]);
  await expect(refused).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining(message),
  });
  await runtime.close();
});

it("an admin of a store alone refuses to act, and tells how far an act is", async () => {
  const store = new MemoryStore();
  const runtime = new Runtime({ store });
  const act = await createAdmin(runtime).act(await createAdmin(runtime).cancelMany({ tenant: "acme" }), { wait: true });
  const admin = createAdmin({ store });
  await expect(admin.cancelMany({ tenant: "acme" })).rejects.toMatchObject({ code: "invalid_argument" });
  await expect(admin.retryMany({ tenant: "acme" })).rejects.toMatchObject({ code: "invalid_argument" });
  await expect(admin.act(act, { wait: true })).rejects.toMatchObject({ code: "invalid_argument" });
  expect(await admin.act(act.run_id)).toEqual(act);
  await runtime.close();
});

/** Counts the calls that a store gets in one turn of the event loop, at most. */
function countedTurns() {
  const calls = { most: 0 };
  let count = 0;
  const store = hookedStore((call) => {
    if (count === 0)
      setImmediate(() => {
        count = 0;
      });
    count += 1;
    calls.most = Math.max(calls.most, count);
    return call();
  });
  return { store, calls };
}

it("10,000 runs in memory are cancelled a few in a turn, and stop when the operator says so", {
  timeout: 60_000,
}, async () => {
  const { store, calls } = countedTurns();
  const runtime = new Runtime({ store, limits: { maxLiveRuns: 20_000 }, retention: { maxRuns: 20_000 } });
  runtime.register("asks", (_input, { ask }) => ask("Well?"));
  for (const tenant of ["", "acme"])
    for (let n = 0; n < 5_000; n++) {
      await runtime.scope({ tenant }).createRun({ agent_name: "asks", input: "" });
      if (n % 100 === 0) await new Promise(setImmediate);
    }
  const admin = createAdmin(runtime);
  const stopped = await admin.cancelMany({ agent_name: "asks" });
  while ((await admin.act(stopped)).done === 0) await new Promise(setImmediate);
  await admin.cancel(stopped, { wait: true });
  const first = await admin.act(stopped);
  expect(first).toMatchObject({ status: "cancelled", left: 0, refused: 0 });
  await new Promise(setImmediate);
  const left = (await runtime.scope({ tenant: "" }).listRuns({ status: "awaiting", limit: 10_000 })).length;
  const others = (await runtime.scope({ tenant: "acme" }).listRuns({ status: "awaiting", limit: 10_000 })).length;
  // The page at which it was stopped counts as far as it was done.
  expect(10_000 - left - others).toBe(first.done);
  expect(first.matched).toBeGreaterThanOrEqual(first.done);

  calls.most = 0;
  const begun = await admin.cancelMany({ agent_name: "asks" });
  const act = await admin.act(begun, { wait: true });
  const all = left + others;
  expect(act).toMatchObject({ status: "completed", matched: all, done: all, left: 0, refused: 0 });
  // Eight runs in a turn, each of which is read and written, and those whose agents end meanwhile.
  expect(calls.most).toBeLessThan(100);
  await runtime.close();
});

it("an act on a store that does not last ends with its process", async () => {
  const clock = new FakeClock();
  const store = new MemoryStore({ clock });
  const { runtime, admin } = await startProcess(() => store, clock, {
    hook: (call, method, [key]) =>
      method === "find" && Object(key).tenant === "acme" ? new Promise(() => {}) : call(),
  });
  await runtime.scope({ tenant: "acme" }).createRun({ agent_name: "asks", input: "" });
  const begun = await admin.cancelMany({ tenant: "acme" });
  await clock.settle();
  const closing = runtime.close({ drainMs: 100 });
  await clock.advance(100);
  expect((await closing).left.map(({ run_id }) => run_id)).toContain(begun.run_id);
  const act = await endOf({ admin: createAdmin({ store }) }, begun, clock);
  expect(act).toMatchObject({ status: "failed", error: { data: { reason: "interrupted" } }, matched: 1, done: 0 });
});

it("a caller may end its wait for an act, which goes on", async () => {
  const clock = new FakeClock();
  const process = await startProcess(() => new MemoryStore({ clock }), clock);
  const { runtime, admin } = process;
  await runtime.scope({ tenant: "acme" }).createRun({ agent_name: "asks", input: "" });
  const begun = await admin.cancelMany({ tenant: "acme" });
  const reason = new Error("The operator has gone home.");
  const abort = new AbortController();
  const waiting = admin.act(begun, { wait: true, signal: abort.signal });
  abort.abort(reason);
  await expect(waiting).rejects.toBe(reason);
  await expect(admin.act(begun, { wait: true, signal: abort.signal })).rejects.toBe(reason);
  expect(await admin.act(begun, { wait: true })).toMatchObject({ status: "completed", done: 1 });
  await expect(admin.act("x")).rejects.toMatchObject({ code: "invalid_argument" });
  await expect(admin.act(begun, { wait: "yes" as unknown as true })).rejects.toThrow(/options.wait/);
  await runtime.close();
});
