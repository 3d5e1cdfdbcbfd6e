import { copyFileSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as inNextTurn } from "node:timers/promises";
import { AgentRuntime, textOf } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { afterAll, beforeAll, expect, it } from "vitest";
import { withMembers } from "../../harness/port-proxy.ts";
import { openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";

/** Twice as many entries as are between two snapshots, and some more. */
const STEPS = 1_100;
const ANSWER = {
  type: "message",
  message: { role: "user", parts: [{ content_type: "text/plain", content: "Yes" }] },
} as const;

const open = (file: string): SqliteStore =>
  new SqliteStore(openDatabase(file), { synchronous: "NORMAL", closeDatabase: true });

function runtimeOn(store: SqliteStore): AgentRuntime {
  return new AgentRuntime({ store }).register("long", { durable: true }, async (_input, { step, ask, emit }) => {
    await emit("Well");
    for (let n = 0; n < STEPS; n++)
      await step("count", async (body) => {
        if (n === 700) await body.emit("half");
        return n;
      });
    await ask("Is that all?");
    await ask("Really?");
    return "Yes.";
  });
}

async function all<T>(items: AsyncIterable<T>): Promise<readonly T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** A runtime, and how many entries of logs it has read. */
function countedOn(store: SqliteStore): { readonly runtime: AgentRuntime; readonly reads: { count: number } } {
  const reads = { count: 0 };
  const runtime = runtimeOn(
    withMembers(store, {
      read(key, from, limit) {
        const entries = store.read(key, from, limit);
        reads.count += entries?.length ?? 0;
        return entries;
      },
    }),
  );
  return { runtime, reads };
}

/** What a reader of a run sees, and how many entries it has read for each. */
async function look(store: SqliteStore) {
  const { runtime, reads } = countedOn(store);
  const costs: number[] = [];
  const counted = async <T>(reading: Promise<T>): Promise<T> => {
    reads.count = 0;
    const seen = await reading;
    costs.push(reads.count);
    return seen;
  };
  const { last_event_id, ...details } = await counted(runtime.details(run_id));
  const seen = {
    record: await counted(runtime.getRun(run_id)),
    details,
    last_event_id,
    events: await counted(all(runtime.events(run_id, { after: last_event_id - 1, until: "now" }))),
    transcript: await counted(runtime.transcript(run_id)),
  };
  await runtime.close();
  return { seen, most: Math.max(...costs) };
}

/** A file with a long run that waits. Each test has a copy of it. */
const folder = temporaryFolder(tmpdir());
const made = join(folder.path, "made.db");
let run_id = "";

beforeAll(async () => {
  const runtime = runtimeOn(open(made));
  ({ run_id } = await runtime.createRun({ agent_name: "long", input: "" }));
  await runtime.close();
});
afterAll(() => folder.remove());

let copies = 0;
function copied(): string {
  const file = join(folder.path, `${++copies}.db`);
  // A driver may leave what was written last beside the file.
  for (const end of ["", "-wal"]) if (existsSync(`${made}${end}`)) copyFileSync(`${made}${end}`, `${file}${end}`);
  return file;
}

it("a long run that is not loaded is read from its snapshot, at rest and when it has ended", async () => {
  const file = copied();
  const waiting = await look(open(file));
  expect(waiting.most).toBeLessThanOrEqual(500);
  expect(waiting.seen).toMatchObject({ record: { status: "awaiting" }, events: [{ type: "run.awaiting" }] });

  const next = runtimeOn(open(file));
  await next.resume({ run_id, await_resume: ANSWER });
  await next.resume({ run_id, await_resume: ANSWER });
  await next.close();
  const ended = await look(open(file));
  expect(ended.most).toBeLessThanOrEqual(500);
  expect(ended.seen).toMatchObject({ record: { status: "completed" }, events: [{ type: "run.completed" }] });
});

it.each([{}, { idempotencyKey: "a key" }])(
  "a message to a long run reads what its snapshot does not have, with %o",
  async (options) => {
    const store = open(copied());
    let count = 0;
    const read: SqliteStore["read"] = (key, from, limit) => {
      const entries = store.read(key, from, limit);
      count += entries?.length ?? 0;
      return entries;
    };
    const runtime = new AgentRuntime({ store: withMembers(store, { read }), work: false });
    await runtime.send({ to: run_id, name: "news", data: 1 }, options);
    await runtime.close();
    expect(count).toBeGreaterThan(0);
    expect(count).toBeLessThanOrEqual(500);
  },
);

it.each<[what: string, sql: string]>([
  ["deleted", "DELETE FROM cadenza_snapshots"],
  ["torn", "UPDATE cadenza_snapshots SET state = substr(state, 1, length(state) / 2)"],
  ["of another format", "UPDATE cadenza_snapshots SET format = format + 1, state = '{}'"],
  ["of a later position", "UPDATE cadenza_snapshots SET position = position + 1000000"],
  ["of another position than its state", "UPDATE cadenza_snapshots SET position = position - 1"],
  ["no state", "UPDATE cadenza_snapshots SET state = 'null'"],
])("a snapshot that is %s changes nothing that is read", async (_what, sql) => {
  const { seen } = await look(open(copied()));
  const file = copied();
  const database = openDatabase(file);
  const { changes } = database.prepare(sql).run();
  database.close();

  expect(changes, "how many snapshots there were").toBe(1);
  const spoilt = await look(open(file));
  expect(spoilt.seen).toEqual(seen);
  expect(spoilt.most).toBeGreaterThan(2 * STEPS);
});

it("a snapshot that cannot be read changes nothing that is read", async () => {
  const { seen } = await look(open(copied()));
  const store = open(copied());
  const snapshot = () => {
    throw new Error("The page is damaged.");
  };
  expect((await look(withMembers(store, { snapshot }))).seen).toEqual(seen);
});

it("a reader of all events reads no snapshot", async () => {
  const store = open(copied());
  let read = 0;
  const snapshot: SqliteStore["snapshot"] = (key) => {
    read += 1;
    return store.snapshot(key);
  };
  const runtime = runtimeOn(withMembers(store, { snapshot }));
  expect((await all(runtime.events(run_id, { until: "now" }))).at(-1)).toMatchObject({ type: "run.awaiting" });
  expect(read).toBe(0);
  await all(runtime.events(run_id, { after: 5, until: "now" }));
  expect(read).toBe(1);
  await runtime.close();
});

it("a snapshot that is newer than what was found of a run is not used", async () => {
  const store = open(copied());
  const found = withMembers(store, {
    find(key, how) {
      const stored = store.find(key, how);
      return stored && { ...stored, position: 1_200, inbox: [] };
    },
  });
  const runtime = runtimeOn(found);
  expect(textOf(await runtime.getRun(run_id)), "the output before that of the step").toBe("Well");
  await runtime.close();
});

it("a snapshot holds nothing that the store does not have", async () => {
  const store = open(join(folder.path, "ahead.db"));
  const kept: [position: number, stored: number | undefined][] = [];
  const keepSnapshot: SqliteStore["keepSnapshot"] = async (key, snapshot) => {
    kept.push([snapshot.position, store.find(key)?.position]);
  };
  /** While a write is under way the agent goes on, and its state is ahead of the store. */
  const append: SqliteStore["append"] = async (...parameters) => {
    await inNextTurn();
    return store.append(...parameters);
  };
  const runtime = new AgentRuntime({ store: withMembers(store, { append, keepSnapshot }) });
  runtime.register("ahead", { durable: true }, async (_input, { emit, step }) => {
    for (let n = 0; n < 1_200; n++) {
      const emitting = emit(`part ${n}`);
      if (n % 100 === 99) await emitting;
      else await Promise.resolve();
    }
    await step("end", () => "done");
  });
  await runtime.createRun({ agent_name: "ahead", input: "" });
  await runtime.close();
  expect(kept.length).toBeGreaterThan(0);
  for (const [position, stored] of kept) expect(position).toBe(stored);
});

it("a run that is loaded for few entries at a time keeps no snapshot each time", async () => {
  const file = copied();
  let kept = 0;
  for (let n = 0; n < 2; n++) {
    const store = open(file);
    const keepSnapshot: SqliteStore["keepSnapshot"] = (key, snapshot) => {
      kept += 1;
      return store.keepSnapshot(key, snapshot);
    };
    const runtime = runtimeOn(withMembers(store, { keepSnapshot }));
    await runtime.resume({ run_id, await_resume: ANSWER });
    await runtime.close();
  }
  expect(kept).toBe(0);
});

it("the events after an answer begin at the end of the log, which is read once to load the run", async () => {
  const { runtime, reads } = countedOn(withMembers(open(copied()), { snapshot: () => undefined }));
  const { last_event_id } = await runtime.details(run_id);
  reads.count = 0;
  const events = await all(runtime.resume({ run_id, await_resume: ANSWER, mode: "stream" }));
  expect(events.map(({ type, id }) => [type, id])).toEqual([
    ["run.in-progress", last_event_id + 1],
    ["run.awaiting", last_event_id + 2],
  ]);
  expect(reads.count).toBeGreaterThan(2 * STEPS);
  expect(reads.count).toBeLessThan(3 * STEPS);
  await runtime.close();
});

it("a run goes on while no snapshot can be kept", async () => {
  let asked = 0;
  const keepSnapshot = (): Promise<void> => {
    asked += 1;
    return Promise.reject(new Error("The disk is full."));
  };
  const runtime = runtimeOn(withMembers(open(join(folder.path, "full.db")), { keepSnapshot }));
  const run = await runtime.createRun({ agent_name: "long", input: "" });
  await runtime.resume({ run_id: run.run_id, await_resume: ANSWER });
  expect(await runtime.resume({ run_id: run.run_id, await_resume: ANSWER })).toMatchObject({ status: "completed" });
  expect(asked).toBeGreaterThan(1);
  await runtime.close();
});
