import type { AgentRuntime, AuditRecord, Run } from "cadenza";
import { CadenzaError, defineAgent } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { ScheduleDefinition, Schedules } from "cadenza/schedules";
import { schedules } from "cadenza/schedules";
import { Cron } from "croner";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { deferred } from "../harness/promises.ts";
import { setUp } from "../harness/runtimes.ts";
import type { Replica, Replicas } from "../harness/world/replicas.ts";
import { inMemory, onFile } from "../harness/world/replicas.ts";

/* Schedules on a durable store, with a clock that the test moves. The clock begins at a full hour. */

const durability = { leaseMs: 100_000, heartbeatMs: 30_000, scanMs: 10_000, evictAfterMs: 60_000 };
const HOUR_MS = 3_600_000;
/** A process scans within this time. */
const LATE_MS = 20_000;
const MINUTE_MS = 60_000;
const hourly = { id: "report", agent_name: "report", input: "Go.", everyMs: HOUR_MS } as const;

const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

interface Planned extends Replica {
  readonly plans: Schedules;
}

/** A process with the agents `report`, which ends at once, and `slow`, which takes a message to end. */
function start(replicas: Replicas): Planned {
  const replica = replicas.start({ durability });
  replica.runtime.register("report", { durable: true }, (_input, { metadata }) => JSON.stringify(metadata));
  replica.runtime.register("slow", { durable: true }, async (_input, { receive }) => {
    await receive("end");
  });
  return { ...replica, plans: schedules(replica.runtime, { cron: Cron }) };
}

/** The times of the runs of a schedule, those that were created first before. */
async function timesOf(runtime: Pick<AgentRuntime, "listRuns" | "details">, agent_name = "report"): Promise<string[]> {
  const runs = await runtime.listRuns({ agent_name, limit: 1_000 });
  const all = await Promise.all(runs.map(({ run_id }) => runtime.details(run_id)));
  return all.map(({ metadata }) => (metadata as { readonly time: string }).time).reverse();
}

function timesFrom(clock: { now(): number }, ...hours: readonly number[]): string[] {
  const base = Math.floor(clock.now() / HOUR_MS) * HOUR_MS;
  return hours.map((hour) => new Date(base + hour * HOUR_MS).toISOString());
}

const refusalOf = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => (CadenzaError.is(error) ? error.code : error),
  );

describe.each(opened)("$on", ({ open }) => {
  it("creates a run at each of its times, until it is removed", async () => {
    const replicas = open();
    const { clock } = replicas;
    const { runtime, plans } = start(replicas);
    const times = timesFrom(clock, 1, 2, 3);
    expect(await plans.put(hourly)).toMatchObject({ id: "report", next_at: times[0], last: null });
    expect(await plans.next("report", 3)).toEqual(times);
    for (let hour = 0; hour < 3; hour++) await clock.advance(HOUR_MS + LATE_MS);
    expect(await timesOf(runtime)).toEqual(times);
    const [run] = await runtime.listRuns({ agent_name: "report" });
    expect(await plans.get("report")).toMatchObject({ last: { time: times[2], run_id: (run as Run).run_id } });
    await plans.remove("report");
    await clock.advance(3 * HOUR_MS);
    expect(await timesOf(runtime)).toHaveLength(3);
    expect(await refusalOf(plans.get("report"))).toBe("run_not_found");
    expect((await plans.list()).items).toEqual([]);
    await plans.remove("report");
  });

  it("goes on in the process that takes it over, with one run for each time", async () => {
    const replicas = open();
    const { clock } = replicas;
    const first = start(replicas);
    const times = timesFrom(clock, 1, 2, 3);
    await first.plans.put(hourly);
    await clock.advance(HOUR_MS + LATE_MS);
    first.kill();
    const second = start(replicas);
    const third = start(replicas);
    await clock.advance(HOUR_MS);
    second.kill();
    await clock.advance(HOUR_MS);
    expect(await timesOf(third.runtime)).toEqual(times);
  });

  it("is put again by each process that starts, which changes nothing", async () => {
    const replicas = open();
    const { clock } = replicas;
    const times = timesFrom(clock, 1, 2);
    const all: Planned[] = [];
    for (let i = 0; i < 3; i++) {
      const one = start(replicas);
      all.push(one);
      await one.plans.put(hourly);
      await clock.advance(20 * MINUTE_MS);
    }
    await clock.advance(HOUR_MS + LATE_MS);
    const [{ runtime, plans }] = all as [Planned];
    expect(await timesOf(runtime)).toEqual(times);
    expect((await plans.list()).items).toHaveLength(1);
  });

  it("has its change at once, and loses and doubles no time by it", async () => {
    const replicas = open();
    const { clock } = replicas;
    const { runtime, plans } = start(replicas);
    const [one, two] = timesFrom(clock, 1, 2);
    await plans.put(hourly);
    await clock.advance(HOUR_MS - 1);
    await Promise.all([clock.advance(LATE_MS), plans.put({ ...hourly, everyMs: 2 * HOUR_MS, startAt: one })]);
    await clock.advance(HOUR_MS + LATE_MS);
    expect(await timesOf(runtime)).toEqual([one]);
    expect(await plans.get("report")).toMatchObject({ every_ms: 2 * HOUR_MS, start_at: one });
    await plans.put(hourly);
    expect(await plans.next("report")).toEqual(timesFrom(clock, 1));
    expect(two).not.toBe(one);
  });
});

