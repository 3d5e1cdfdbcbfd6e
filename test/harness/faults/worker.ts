/*
 * A process that executes plans on the store, and may be killed, frozen or told to close at any moment. It uses the
 * library as an application would: create, resume, cancel, events. Its one parameter holds its settings.
 */

import { performance } from "node:perf_hooks";
import type { Clock, Logger } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { durable } from "cadenza/store";
import { machineClock, silentLogger } from "../internals.ts";
import { drivers } from "../sqlite-files.ts";
import { hookedStore, isRead } from "../store-proxy.ts";
import { unreliableStore } from "../unreliable-store.ts";
import type { Outside } from "./agents.ts";
import { agentOf } from "./agents.ts";
import type { Order, Report, Waiting, WorkerSettings } from "./messages.ts";
import { Witness } from "./witness.ts";

const settings = JSON.parse(process.argv[2] ?? "") as WorkerSettings;
const { name, file, driver, synchronous, leaseMs, heartbeatMs, scanMs, evictAfterMs, drainMs } = settings;
/** How often it checks whether its event loop was blocked. */
const PULSE_MS = 50;
/** A loop that was blocked for longer, and a write that took longer, is noted: the lease may have expired meanwhile. */
const STALL_MS = 200;

const witness = new Witness(settings.witness, name);
const database = drivers.find((each) => each.name === driver)?.open(file);
if (database === undefined) throw new Error(`There is no driver ${driver} here.`);
const sqlite = new SqliteStore(database, { synchronous, closeDatabase: true });
/** A write waits for the lock of the file, which a frozen process may hold. */
const timed = hookedStore((call, method) => {
  const answer = call();
  if (isRead(method) || !(answer instanceof Promise)) return answer;
  const since = performance.now();
  return answer.finally(() => noteStall(performance.now() - since));
}, sqlite);
const store = unreliableStore(timed, {
  ...settings,
  onSwallowed(method, how) {
    witness.note({ is: "swallowed", method, how });
    say({ is: "swallowed", how });
  },
});

let lookedAt = 0;
let begunSince = 0;
/** The machine's clock. It notes when the runtime reads it. */
const clock: Clock = new Proxy(machineClock(silentLogger), {
  get(target, member) {
    const value: unknown = Reflect.get(target, member, target);
    if (member === "setTimeout" || member === "turn" || member === "hold" || typeof value !== "function") return value;
    return () => {
      lookedAt = performance.now();
      begunSince = 0;
      return Reflect.apply(value, target, []) as unknown;
    };
  },
});
let names = 0;
const outside: Outside = {
  note: (noted) => witness.note(noted),
  name: () => `${name}/${++names}`,
  look: () => ({ lookedMs: Math.round(performance.now() - lookedAt), begunSince: begunSince++ }),
};
const logger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: (message, fields) => say({ is: "said", level: "warn", message, error: wordsOf(fields) }),
  error: (message, fields) => say({ is: "said", level: "error", message, error: wordsOf(fields) }),
};
const runtime = new AgentRuntime({
  // No run crashes its process here, so none may fail as a crash loop.
  store: durable(store, { leaseMs, heartbeatMs, scanMs, evictAfterMs, maxTakeovers: 1_000 }),
  clock,
  logger,
  exposeErrors: true,
  retention: { maxRuns: Number.POSITIVE_INFINITY },
  ids: { uuid: () => crypto.randomUUID(), token: () => `${name}/${crypto.randomUUID()}` },
});
runtime.register("durable", { durable: true, version: "1" }, agentOf(outside, true));
runtime.register("plain", agentOf(outside, false));
runtime.register("rolling", { durable: true, version: "1" }, agentOf(outside, true));
if (settings.isNew) runtime.register("rolling", { durable: true, version: "2" }, agentOf(outside, true));

let beat = performance.now();
setInterval(() => {
  const now = performance.now();
  noteStall(now - beat - PULSE_MS);
  beat = now;
}, PULSE_MS);

