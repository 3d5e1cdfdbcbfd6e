import type { DetailedEvent } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { describe, expect, it } from "vitest";
import { setUp, setUpOnFile } from "../../harness/runtimes.ts";

/* Who did it: what logs, details and timelines say of cancels and forks. */

const places = [
  ["in memory", () => setUp()],
  ["on SQLite", setUpOnFile],
] as const;

const ada = { name: "Ada" };
const bob = { name: "Bob" };

describe.each(places)("who did it, %s", (_where, make) => {
  const open = async () => {
    const { runtime } = make();
    runtime.register("asks", { durable: true }, async (_input, { ask, principal }) => {
      await ask("Well?");
      return JSON.stringify(principal);
    });
    const user = runtime.scope({ tenant: "blue", principal: ada });
    const { run_id } = await user.createRun({ agent_name: "asks", input: "x" });
    const detailsOf = async (id: string): Promise<DetailedEvent[]> => {
      const events: DetailedEvent[] = [];
      for await (const event of user.events(id, { detail: true, until: "now" })) events.push(event);
      return events;
    };
    const key = { tenant: "blue", run_id };
    return { runtime, user, run_id, key, detailsOf, admin: createAdmin(runtime) };
  };

  it("is said of a cancel, and of the first one alone", async () => {
    const { runtime, user, run_id, key, detailsOf, admin } = await open();
    expect((await user.details(run_id)).cancelled_by).toBeNull();
    await runtime.scope({ tenant: "blue", principal: bob }).cancel(run_id, { wait: true });
    await user.cancel(run_id);
    expect((await user.details(run_id)).cancelled_by).toEqual(bob);
    const told = (await detailsOf(run_id)).filter(({ type }) => type === "cancel.requested");
    expect(told).toMatchObject([{ by: bob }]);
    const { items } = await admin.timeline(key);
    expect(items.filter(({ type }) => type === "cancel_requested")).toMatchObject([{ by: bob }]);
    const entries = (await admin.log(key)).items.filter(({ type }) => type === "cancel-requested");
    expect(entries).toMatchObject([{ by: bob }]);
  });

  it("is left out of a cancel by an application that names no one", async () => {
    const { runtime, run_id, key, detailsOf, admin } = await open();
    await runtime.scope({ tenant: "blue" }).cancel(run_id, { wait: true });
    const entry = (await admin.log(key)).items.find(({ type }) => type === "cancel-requested");
    expect(entry).not.toHaveProperty("by");
    expect((await detailsOf(run_id)).find(({ type }) => type === "cancel.requested")).toMatchObject({ by: null });
  });

  it("is said of a fork, which acts in the name of the user of its run", async () => {
    const { runtime, user, run_id, key, detailsOf, admin } = await open();
    await user.resume({ run_id, await_resume: { ok: true } });
    const operator = createAdmin(runtime, { principal: bob });
    const fork = await operator.fork(key);
    expect(fork.output[0]?.parts[0]?.content).toBe(JSON.stringify(ada));
    const { origin } = await user.details(fork.run_id);
    expect(origin).toMatchObject({ run_id, by: bob });
    const told = (await detailsOf(fork.run_id)).filter(({ type }) => type === "fork.started");
    expect(told).toMatchObject([{ origin_run_id: run_id, by: bob }]);
    const { run, items } = await admin.timeline({ tenant: "blue", run_id: fork.run_id });
    expect(run.created?.origin).toEqual(origin);
    expect(items.filter(({ type }) => type === "forked")).toMatchObject([{ by: bob }]);
    // A fork of the fork says its own maker alone.
    const third = await user.fork(fork.run_id);
    expect((await user.details(third.run_id)).origin).toMatchObject({ run_id: fork.run_id, by: ada });
    expect((await detailsOf(third.run_id)).filter(({ type }) => type === "fork.started")).toMatchObject([{ by: ada }]);
    const nameless = await runtime.scope({ tenant: "blue" }).fork(run_id);
    expect((await user.details(nameless.run_id)).origin).toMatchObject({ run_id, by: null });
  });

  it("is no part of what makes a repeated fork the same one", async () => {
    const { runtime, user, run_id } = await open();
    await user.resume({ run_id, await_resume: { ok: true } });
    const options = { idempotencyKey: "again", before: "ask#1", mode: "async" } as const;
    const first = await user.fork(run_id, options);
    const second = await runtime.scope({ tenant: "blue", principal: bob }).fork(run_id, options);
    expect(second.run_id).toBe(first.run_id);
    expect((await user.details(first.run_id)).origin).toMatchObject({ by: ada });
  });
});

it("the principal of createAdmin has to be JSON, and its options are checked", () => {
  const { runtime } = setUp();
  expect(() => createAdmin(runtime, { principal: undefined })).not.toThrow();
  expect(() => createAdmin(runtime, { principal: (() => 1) as never })).toThrow(/options\.principal/);
  expect(() => createAdmin(runtime, { user: "Ada" } as never)).toThrow(/options\.user|user/);
});
