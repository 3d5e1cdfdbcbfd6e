import type { AgentOptions, AgentRuntime, Clock } from "cadenza";
import { CadenzaError } from "cadenza";
import type { RunKey } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { drain } from "../../harness/runtimes.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Runs whose log cannot be read any more. Each is reported with its id, and affects no other run. */

const SOUND = 5;

function wait(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.setTimeout(resolve, ms));
}

function register({ runtime, clock }: Replica, stepMs: number, options: Pick<AgentOptions, "concurrency"> = {}): void {
  runtime.register("agent", { durable: true, ...options }, async (input, { step, emit }) => {
    await emit(`later-${input[0]?.parts[0]?.content}`);
    await step("work", () => wait(clock, stepMs));
  });
}

async function create({ runtime }: Replica, input: string): Promise<string> {
  return (await runtime.createRun({ agent_name: "agent", input, mode: "async" })).run_id;
}

/** Breaks the JSON of each row that holds this text. Gives how many rows that were. */
function damage(path: string, text: string): number {
  const db = openDatabase(path);
  let damaged = 0;
  const names = (sql: string) => db.prepare(sql).all() as { readonly name: string }[];
  for (const { name: table } of names("SELECT name FROM sqlite_master WHERE type = 'table'"))
    for (const { name: column } of names(`PRAGMA table_info(${table})`)) {
      const sql = `UPDATE ${table} SET ${column} = '{"broken' WHERE ${column} LIKE ?`;
      damaged += Number(db.prepare(sql).run(`%${text}%`).changes);
    }
  db.close();
  return damaged;
}

/** A process has died with some runs in progress. The oldest of them has been damaged since. */
async function damaged(where: "the first entry" | "a later entry", options: Pick<AgentOptions, "concurrency"> = {}) {
  const replicas = onFile();
  const first = replicas.start();
  register(first, 60_000, options);
  const bad = await create(first, "bad-one");
  const sound: string[] = [];
  for (let run = 0; run < SOUND; run++) sound.push(await create(first, `sound-${run}`));
  await replicas.clock.advance(100);
  first.kill();
  expect(damage(replicas.path, `"content":"${where === "the first entry" ? "" : "later-"}bad-one`)).toBeGreaterThan(0);
  const second = replicas.start();
  register(second, 10, options);
  await replicas.clock.advance(10_000);
  return { ...second, bad, sound };
}

/** Reads all events of a run. Throws the error of the stream. */
async function read(runtime: AgentRuntime, run_id: string): Promise<void> {
  const last = (await drain(runtime.events(run_id, { until: "now" }))).at(-1);
  if (last?.type === "error") throw new CadenzaError("store_failed", last.error.message, { run_id });
}

describe.each(["the first entry", "a later entry"] as const)("a run of whose log %s is damaged", (where) => {
  it("keeps no other from being taken over", async () => {
    const { runtime, sound } = await damaged(where);
    for (const run_id of sound) expect((await runtime.getRun(run_id)).status).toBe("completed");
  });

  it("keeps no slot in which it was executed", async () => {
    const { runtime, sound } = await damaged(where, { concurrency: { max: 1 } });
    for (const run_id of sound) expect((await runtime.getRun(run_id)).status).toBe("completed");
  });

  it("is reported with its id, a limited number of times", async () => {
    const { said, bad, clock } = await damaged(where);
    const reports = () =>
      said.filter(({ level, fields, message }) => {
        const isReport = level === "error" || level === "warn";
        return isReport && (fields["run_id"] === bad || message.includes(bad));
      });
    expect(reports()).not.toEqual([]);
    await clock.advance(600_000);
    // It is tried again at growing intervals.
    expect(reports().length).toBeLessThan(60);
  });

  it("is left out of lists, or listed as far as it can be read", async () => {
    const { runtime, sound } = await damaged(where);
    const listed = (await runtime.listRuns()).map(({ run_id }) => run_id);
    expect(listed).toEqual(expect.arrayContaining(sound));
  });

  it("is refused with an error of the library, which names it", async () => {
    const { runtime, bad } = await damaged(where);
    for (const call of [() => runtime.getRun(bad), () => runtime.cancel(bad), () => read(runtime, bad)]) {
      const error = await call().then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(CadenzaError.is(error) && error.run_id).toBe(bad);
    }
  });
});