it("creates no runs of the times while it is paused, and those of triggers", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { runtime, plans } = start(replicas);
  const times = timesFrom(clock, 1, 4);
  await plans.put({ ...hourly, missed: "all" });
  await clock.advance(HOUR_MS + LATE_MS);
  await plans.pause("report");
  expect(await plans.get("report")).toMatchObject({ is_paused: true, next_at: null });
  await clock.advance(HOUR_MS);
  await plans.trigger("report", { idempotencyKey: "now" });
  await plans.trigger("report", { idempotencyKey: "now" });
  const triggeredAt = new Date(clock.now()).toISOString();
  await clock.advance(HOUR_MS);
  await plans.put({ ...hourly, missed: "all" });
  expect((await plans.get("report")).is_paused).toBe(true);
  await plans.resume("report");
  await clock.advance(HOUR_MS);
  expect(await timesOf(runtime)).toEqual([times[0], triggeredAt, times[1]]);
});

it("has one schedule of an id for each tenant", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { runtime, plans } = start(replicas);
  const tenants = ["", "a", "ab".repeat(64)];
  for (const tenant of tenants) await plans.put({ ...hourly, tenant, labels: { of: "x" } });
  await plans.put({ ...hourly, id: "other", tenant: "a" });
  await plans.pause("report", { tenant: "a" });
  await clock.advance(HOUR_MS + LATE_MS);
  for (const [tenant, runs] of [
    ["", 1],
    ["a", 1],
    ["ab".repeat(64), 1],
  ] as const)
    expect(await runtime.scope({ tenant }).listRuns({ agent_name: "report" })).toHaveLength(runs);
  expect((await plans.list({ tenant: "a" })).items.map(({ id, is_paused }) => [id, is_paused])).toEqual([
    ["other", false],
    ["report", true],
  ]);
  expect((await plans.list()).items).toHaveLength(4);
  await plans.remove("report");
  expect((await plans.list({ tenant: "" })).items).toEqual([]);
  const first = await plans.list({ limit: 2 });
  const rest = await plans.list({ limit: 2, cursor: first.next });
  expect([...first.items, ...rest.items].map(({ tenant, id }) => `${tenant.length} ${id}`)).toEqual([
    ...["1 other", "128 report", "1 report"],
  ]);
  expect(await refusalOf(plans.list({ cursor: "7" }))).toBe("invalid_argument");
});

