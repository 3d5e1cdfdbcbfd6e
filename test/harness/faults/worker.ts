/*
 * A process that executes plans on the store, and may be killed, frozen or told to close at any moment. It uses the
 * library as an application would: create, resume, cancel, events. Its one parameter holds its settings.
 */
import { performance } from "node:perf_hooks";
import type { Clock, Logger } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import { durable } from "cadenza/durable";
import { SqliteStore } from "cadenza/sqlite";
import { systemClock } from "../../../src/runtime/system.ts";
import { drivers } from "../sqlite-files.ts";
import { unreliableStore } from "../unreliable-store.ts";
import type { Outside } from "./agents.ts";
import { agentOf } from "./agents.ts";
import type { Order, Report, WorkerSettings } from "./messages.ts";
import { Witness } from "./witness.ts";

const settings = JSON.parse(process.argv[2] ?? "") as WorkerSettings;
const { name, file, driver, synchronous, leaseMs, heartbeatMs, scanMs, evictAfterMs, drainMs } = settings;
/** How often it checks whether its event loop was blocked. */
const PULSE_MS = 50;

const witness = new Witness(settings.witness, name);
const database = drivers.find((each) => each.name === driver)?.open(file);
if (database === undefined) throw new Error(`There is no driver ${driver} here.`);
const store = unreliableStore(new SqliteStore(database, { synchronous, closeDatabase: true }), {
  ...settings,
  onSwallowed(method, how) {
    witness.note({ is: "swallowed", method, how });
    say({ is: "swallowed", how });
  },
});

let lookedAt = 0;
let begunSince = 0;
/** The machine's clock. It notes when the runtime reads it. */
const clock: Clock = new Proxy(systemClock, {
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
  const ms = Math.round(now - beat - PULSE_MS);
  if (ms > 4 * PULSE_MS) witness.note({ is: "stalled", ms });
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
    (run_id) => say({ is: "done", id: order.id, run_id }),
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
async function carryOut(order: Order): Promise<string> {
  switch (order.do) {
    case "create": {
      const { agent: agent_name, input, session_id, key, mode } = order;
      const options = key === null ? {} : { idempotencyKey: key };
      if (mode !== "stream") return (await runtime.createRun({ agent_name, input, session_id, mode }, options)).run_id;
      for await (const event of runtime.createRun({ agent_name, input, session_id, mode }, options))
        if (event.type === "run.created") return event.run.run_id;
      throw new Error("The stream ended before it began.");
    }
    case "answer": {
      const { run_id, await_id, answer: await_resume, key, mode } = order;
      const options = key === null ? {} : { idempotencyKey: key };
      if (mode === "stream") {
        const events = runtime.resume({ run_id, await_id, await_resume, mode }, options);
        await events.next();
        await events.return?.();
      } else await runtime.resume({ run_id, await_id, await_resume, mode }, options);
      return run_id;
    }
    case "cancel":
      return (await runtime.cancel(order.run_id)).run_id;
    case "follow": {
      const { run_id, after } = order;
      for await (const event of runtime.events(run_id, { after, until: "end" })) say({ is: "event", run_id, event });
      return run_id;
    }
  }
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
