/*
 * A worker whose agents execute steps beside waits of all kinds, and that drains on SIGTERM. It reports each body of a step.
 * Its one parameter holds its settings.
 */
import type { AgentContext, StepScope } from "cadenza";
import { AgentError, AgentRuntime } from "cadenza";
import { openPlace } from "../crash/place.ts";
import { textOf } from "../program-player.ts";
import { Random } from "../random.ts";
import type { BesideReport, BesideSettings, BodyReport } from "./beside-messages.ts";
import { durability, MAX, STEPS } from "./beside-messages.ts";

const { name, place, drainMs, longestMs } = JSON.parse(process.argv[2] ?? "") as BesideSettings;
const now = (): number => Number(process.hrtime.bigint()) / 1e6;
let signalledAt = Number.POSITIVE_INFINITY;
let tokens = 0;
const runtime = new AgentRuntime({
  store: await openPlace(place, { durability }),
  ids: { uuid: () => crypto.randomUUID(), token: () => `${name}/${tokens++}` },
  logger: {
    debug: () => undefined,
    info: () => undefined,
    warn: (message, fields) => say({ is: "said", message: withError(message, fields) }),
    error: (message, fields) => say({ is: "said", message: withError(message, fields) }),
  },
});

/** Something that goes on beside a step. `left`: what the agent waits for at its end. */
type Wait = (context: AgentContext, n: number, signal: AbortSignal, left: Promise<unknown>[]) => Promise<unknown>;

/** An aborted wait ends with the reason of its signal. */
const waits: readonly Wait[] = [
  async () => undefined,
  ({ ask }, n, signal) => ask("Well?", { name: `ask ${n}`, signal }),
  ({ ask }, n, signal) => ask("Too late?", { name: `late ${n}`, timeoutMs: 150, default: { late: true }, signal }),
  ({ sleep }, _n, signal) => sleep(longestMs / 2, { signal }),
  ({ sleep }, _n, signal) => sleep(2 * longestMs, { signal }),
  ({ receive }, _n, signal) => receive("news", { timeoutMs: longestMs, default: 0, signal }),
  ({ run }, n) => run("child", `${n}`),
  ({ run }, n, _signal, left) => {
    const both = [run("child", `${n} one`), run("child", `${n} two`)];
    left.push(...both);
    return Promise.race(both);
  },
];

runtime.register("child", { durable: true }, async (input, context) => {
  const random = new Random(`${textOf(input)} ${context.run_id}`);
  const wait = random.pick(waits.slice(0, 6));
  const { signal } = new AbortController();
  await Promise.all([
    context.step("work", (step) => work(context.run_id, "child", step)),
    wait(context, 0, signal, []),
  ]);
});
runtime.register("beside", { durable: true, concurrency: { max: MAX } }, async function* (input, context) {
  const random = new Random(textOf(input));
  const left: Promise<unknown>[] = [];
  for (let n = 0; n < STEPS; n++) {
    const controller = new AbortController();
    const step = context.step(`work ${n}`, (scope) => work(context.run_id, "beside", scope));
    const wait = random
      .pick(waits)(context, n, controller.signal, left)
      .catch((error: unknown) => {
        if (error !== controller.signal.reason) throw error;
      });
    left.push(step, wait);
    if (random.chance(0.5)) await Promise.all([step, wait]);
    else await Promise.race([step, wait]);
    if (random.chance(0.5)) controller.abort(new AgentError("over", "It is not needed any more."));
    yield `${n}`;
  }
  await Promise.all(left);
});
// A runtime that has no work keeps no process open.
const alive = setInterval(() => undefined, 60_000);
process.once("SIGTERM", async () => {
  signalledAt = now();
  await runtime.close({ drainMs });
  clearInterval(alive);
  process.disconnect();
});
say({ is: "ready" });

/** The body of a step. */
async function work(run_id: string, agent: BodyReport["agent"], { key, attempt, signal }: StepScope): Promise<void> {
  const lasts = 1 + new Random(`${run_id} ${key}`).below(longestMs);
  const body = { run_id, agent, key, attempt };
  say({ is: "began", ...body, at: now() });
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, lasts);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
  const at = now();
  if (signal.aborted) say({ is: "stopped", ...body, at, afterMs: at - signalledAt });
  else say({ is: "done", ...body, at });
}

/** What is logged, with the error and its cause. */
function withError(message: string, fields: { readonly error?: unknown } = {}): string {
  const { error } = fields;
  if (!(error instanceof Error)) return message;
  return `${message} ${error}${error.cause === undefined ? "" : `: ${error.cause}`}`;
}

function say(report: BesideReport): void {
  if (process.connected) process.send?.(report);
}