describe("the runs of schedules", () => {
  it("have names that no two share, whatever characters ids and keys of triggers have", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    const { runtime, plans } = start(replicas);
    const [time] = timesFrom(clock, 1);
    for (const id of ["a", "a:b", "1:a", "a:trigger:x"]) await plans.put({ ...hourly, id, missed: "all" });
    const triggers = [
      ...[
        ["a", "b:c"],
        ["a:b", "c"],
        ["a", "1:b1:c"],
        ["a", `${time}`],
        ["a", `time:${time}`],
        ["a", "x:trigger:y"],
        ["a:trigger:x", "y"],
      ],
    ] as const;
    for (const [id, idempotencyKey] of triggers) await plans.trigger(id, { idempotencyKey });
    await clock.advance(HOUR_MS + LATE_MS);
    const runs = await runtime.listRuns({ agent_name: "report" });
    expect(runs).toHaveLength(triggers.length + 4);
    for (const id of ["a", "a:b", "1:a", "a:trigger:x"]) expect((await plans.get(id)).last?.time).toBe(time);
  });

  it("have names that no caller can take", async () => {
    const replicas = inMemory();
    const { runtime } = start(replicas);
    const call = (idempotencyKey: string) =>
      refusalOf(runtime.createRun({ agent_name: "report", input: "Go." }, { idempotencyKey }));
    expect(await call("cadenza:8:schedule6:report4:time")).toBe("invalid_argument");
    expect(await call("schedule:report")).toBeUndefined();
    const { run_id } = await runtime.createRun({ agent_name: "report", input: "" });
    expect(await refusalOf(runtime.fork(run_id, { idempotencyKey: `cadenza:retry:${run_id}` }))).toBe(
      "invalid_argument",
    );
  });
});

it("tells onAudit who has changed a schedule, and whether anything has changed", async () => {
  const told: AuditRecord[] = [];
  const replicas = inMemory();
  const replica = replicas.start({ durability, onAudit: (record) => void told.push(record) });
  replica.runtime.register("report", { durable: true }, () => undefined);
  const plans = schedules(replica.runtime, { principal: { name: "Ada" } });
  const red = { tenant: "red" };
  await plans.put({ ...hourly, ...red });
  await plans.put({ ...hourly, ...red });
  await plans.pause("report", red);
  await plans.resume("report", red);
  await plans.trigger("report", red);
  await plans.remove("report", red);
  await plans.remove("report", red);
  expect(await refusalOf(plans.pause("report", red))).toBe("run_not_found");
  const of = { by: { name: "Ada" }, tenant: "red", schedule_id: "report", outcome: "done", at: expect.any(String) };
  expect(told).toEqual([
    { ...of, action: "putSchedule", agent_name: "report" },
    { ...of, action: "putSchedule", agent_name: "report", repeated: true },
    { ...of, action: "pauseSchedule" },
    { ...of, action: "resumeSchedule" },
    { ...of, action: "triggerSchedule" },
    { ...of, action: "removeSchedule" },
    { ...of, action: "removeSchedule", repeated: true },
    { ...of, action: "pauseSchedule", outcome: "refused", code: "run_not_found" },
  ]);
});

it("says when it was put, and not when the same was put again", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { plans } = start(replicas);
  const { put_at } = await plans.put(hourly);
  await clock.advance(MINUTE_MS);
  expect((await plans.put({ ...hourly, labels: {}, missed: "latest", startAt: undefined })).put_at).toBe(put_at);
  expect((await plans.put({ ...hourly, input: "Go on." })).put_at).not.toBe(put_at);
});

it("waits, and says so, while a time has no run because of its jitter", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { runtime, plans } = start(replicas);
  const [time, next] = timesFrom(clock, 1, 2);
  await plans.put({ ...hourly, jitterMs: 30 * MINUTE_MS });
  await clock.advance(HOUR_MS + 1);
  expect(await plans.get("report")).toMatchObject({ is_waiting: true, last: null, next_at: next });
  await plans.trigger("report");
  await clock.advance(LATE_MS);
  expect(await timesOf(runtime)).not.toContain(time);
  expect(await timesOf(runtime)).toHaveLength(1);
  await clock.advance(31 * MINUTE_MS);
  expect(await plans.get("report")).toMatchObject({ is_waiting: false, last: { time } });
});

it("may be put again after it was removed", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { runtime, plans } = start(replicas);
  const [time] = timesFrom(clock, 1);
  for (let i = 0; i < 3; i++) {
    await plans.put(hourly);
    await plans.remove("report");
  }
  await plans.put(hourly);
  await clock.advance(HOUR_MS + LATE_MS);
  expect(await timesOf(runtime)).toEqual([time]);
});

it("may be put while another process removes it", async () => {
  const replicas = onFile();
  const [one, other] = [start(replicas), start(replicas)];
  for (let turns = 0; turns < 20; turns++) {
    await one.plans.put(hourly);
    const removed = one.plans.remove("report");
    for (let turn = 0; turn < turns; turn++) await replicas.clock.turn();
    const put = other.plans.put({ ...hourly, input: "Again." });
    await replicas.clock.advance(LATE_MS);
    expect([await put, await removed]).toMatchObject([{ id: "report" }, undefined]);
    expect(await refusalOf(one.plans.get("report"))).toBeUndefined();
    await replicas.clock.advance(LATE_MS);
  }
});

