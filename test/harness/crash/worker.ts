/*
 * A process that runs random programs on a file or a server, and may be killed at any moment. It exchanges orders and reports with
 * its parent. Its one parameter holds its settings.
 */

import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { RunWrite, Store } from "cadenza/store";
import { isPromise } from "../internals.ts";
import { CHILD, inputOf } from "../program.ts";
import { KILLED, programNamed } from "../program-maker.ts";
import { agentOf } from "../program-player.ts";
import { Random } from "../random.ts";
import { forgetful, hookedStore } from "../store-proxy.ts";
import type { BodyReport, Order, Receiving, Report, WorkerSettings, WrongClock } from "./messages.ts";
import { machineTime } from "./messages.ts";
import { openPlace } from "./place.ts";

/** By how much a wrong clock is off at most, and how long it shows the same error, which is longer than a write takes. In milliseconds. */
const WRONG_MS = 3_600_000;
const SAME_MS = 4_000;

/**
 * No run fails as a crash loop here: it is the trial that kills its process, and may do so again and again before a long log
 * is replayed, or while one step of it is at work.
 */
const MAX_TAKEOVERS = 1_000;

const settings = JSON.parse(process.argv[2] ?? "") as WorkerSettings;
const machineNow = Date.now;
const { wrongClock } = settings;
if (wrongClock !== undefined) Date.now = () => wrongNow(wrongClock, machineNow());
const { synchronous, leaseMs, heartbeatMs, scanMs, evictAfterMs, replays = false } = settings;
const durability = { leaseMs, heartbeatMs, scanMs, evictAfterMs, maxTakeovers: MAX_TAKEOVERS, alwaysReplay: replays };
const opened = await openPlace(settings.place, {
  synchronous,
  durability,
  onLate: (method, ms) => say({ is: "late", method, ms: Math.round(ms) }),
});
const store = hookedStore(
  (call, method, parameters) => {
    const answer = call();
    if (method !== "append" && method !== "create") return answer;
    return isPromise(answer)
      ? answer.then((conflict) => noteStored(parameters, conflict))
      : noteStored(parameters, answer);
  },
  replays ? forgetful(opened) : opened,
);
let tokens = 0;
const { work = true } = settings;
const runtime = new AgentRuntime({
  store,
  ...(!work && { work }),
  exposeErrors: true,
  retention: { maxRuns: Number.POSITIVE_INFINITY },
  ids: { uuid: () => crypto.randomUUID(), token: () => `${settings.name}/${tokens++}` },
  logger: {
    debug: () => undefined,
    info: () => undefined,
    warn: () => undefined,
    error: (message, fields) => say({ is: "said", message, error: wordsOf(fields) }),
  },
});

runtime.on("run.blocked", ({ expected, asked }, { run_id }) => say({ is: "blocked", run_id, expected, asked }));
const agent = agentOf({
  async work({ run_id, key, attempt, ms }) {
    const body = { run_id, key, attempt, ...(await placeOf(run_id)) } as const;
    say({ is: "began", ...body, at: machineTime() });
    if (ms > 0) await pause(ms);
    say({ is: "ended", ...body, at: machineTime() });
  },
  pause,
  got: ({ run_id, key }) => say({ is: "got", run_id, key, at: machineTime() }),
});
for (const name of ["program", CHILD]) {
  if (work) runtime.register(name, { durable: true, version: "1" }, agent);
  else runtime.declare({ name, durable: true, version: "1" });
}

process.on("message", (order: Order) => {
  carryOut(order).catch((error: unknown) => {
    const code = CadenzaError.is(error) ? error.code : "";
    say({ is: "refused", order, code, message: wordsOf(error) });
  });
});
say({ is: "ready" });