process.once("SIGTERM", () => {
  witness.note({ is: "closing" });
  runtime.close({ drainMs }).then(
    () => process.exit(0),
    (error: unknown) => {
      say({ is: "said", level: "error", message: "It could not be closed.", error: wordsOf(error) });
      process.exit(1);
    },
  );
});
process.on("message", (order: Order) => {
  carryOut(order).then(
    (done) => say({ is: "done", id: order.id, ...done }),
    (error: unknown) => {
      const code = CadenzaError.is(error) ? error.code : "";
      say({ is: "refused", id: order.id, code, message: wordsOf(error) });
    },
  );
});
// The process exits when its harness is gone.
process.once("disconnect", () => process.exit());
say({ is: "ready" });

/** Resolves when the order has been acknowledged by the library, with the run. */
async function carryOut(order: Order): Promise<{ readonly run_id: string; readonly waiting?: Waiting }> {
  switch (order.do) {
    case "create": {
      const { agent: agent_name, input, session_id, key, mode, startAt, label } = order;
      const options = {
        labels: { run: label },
        ...(key !== null && { idempotencyKey: key }),
        ...(startAt !== null && { startAt }),
      };
      if (mode !== "stream") {
        const { run_id } = await runtime.createRun({ agent_name, input, session_id, mode }, options);
        return { run_id };
      }
      for await (const event of runtime.createRun({ agent_name, input, session_id, mode }, options))
        if (event.type === "run.created") return { run_id: event.run.run_id };
      throw new Error("The stream ended before it began.");
    }
    case "answer": {
      const { to, reply, key, mode } = order;
      const options = key === null ? {} : { idempotencyKey: key };
      if (mode === "stream") {
        const events = runtime.resume({ ...to, ...reply, mode }, options);
        await events.next();
        await events.return?.();
      } else await runtime.resume({ ...to, ...reply, mode }, options);
      return to;
    }
    case "send": {
      const { name, data, key } = order;
      const to = "label" in order.to ? { labels: { run: order.to.label } } : order.to.run_id;
      return runtime.send({ to, name, data }, key === null ? {} : { idempotencyKey: key });
    }
    case "look":
      return { run_id: order.run_id, waiting: await lookAt(order.run_id) };
    case "cancel": {
      const { run_id } = await runtime.cancel(order.run_id);
      return { run_id };
    }
    case "follow": {
      const { run_id, after } = order;
      for await (const event of runtime.events(run_id, { after, until: "end" })) say({ is: "event", run_id, event });
      return { run_id };
    }
  }
}

/** What a run and its sub-runs wait for. */
async function lookAt(run_id: string): Promise<Waiting> {
  const { await_requests, waits_for, children } = await runtime.details(run_id);
  const questions = await_requests.map(({ await_id, message, expires_at }) => {
    // A schema is a part of its own, after the question.
    return { run_id, await_id, text: message.parts[0]?.content ?? "", expires_at };
  });
  const receives = waits_for.filter((key) => key.startsWith("receive:")).map((key) => ({ run_id, key }));
  const below = await Promise.all(children.map(lookAt));
  return {
    questions: [...questions, ...below.flatMap((each) => each.questions)],
    receives: [...receives, ...below.flatMap((each) => each.receives)],
  };
}

function noteStall(ms: number): void {
  if (ms > STALL_MS) witness.note({ is: "stalled", ms: Math.round(ms) });
}

function say(report: Report): void {
  // A harness that is gone reads no report, which is no error here.
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}

function wordsOf(error: unknown): string {
  if (typeof error === "object" && error !== null && "error" in error) return wordsOf(error.error);
  if (!(error instanceof Error)) return JSON.stringify(error) ?? "";
  return `${error.stack ?? error.message}${error.cause === undefined ? "" : `, because of ${wordsOf(error.cause)}`}`;
}