it("a schedule has no times that no date can have", async () => {
  const { plans } = start(inMemory());
  await plans.put({ id: "rare", agent_name: "report", input: "", everyMs: 3_000_000_000_000_000 });
  expect(await plans.next("rare", 5)).toEqual(["+097036-03-20T05:20:00.000Z", "+192102-06-07T10:40:00.000Z"]);
});

it("has the times of a cron expression in its zone", async () => {
  const replicas = inMemory();
  const { plans } = start(replicas);
  const night = { ...hourly, everyMs: undefined, cron: "30 2 * * *", timeZone: "Europe/Berlin" };
  await plans.put({ ...night, startAt: "2031-03-29T12:00:00Z" });
  expect(await plans.next("report", 2)).toEqual(["2031-03-30T01:00:00.000Z", "2031-03-31T00:30:00.000Z"]);
  await plans.put({ ...night, startAt: "2031-10-25T12:00:00Z", endAt: "2031-10-27T02:00:00Z" });
  expect(await plans.next("report", 5)).toEqual(["2031-10-26T00:30:00.000Z", "2031-10-27T01:30:00.000Z"]);
});

it("says of a run that cannot be created why, and goes on", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { runtime, plans, said } = start(replicas);
  const held = deferred();
  const concurrency = { max: 1, whenFull: "reject" } as const;
  runtime.register("fussy", { durable: true, concurrency }, async (_input, { step }) => {
    await step("hold", () => held.promise);
  });
  const times = timesFrom(clock, 1);
  await plans.put({ ...hourly, agent_name: "fussy", overlap: "skip" });
  await runtime.createRun({ agent_name: "fussy", input: "", mode: "async" });
  await clock.advance(HOUR_MS + LATE_MS);
  expect(await plans.get("report")).toMatchObject({
    is_waiting: true,
    last: null,
    refused: { time: times[0], code: "limit_reached" },
  });
  expect(said.some(({ message }) => message === "A schedule cannot create a run.")).toBe(true);
  held.resolve();
  await clock.advance(MINUTE_MS);
  expect(await plans.get("report")).toMatchObject({ is_waiting: false, last: { time: times[0] }, refused: null });
});

it("refuses an input that the agent never accepts", async () => {
  const replicas = inMemory();
  const { runtime, plans } = start(replicas);
  runtime.register(
    defineAgent("typed", { durable: true, input: z.object({ cents: z.number() }) }).run(async () => "Paid."),
  );
  expect(await refusalOf(plans.put({ ...hourly, agent_name: "typed", input: { cents: "4" } }))).toBe("invalid_input");
  expect((await plans.list()).items).toEqual([]);
  await plans.put({ ...hourly, agent_name: "typed", input: { cents: 4 } });
});

it("has its next time in time after an operator has paused all schedules", async () => {
  const { runtime, clock } = setUp();
  runtime.register("report", { durable: true }, () => undefined);
  const plans = schedules(runtime);
  const admin = createAdmin(runtime);
  await plans.put({ ...hourly, everyMs: MINUTE_MS, missed: "all" });
  await clock.advance(MINUTE_MS + 1);
  await admin.pause({ agent_name: "cadenza:schedule" });
  // What it waits for goes on, and then it is paused.
  await clock.advance(3 * MINUTE_MS);
  expect(await timesOf(runtime)).toHaveLength(2);
  await admin.resume({ agent_name: "cadenza:schedule" });
  await clock.advance(LATE_MS);
  expect(await timesOf(runtime)).toHaveLength(4);
  await clock.advance(MINUTE_MS);
  expect(await timesOf(runtime)).toHaveLength(5);
});

