/*
 * A process of one version of the library. It executes runs, makes runs and sends messages as it is ordered, and answers all
 * questions that it finds. Its one parameter holds its settings. It uses what all versions of the library have.
 */
import { openSync, writeSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { Store } from "cadenza/store";
import { openPlace } from "../crash/place.ts";
import { registerAgents } from "./agents.ts";
import type { RolloutOrder, RolloutReport, RolloutSettings } from "./messages.ts";
import { answerTo, durability, wordFor } from "./messages.ts";

/** How often it looks for questions, and for how many. */
const LOOK_MS = 200;
const MOST = 40;

const { name, place, witness } = JSON.parse(process.argv[2] ?? "") as RolloutSettings;
const file = openSync(witness, "a");
const said = (level: "warn" | "error") => (message: string, fields: object | undefined) =>
  say({ is: "said", level, message: `${message} ${wordsOf(Reflect.get(fields ?? {}, "error"))}`.trim() });

process.once("disconnect", () => process.exit());
const store = await opened();
if (store !== undefined) work(store);

async function opened(): Promise<Store | undefined> {
  try {
    return await openPlace(place, { durability });
  } catch (error) {
    say({ is: "refused", code: CadenzaError.is(error) ? error.code : "", message: wordsOf(error) });
    process.exitCode = 1;
    process.disconnect();
    return undefined;
  }
}

function work(store: Store): void {
  const runtime = new AgentRuntime({
    store,
    logger: { debug: () => undefined, info: () => undefined, warn: said("warn"), error: said("error") },
  });
  registerAgents(runtime, (line) => {
    writeSync(file, `${JSON.stringify({ ...line, process: name, at: Date.now() })}\n`);
  });
  process.once("SIGTERM", () => {
    runtime.close({ drainMs: 2_000 }).then(
      () => process.exit(0),
      () => process.exit(1),
    );
  });
  // What fails is ordered again: by then the store may have passed on to a newer version.
  process.on("message", (order: RolloutOrder) => {
    carryOut(runtime, order).catch(() => undefined);
  });
  say({ is: "ready" });
  answerAll(runtime).catch((error) => said("error")("It answers no more.", { error }));
}

async function carryOut(runtime: AgentRuntime, order: RolloutOrder): Promise<void> {
  const { label } = order;
  const options = { idempotencyKey: label };
  let run_id: string;
  if (order.do === "create") {
    const input = JSON.stringify({ label, acts: order.acts });
    ({ run_id } = await runtime.createRun({ agent_name: "order", input, mode: "async" }, options));
  } else {
    ({ run_id } = order);
    await runtime.send({ to: run_id, name: "word", data: wordFor(label) }, options);
  }
  say({ is: "done", did: order.do, label, run_id });
}

async function answerAll(runtime: AgentRuntime): Promise<never> {
  for (;;) {
    await pause(LOOK_MS);
    const runs = await runtime.listRuns({ status: "awaiting", limit: MOST }).catch(() => []);
    await Promise.allSettled(runs.map(({ run_id }) => answer(runtime, run_id)));
  }
}

async function answer(runtime: AgentRuntime, run_id: string): Promise<void> {
  const { await_requests } = await runtime.details(run_id);
  for (const { await_id, message } of await_requests) {
    const answer = answerTo(message.parts[0]?.content ?? "");
    await runtime.resume({ run_id, await_id, await_resume: { answer }, mode: "async" }, { idempotencyKey: await_id });
  }
}

function say(report: RolloutReport): void {
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}

function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return "";
  const { message, cause } = error;
  return cause instanceof Error ? `${message} ${cause.message.split("\n")[0]}` : message;
}
