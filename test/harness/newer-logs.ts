import type { AgentFunction, Logger } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { Entry, RunHead, RunKey, Store, StoredRun } from "cadenza/store";
import { durable } from "cadenza/store";
import { record } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import { FakeClock } from "./clock.ts";
import { never } from "./promises.ts";
import { drain } from "./runtimes.ts";
import { hookedStore } from "./store-proxy.ts";

/*
 * Runs that a newer version of the library has written to. A process of this version leaves them alone, whatever brings
 * it to them. The newer version is played by this one: as it reads, an entry of a later time is one that it knows.
 */

/** Opens a store on data that outlive it. */
export type Open = (clock: FakeClock) => Store | Promise<Store>;

/** What a later version may write, and this one does not know. */
const later = { type: "paused", at: 0, by: "an operator" };
const laterFormat = { type: "received", at: 0, name: "later", data: null, idempotency_key: "later", format: 99 };
const laterEmission = { type: "emitted", kind: "hologram", at: 0 };
/** What this version reads in its place where it plays the newer one. */
const inItsPlace: Entry = { type: "refused", at: 0, offer_id: "later", code: "not_awaiting" };

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;
/** How much later than another process one starts that does not ask for work at the same times, in milliseconds. */
const BETWEEN_SCANS_MS = 30;

function play(entries: readonly Entry[] | undefined): readonly Entry[] | undefined {
  return entries?.map((entry) => {
    const isLater = [later, laterFormat, laterEmission].some((one) => JSON.stringify(one) === JSON.stringify(entry));
    return isLater ? inItsPlace : entry;
  });
}

class World {
  readonly clock = new FakeClock();
  readonly #open: Open;
  readonly #closing: (() => Promise<void>)[] = [];
  /** The calls of stores that have not answered. */
  readonly #asked = new Set<Promise<unknown>>();

  constructor(open: Open) {
    this.#open = open;
  }