it("a damaged run has no owner: a process that can read it may claim it", async () => {
  const { store, bad } = await damaged("a later entry");
  expect((await store.find({ tenant: "", run_id: bad }))?.head.owner).toBeNull();
});

it("a run that the store fails to read, again and again, keeps no other from being taken over", async () => {
  const replicas = inMemory();
  const first = replicas.start();
  register(first, 60_000);
  const bad = await create(first, "");
  const sound: string[] = [];
  for (let run = 0; run < SOUND; run++) sound.push(await create(first, ""));
  await replicas.clock.advance(100);
  first.kill();
  const second = replicas.start({}, (call, method, [key]) => {
    if (method === "read" && (key as RunKey).run_id === bad) throw new Error("unreadable");
    return call();
  });
  register(second, 10);
  await replicas.clock.advance(10_000);
  for (const run_id of sound) expect((await second.runtime.getRun(run_id)).status).toBe("completed");
  expect(second.said.filter(({ fields, message }) => fields["run_id"] === bad || message.includes(bad))).not.toEqual(
    [],
  );
});

it("a run that one process failed to read is not named as damaged once another process has completed it", async () => {
  const replicas = inMemory();
  const first = replicas.start();
  register(first, 60_000);
  const bad = await create(first, "");
  await replicas.clock.advance(100);
  first.kill();
  let failures = 0;
  const second = replicas.start({}, (call, method) => {
    if (method !== "read") return call();
    failures += 1;
    throw new Error("unreadable");
  });
  register(second, 10);
  const named = async () => (await second.runtime.stats()).damaged.map(({ run_id }) => run_id);
  while (failures === 0) await replicas.clock.advance(100);
  expect(await named()).toEqual([bad]);
  // A message is no sign that a process can read the run.
  await replicas.start({ work: false }).runtime.send({ to: bad, name: "news", data: 1 });
  expect(await named()).toEqual([bad]);
  const third = replicas.start();
  register(third, 10);
  await replicas.clock.advance(10_000);
  expect((await third.runtime.getRun(bad)).status).toBe("completed");
  expect(await named()).toEqual([]);
});

it("a run that is damaged while another process reads it keeps no other reader there from its events", async () => {
  const replicas = onFile();
  const { clock } = replicas;
  const first = replicas.start();
  first.runtime.register("agent", { durable: true }, async (input, { step }) => {
    await step("work", () => wait(clock, input[0]?.parts[0]?.content === "bad-one" ? 500 : 2_000));
  });
  const ids = [await create(first, "bad-one"), await create(first, "sound")];
  await clock.advance(50);
  const second = replicas.start();
  const ended: string[] = [];
  for (const run_id of ids) {
    drain(second.runtime.events(run_id, { until: "end" })).then(
      () => ended.push(run_id),
      () => {},
    );
    await clock.advance(100);
  }
  expect(damage(replicas.path, '"content":"bad-one')).toBeGreaterThan(0);
  await clock.advance(5_000);
  expect(ended).toContain(ids[1]);
});

it("a run in progress that cannot be read any more keeps no other from being cancelled by another process", async () => {
  const replicas = inMemory();
  let bad: string | undefined;
  const first = replicas.start({}, (call, method, [key]) => {
    if (method === "find" && (key as RunKey).run_id === bad) throw new Error("unreadable");
    return call();
  });
  register(first, 60_000);
  const ids = [await create(first, ""), await create(first, "")];
  await replicas.clock.advance(100);
  const second = replicas.start();
  for (const run_id of ids) await second.runtime.cancel(run_id);
  bad = ids[0];
  await replicas.clock.advance(10_000);
  expect((await second.runtime.getRun(ids[1] ?? "")).status).toBe("cancelled");
});