it("is limited by no limit of live runs, and keeps no other run out", async () => {
  const { runtime, clock } = setUp({ limits: { maxLiveRuns: 2, perTenant: { liveRuns: 1 } } });
  runtime.register("report", { durable: true }, () => undefined);
  runtime.register("asks", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
  const plans = schedules(runtime);
  for (let n = 0; n < 4; n++) await plans.put({ ...hourly, id: `${n}`, tenant: `${n}` });
  for (const tenant of ["a", "b"]) await runtime.scope({ tenant }).createRun({ agent_name: "asks", input: "" });
  await plans.put({ ...hourly, id: "4", tenant: "4" });
  const [asking] = await runtime.scope({ tenant: "a" }).listRuns();
  await runtime.scope({ tenant: "a" }).cancel(String(asking?.run_id), { wait: true });
  await clock.advance(HOUR_MS + MINUTE_MS);
  for (let n = 0; n < 5; n++) expect(await runtime.scope({ tenant: `${n}` }).listRuns()).toHaveLength(1);
});

it("is left to other processes by one that has no class for its cron expression", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const first = start(replicas);
  const [time] = timesFrom(clock, 1);
  await first.plans.put({ ...hourly, everyMs: undefined, cron: "0 * * * *" });
  await clock.advance(MINUTE_MS);
  first.kill();
  const second = replicas.start({ durability });
  second.runtime.register("report", { durable: true }, (_input, { metadata }) => JSON.stringify(metadata));
  const plans = schedules(second.runtime);
  await clock.advance(HOUR_MS);
  expect(await plans.get("report")).toMatchObject({ cron: "0 * * * *", next_at: null });
  expect(second.said.some(({ message }) => message.startsWith("A schedule needs the class Cron"))).toBe(true);
  second.kill();
  const third = start(replicas);
  await clock.advance(2 * MINUTE_MS);
  expect(await timesOf(third.runtime)).toEqual([time]);
});

it("creates no run later than it may where its clock is set back", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { runtime, plans } = start(replicas);
  const times = timesFrom(clock, 1, 2);
  await plans.put(hourly);
  await clock.advance(HOUR_MS + LATE_MS);
  clock.set(-HOUR_MS);
  await clock.advance(2 * HOUR_MS);
  expect(await timesOf(runtime)).toEqual(times);
});

it("creates the run of a time later by its jitter, always by the same", async () => {
  const created = new Set<string>();
  for (let i = 0; i < 2; i++) {
    const replicas = inMemory();
    const { clock } = replicas;
    const { runtime, plans } = start(replicas);
    const [time] = timesFrom(clock, 1);
    await plans.put({ ...hourly, jitterMs: 30 * MINUTE_MS });
    const began = clock.now();
    while ((await timesOf(runtime)).length === 0) await clock.advance(MINUTE_MS);
    created.add(String(clock.now() - began));
    expect(clock.now() - began).toBeGreaterThan(HOUR_MS + MINUTE_MS);
    expect(clock.now() - began).toBeLessThan(1.5 * HOUR_MS + 2 * MINUTE_MS);
    expect(await timesOf(runtime)).toEqual([time]);
  }
  expect(created.size).toBe(1);
});

it.each<[string, Record<string, unknown>, string]>([
  ["no time", { everyMs: undefined }, "invalid_argument"],
  ["two times", { cron: "0 * * * *" }, "invalid_argument"],
  ["a cron expression of six fields", { everyMs: undefined, cron: "0 0 * * * *" }, "invalid_argument"],
  ["no cron expression", { everyMs: undefined, cron: "hourly" }, "invalid_argument"],
  ["a cron expression that no date matches", { everyMs: undefined, cron: "0 0 30 2 *" }, "invalid_argument"],
  ["an end before its start", { startAt: 2, endAt: 1 }, "invalid_argument"],
  ["an unknown zone", { timeZone: "Europe/Atlantis" }, "invalid_argument"],
  ["a time below a second", { everyMs: 999 }, "invalid_argument"],
  ["an unknown overlap", { overlap: "both" }, "invalid_argument"],
  ["an unknown option", { retries: 3 }, "invalid_argument"],
  ["an unknown agent", { agent_name: "missing" }, "agent_not_found"],
  ["an unknown version", { version: "7" }, "agent_not_found"],
  ["an id that is too long", { id: "x".repeat(65) }, "invalid_argument"],
])("refuses a schedule with %s", async (_what, change, code) => {
  const { plans } = start(inMemory());
  expect(await refusalOf(plans.put({ ...hourly, ...change } as ScheduleDefinition))).toBe(code);
  expect((await plans.list()).items).toEqual([]);
});
