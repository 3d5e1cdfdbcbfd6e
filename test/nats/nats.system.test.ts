import type { ChildProcess } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { join } from "node:path";
import { setTimeout as after } from "node:timers/promises";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { connect } from "@nats-io/transport-node";
import { AgentRuntime } from "cadenza";
import { natsWaker } from "cadenza/nats";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ignore } from "../harness/internals.ts";
import { temporaryFolder } from "../harness/sqlite-files.ts";
import { hookedStore } from "../harness/store-proxy.ts";
import { openFile } from "../harness/world/replicas.ts";

/* The waker on a NATS server of the machine. */

const MESSAGES = 20;
const HOUR_MS = 3_600_000;
const isThere = spawnSync("nats-server", ["--version"]).status === 0;
const folder = temporaryFolder();
let server: ChildProcess | undefined;
let port = 0;

beforeAll(async () => {
  if (!isThere) return;
  const started = spawn("nats-server", ["-js", "-sd", join(folder.path, "nats"), "-a", "127.0.0.1", "-p", "-1"]);
  server = started;
  let said = "";
  for await (const text of started.stderr) {
    said += String(text);
    port = Number(/client connections on 127\.0\.0\.1:(\d+)/.exec(said)?.[1] ?? port);
    if (said.includes("Server is ready")) break;
  }
});

afterAll(() => {
  server?.kill();
  folder.remove();
});

interface Process {
  readonly runtime: AgentRuntime;
  readonly connection: NatsConnection;
  die(): Promise<void>;
}

/** A process on the file and the server. */
async function start(work: boolean, began: (name: string) => void, finished: (name: string) => void): Promise<Process> {
  const connection = await connect({ port });
  let isDead = false;
  const hooked: Store = hookedStore(
    (call) => (isDead ? new Promise(() => undefined) : call()),
    openFile(join(folder.path, "runs.db")),
  );
  const waker = natsWaker({ jetstream: jetstream(connection) });
  const store = durable(hooked, { leaseMs: 2_000, heartbeatMs: 500, waker });
  const runtime = new AgentRuntime(work ? { store } : { store, work: false });
  if (!work) runtime.declare({ name: "work", durable: true }, { name: "talk", durable: true });
  else {
    runtime.register("talk", { durable: true }, async (_input, { receive }) => {
      for (let n = 0; n < MESSAGES; n++) await receive("news", { timeoutMs: HOUR_MS, default: "none" });
      return "Done.";
    });
    runtime.register("work", { durable: true }, async (input, { step, sleep }) => {
      const name = input[0]?.parts[0]?.content;
      for (const part of ["first", "second", "third"])
        await step(part, async () => {
          began(`${name}/${part}`);
          await after(300);
          if (!isDead) finished(`${name}/${part}`);
        });
      await sleep(500);
      return "Done.";
    });
  }
  const die = async (): Promise<void> => {
    isDead = true;
    await connection.close();
  };
  return { runtime, connection, die };
}

it.skipIf(!isThere)(
  "the runs of a worker that is killed go on at the others, woken by NATS (needs nats-server)",
  { timeout: 40_000 },
  async () => {
    const finished = new Set<string>();
    const twice: string[] = [];
    let laterBeganAt = Number.POSITIVE_INFINITY;
    const began = (name: string): void => {
      if (name === "later/first") laterBeganAt = Math.min(laterBeganAt, Date.now());
      if (finished.has(name)) twice.push(name);
    };
    const open = (work: boolean) => start(work, began, (name) => finished.add(name));
    const [web, first, ...others] = await Promise.all([open(false), open(true), open(true), open(true)]);
    const manager = await jetstreamManager(web.connection);
    const created = Array.from({ length: 12 }, (_, n) =>
      web.runtime.createRun({ agent_name: "work", input: `${n}`, mode: "sync" }),
    );
    // Its wake-up comes too early, and is given back until then.
    const startAt = new Date(Date.now() + 2_500);
    created.push(web.runtime.createRun({ agent_name: "work", input: "later", mode: "sync" }, { startAt }));
    await after(500);
    await first.die();
    const killedAt = Date.now();
    const runs = await Promise.all(created);
    expect(runs.map(({ status }) => status)).toEqual(created.map(() => "completed"));
    expect(Date.now() - killedAt).toBeLessThan(12_000);
    expect(twice).toEqual([]);
    // No scan comes so soon.
    expect(laterBeganAt - startAt.getTime()).toBeLessThan(3_000);
    // Each wake-up was used up.
    await expect.poll(async () => (await manager.streams.info("cadenza")).state.messages, { timeout: 15_000 }).toBe(0);
    for (const { runtime, connection } of [web, ...others]) {
      await runtime.close();
      await connection.close();
    }
  },
);

it.skipIf(!isThere)(
  "a run that gets many messages before a far deadline leaves at most one wake-up (needs nats-server)",
  { timeout: 40_000 },
  async () => {
    const open = (work: boolean) => start(work, ignore, ignore);
    const all = await Promise.all([open(false), open(true), open(true)]);
    const [web] = all;
    const manager = await jetstreamManager(web.connection);
    const messages = async () => (await manager.streams.info("cadenza")).state.messages;
    const { run_id } = await web.runtime.createRun({ agent_name: "talk", input: "", mode: "async" });
    for (let n = 1; n < MESSAGES; n++) {
      await web.runtime.send({ to: run_id, name: "news", data: n });
      await after(100);
      expect(await messages()).toBeLessThanOrEqual(1);
    }
    await web.runtime.send({ to: run_id, name: "news", data: MESSAGES });
    await expect.poll(async () => (await web.runtime.getRun(run_id)).status, { timeout: 15_000 }).toBe("completed");
    await expect.poll(messages, { timeout: 15_000 }).toBe(0);
    for (const { runtime, connection } of all) {
      await runtime.close();
      await connection.close();
    }
  },
);