  /** Starts a process. Newer ones know the entries of a later time. `workMs`: how long its steps take. `names`: its agents. */
  async start(isNewer = false, workMs = 1_000_000, names: readonly string[] = ["agent", "helper"]) {
    const inner = await this.#open(this.clock);
    let isDead = false;
    const store = hookedStore(async (call, method) => {
      if (isDead) return never();
      const answer = await this.#ask(call);
      return method === "read" && isNewer ? play(answer as readonly Entry[] | undefined) : answer;
    }, inner);
    const lines: { readonly level: string; readonly message: string; readonly run_id: unknown }[] = [];
    const line = (level: string) => (message: string, fields?: object) =>
      void lines.push({ level, message, run_id: fields && Reflect.get(fields, "run_id") });
    const logger: Logger = { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
    const runtime = new AgentRuntime({ clock: this.clock, logger, store: durable(store, durability) });
    const called: string[] = [];
    const ended: string[] = [];
    const agent: AgentFunction = async (input, { step, ask, receive, run }) => {
      const text = String(input[0]?.parts[0]?.content);
      called.push(text);
      try {
        if (text === "works")
          await step("work", () => new Promise((resolve) => this.clock.setTimeout(() => resolve(1), workMs)));
        else if (text === "asks") await ask("Well?");
        else if (text === "receives") return String(await receive("word"));
        else if (text.startsWith("runs ")) await run("helper", text.slice("runs ".length));
        return "done";
      } finally {
        ended.push(text);
      }
    };
    for (const name of names) runtime.register(name, { durable: true }, agent);
    this.#closing.push(async () => {
      isDead = true;
      await inner.close();
    });
    const kill = (): void => {
      isDead = true;
    };
    return { runtime, store: inner, lines, called, ended, kill };
  }

  async create(runtime: AgentRuntime, input: string, status: string): Promise<RunKey> {
    const { run_id } = await runtime.createRun({ agent_name: "agent", input, mode: "async" });
    await this.until(async () => (await runtime.getRun(run_id)).status === status);
    return { tenant: "", run_id };
  }

  /** A run that waits for a run to which a newer version has written this entry. No process lives any more. */
  async family(entry: object): Promise<{ readonly parent: RunKey; readonly child: string }> {
    const first = await this.start(true);
    const parent = await this.create(first.runtime, "runs asks", "awaiting");
    const [child = ""] = (await first.runtime.details(parent.run_id)).children;
    for (const run_id of [child, parent.run_id])
      await this.until(async () => (await found(first.store, { tenant: "", run_id })).head.owner === null);
    await write(first.store, { tenant: "", run_id: child }, entry);
    first.kill();
    return { parent, child };
  }

  async #ask<Answer>(call: () => Answer): Promise<Awaited<Answer>> {
    const asked = Promise.resolve(call());
    this.#asked.add(asked);
    try {
      return await asked;
    } finally {
      this.#asked.delete(asked);
    }
  }

  /**
   * Lets time pass until something holds. It does not pass while a store has not answered: on a busy machine it would be ahead of a
   * server, so that no renewal of a lease was answered in its time.
   */
  async until(holds: () => Promise<boolean> | boolean): Promise<void> {
    while (!(await holds())) {
      await Promise.allSettled(this.#asked);
      await this.clock.advance(50);
    }
  }

  /** Lets so much time pass, as {@link until} does. */
  async pass(ms: number): Promise<void> {
    const end = this.clock.now() + ms;
    await this.until(() => this.clock.now() >= end);
  }

  async close(): Promise<void> {
    for (const close of this.#closing) await close();
  }
}

async function found(store: Store, key: RunKey): Promise<StoredRun> {
  const run = await store.find(key);
  if (run === undefined) throw new Error(`There is no run ${key.run_id}.`);
  return run;
}

/** Writes an entry as its owner would, or as a waiting run's next owner. */
async function write(store: Store, key: RunKey, entry: object): Promise<void> {
  const { head, position } = await found(store, key);
  const conflict = await store.append(key, { epoch: head.epoch, position }, { entries: [entry as Entry], head });
  expect(conflict).toBeUndefined();
}

async function codeOf(call: Promise<unknown>): Promise<string | undefined> {
  return call.then(
    () => undefined,
    (error: unknown) => (CadenzaError.is(error) ? `${error.code} ${error.run_id}` : String(error)),
  );
}

/** What must stay as it is while a run is left alone. */
function essence({ epoch, status, takeovers, owner }: RunHead) {
  return { epoch, status, takeovers, owner };
}

/** What a newer version may write. */
export const newerEntries: readonly { readonly name: string; readonly entry: object }[] = [
  { name: "an entry of a kind that is not known", entry: later },
  { name: "an entry of a newer format", entry: laterFormat },
  { name: "an emission of a kind that is not known", entry: laterEmission },
];

/** The cases of one store. `withStore` gives a test data of its own. */
export function newerLogCases(
  withStore: (act: (open: Open) => Promise<void>) => Promise<void>,
  newer = newerEntries,
): void {
  const inWorld = (act: (world: World) => Promise<void>) => () =>
    withStore(async (open) => {
      const world = new World(open);
      try {
        await act(world);
      } finally {
        await world.close();
      }
    });

  it(
    "each log says the format that wrote it",
    inWorld(async (world) => {
      const { runtime, store } = await world.start();
      const { created } = await found(store, await world.create(runtime, "", "completed"));
      expect(created).toMatchObject({ format: expect.any(Number) });
    }),
  );

  describe.each(newer)("a run with $name", ({ entry }) => {
    it(
      "that a process takes over is left alone, until a newer process takes it",
      inWorld(async (world) => {
        const first = await world.start(true);
        const key = await world.create(first.runtime, "works", "in-progress");
        await write(first.store, key, entry);
        first.kill();

        const old = await world.start();
        const stats = async () => (await old.runtime.stats()).blocked;
        await world.until(async () => (await stats()).length === 1);
        expect(await stats()).toMatchObject([{ run_id: key.run_id, newer: true, position: expect.any(Number) }]);
        const before = await found(old.store, key);
        expect(before.head).toMatchObject({ status: "in-progress", owner: null, takeovers: 1 });
        await world.clock.advance(30_000);
        expect(essence((await found(old.store, key)).head)).toEqual(essence(before.head));
        expect(old.called).not.toContain("works");
        expect(old.lines.filter(({ run_id }) => run_id === key.run_id)).toMatchObject([
          { level: "warn", message: expect.stringContaining("newer version of cadenza") },
        ]);
        // Other runs go on.
        await world.create(old.runtime, "", "completed");

        const newer = await world.start(true, 1);
        await world.until(async () => (await newer.runtime.getRun(key.run_id)).status === "completed");
        expect(await stats()).toEqual([]);
      }),
    );

    it(
      "cannot be read, answered, cancelled or forked, and hides no other",
      inWorld(async (world) => {
        const first = await world.start(true);
        const key = await world.create(first.runtime, "asks", "awaiting");
        const { run_id } = key;
        await write(first.store, key, entry);
        await world.until(async () => (await found(first.store, key)).head.owner === null);
        first.kill();

        const { runtime, store, called } = await world.start();
        const other = await world.create(runtime, "asks", "awaiting");
        const before = await found(store, key);
        const refused = `newer_format ${run_id}`;
        expect(await codeOf(runtime.getRun(run_id))).toBe(refused);
        expect(await codeOf(runtime.transcript(run_id))).toBe(refused);
        expect(await codeOf(drain(runtime.events(run_id, { until: "now" })))).toBe(refused);
        expect(await codeOf(runtime.resume({ run_id, await_resume: { answer: "yes" } }))).toBe(refused);
        expect(await codeOf(runtime.cancel(run_id))).toBe(refused);
        expect(await codeOf(runtime.fork(run_id))).toBe(refused);
        expect(await codeOf(record(store, run_id))).toBe(refused);
        const admin = createAdmin({ store });
        expect(await codeOf(admin.timeline(run_id))).toBe(refused);
        expect(await found(store, key)).toEqual(before);
        expect(called).toEqual(["asks"]);

        expect((await runtime.listRuns()).map((run) => run.run_id)).toEqual([other.run_id]);
        expect((await admin.questions()).items.map((item) => item.run_id)).toEqual([other.run_id]);
        expect((await admin.runs()).items.map((item) => item.run_id).toSorted()).toEqual(
          [other.run_id, run_id].toSorted(),
        );

        const newer = await world.start(true, 1);
        await newer.runtime.resume({ run_id, await_resume: { answer: "yes" } });
        await world.until(async () => (await newer.runtime.getRun(run_id)).status === "completed");
      }),
    );

    it(
      "keeps a message that is sent to it for a process that can read it",
      inWorld(async (world) => {
        const first = await world.start(true);
        const key = await world.create(first.runtime, "receives", "in-progress");
        const { run_id } = key;
        await write(first.store, key, entry);
        await world.until(async () => (await found(first.store, key)).head.owner === null);
        first.kill();

        const old = await world.start();
        await old.runtime.send({ to: run_id, name: "word", data: "hello" });
        await world.until(async () => (await old.runtime.stats()).blocked.length === 1);
        expect(old.called).toEqual([]);

        const newer = await world.start(true, 1);
        await world.until(async () => (await newer.runtime.getRun(run_id)).status === "completed");
        expect((await newer.runtime.getRun(run_id)).output[0]?.parts[0]?.content).toBe("hello");
      }),
    );

    it(
      "that a newer process writes to while it is executed here is given up, and does not fail",
      inWorld(async (world) => {
        const old = await world.start();
        const key = await world.create(old.runtime, "works", "in-progress");
        await old.store.post(key, { entries: [entry as Entry] });
        await world.until(async () => (await old.runtime.stats()).blocked.length === 1);
        const { head } = await found(old.store, key);
        expect(head).toMatchObject({ status: "in-progress", owner: null, takeovers: 0 });

        const newer = await world.start(true, 1);
        await world.until(async () => (await newer.runtime.getRun(key.run_id)).status === "completed");
      }),
    );

    it(
      "that another run waits for is not failed by it, and neither is its parent",
      inWorld(async (world) => {
        const { parent, child } = await world.family(entry);
        const old = await world.start();
        expect(await codeOf(old.runtime.resume({ run_id: parent.run_id, await_resume: { answer: "yes" } }))).toBe(
          `newer_format ${child}`,
        );
        expect((await old.runtime.getRun(parent.run_id)).status).toBe("awaiting");
        expect(old.called).not.toContain("asks");

        await world.clock.advance(BETWEEN_SCANS_MS);
        const newer = await world.start(true, 1);
        await newer.runtime.resume({ run_id: parent.run_id, await_resume: { answer: "yes" } });
        await world.until(async () => (await newer.runtime.getRun(parent.run_id)).status === "completed");
      }),
    );

    it(
      "that another run waits for is left to a process that can read it, and so is its parent",
      inWorld(async (world) => {
        const { parent, child } = await world.family(entry);
        const old = await world.start(false, 1, ["agent"]);
        const helper = await world.start(true, 1, ["helper"]);
        await helper.runtime.resume({ run_id: child, await_resume: { answer: "yes" } });
        // Its end has made the parent due. The only process with its code cannot read that.
        await world.until(() => old.lines.some(({ level, run_id }) => level === "warn" && run_id === child));
        // It gives the parent back, and takes it again after a second and after two.
        for (let times = 0; times < 4; times++) {
          await world.until(async () => (await found(old.store, parent)).head.owner === null);
          await world.pass(1_000);
        }
        expect(old.ended).toEqual([]);

        await world.clock.advance(BETWEEN_SCANS_MS);
        const newer = await world.start(true, 1);
        await world.until(async () => (await newer.runtime.getRun(parent.run_id)).status === "completed");
      }),
    );

    it(
      "that another run waits for does not keep the end of that run from a process that can read it",
      inWorld(async (world) => {
        const { parent, child } = await world.family(entry);
        const old = await world.start();
        expect((await old.runtime.cancel(parent.run_id)).status).toBe("cancelling");
        await world.until(async () => (await found(old.store, parent)).head.owner === null);

        await world.clock.advance(BETWEEN_SCANS_MS);
        const newer = await world.start(true, 1);
        for (const run_id of [parent.run_id, child])
          await world.until(async () => (await newer.runtime.getRun(run_id)).status === "cancelled");
      }),
    );

    it(
      "that is executed beside its parent leaves with it",
      inWorld(async (world) => {
        const old = await world.start(false, 1_000_000);
        const parent = await world.create(old.runtime, "runs works", "in-progress");
        await world.until(() => old.called.includes("works"));
        const [child = ""] = (await old.runtime.details(parent.run_id)).children;
        await old.store.post({ tenant: "", run_id: child }, { entries: [entry as Entry] });
        await world.until(async () => (await found(old.store, parent)).head.owner === null);

        await world.clock.advance(BETWEEN_SCANS_MS);
        const newer = await world.start(true, 1);
        await world.until(async () => (await newer.runtime.getRun(parent.run_id)).status === "completed");
      }),
    );
  });
}