async function carryOut(order: Order): Promise<void> {
  switch (order.do) {
    case "create": {
      const { name, session_id, stream } = order;
      const request = { agent_name: "program", input: inputOf(programNamed(name, KILLED)), session_id };
      const options = { idempotencyKey: name };
      if (stream) {
        for await (const event of runtime.createRun({ ...request, mode: "stream" }, options)) {
          if (event.type === "run.created") say({ is: "created", name, run_id: event.run.run_id });
          // The driver sends a follow order for the run.
          break;
        }
        return;
      }
      const { run_id } = await runtime.createRun({ ...request, mode: "async" }, options);
      return say({ is: "created", name, run_id });
    }
    case "answer": {
      const { run_id, await_id, reply } = order;
      await runtime.resume({ run_id, await_id, ...reply, mode: "async" });
      return say({ is: "answered", run_id, await_id });
    }
    case "look":
      return say({ is: "receives", run_id: order.run_id, receives: await receivesOf(order.run_id) });
    case "send": {
      const { run_id, mail } = order;
      const { name, data, idempotencyKey } = mail;
      await runtime.send({ to: run_id, name, data }, { idempotencyKey });
      return say({ is: "sent", run_id, mail });
    }
    case "cancel":
      await runtime.cancel(order.run_id);
      return say({ is: "cancelled", run_id: order.run_id });
    case "follow":
      for await (const event of runtime.events(order.run_id, { after: order.after, until: "end" }))
        say({ is: "event", run_id: order.run_id, event });
      return;
    case "close": {
      const { left } = await runtime.close({ drainMs: 20 });
      say({ is: "closed", left: left.length });
      process.disconnect();
    }
  }
}

/** The receives of a run and its sub-runs that wait for a message. */
async function receivesOf(run_id: string): Promise<Receiving[]> {
  const { waits_for, children } = await runtime.details(run_id);
  const own = waits_for.filter((key) => key.startsWith("receive:")).map((key) => ({ run_id, key }));
  return [...own, ...(await Promise.all(children.map(receivesOf))).flat()];
}

/** Who owns a run, and how long its log is. */
async function placeOf(run_id: string): Promise<Pick<BodyReport, "owner" | "position">> {
  const unknown = { owner: undefined, position: undefined };
  const answer = store.find({ tenant: "", run_id });
  // A file answers at once, so that nothing happens before the body begins. A server may fail, which proves nothing.
  const found = isPromise(answer) ? await answer.catch(() => unknown) : answer;
  if (found === undefined) throw new Error("a step of a run began that is not in the store");
  if (!("head" in found)) return found;
  const { head, position } = found;
  // The run may have ended before the answer came.
  return isPromise(answer) && head.finished_at !== null ? unknown : { owner: head.owner, position };
}

/** Tells when a write was carried out, and gives its answer. */
function noteStored(parameters: readonly unknown[], conflict: unknown): unknown {
  const [{ run_id }, expected, write] = parameters as Parameters<Store["append"]>;
  // The second parameter of `create` is the write.
  const isNew = "entries" in expected;
  const { entries } = (isNew ? expected : write) as RunWrite;
  const from = isNew ? 0 : expected.position;
  if (conflict === undefined) say({ is: "stored", run_id, from, count: entries.length, at: storedAt() });
  return conflict;
}

/** When the store has taken an entry, at the latest, by its own clock. A file has the clock of its processes. */
function storedAt(): number {
  const now = machineNow();
  if (wrongClock === undefined || !("file" in settings.place)) return now;
  // What is on its way when the clock is set has its time from before.
  return Math.max(wrongNow(wrongClock, now), wrongNow(wrongClock, now - (now % SAME_MS) - 1));
}

/**
 * What a wrong clock shows. It is set anew every few seconds: the time of the machine and a seed say by how much it is wrong,
 * so that processes with one seed have the same clock. In the end it is as far ahead as it ever was, and all waits end.
 */
function wrongNow({ seed, until }: WrongClock, now: number): number {
  if (now >= until) return now + WRONG_MS;
  return now + new Random(`${seed} ${Math.floor(now / SAME_MS)}`).below(2 * WRONG_MS) - WRONG_MS;
}

function say(report: Report): void {
  // Without a parent there is no reader of the report.
  if (process.connected) process.send?.(report);
}

function wordsOf(error: unknown): string {
  if (typeof error === "object" && error !== null && "error" in error) return wordsOf(error.error);
  if (!(error instanceof Error)) return String(error);
  return `${error.stack ?? error.message}${error.cause === undefined ? "" : `, because of ${wordsOf(error.cause)}`}`;
}
