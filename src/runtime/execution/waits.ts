import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, isStopped, settledQuestion } from "../../core/state.ts";
import type { AskOptions, Question, SleepOptions } from "../agent/agent-waits.ts";
import type { AskInfo, AskPassage, Interceptors } from "../agent/interceptors.ts";
import { jsonSchemaOf } from "../agent/standard-schema.ts";
import type { AwaitYield } from "../agent/yields.ts";
import type { Ask, Asking } from "./ask.ts";
import { AskedQuestion, checkAskOptions, questionParts, withSchema, YieldedQuestion } from "./ask.ts";
import type { Execution } from "./execution.ts";
import type { Receiving } from "./receive.ts";
import { Receive } from "./receive.ts";
import { readUntil, Sleep } from "./sleep.ts";
import { Wait } from "./wait.ts";

/** How a question is asked, as far as interceptors are told. */
type Asked = Pick<Asking, "parts" | "name" | "kind">;

/** Asks the client. */
export function askClient(
  execution: Execution,
  question: Question,
  options: AskOptions<unknown, boolean> | undefined,
): Promise<unknown> {
  if (options !== undefined) checkAskOptions(options);
  const { schema, details = false, ...asking } = options ?? {};
  const key = execution.keyFor("ask");
  throwIfAborted(asking.signal);
  const parts = withSchema(questionParts(question), schema === undefined ? undefined : jsonSchemaOf(schema), key);
  const ask = new AskedQuestion(execution, key, { ...asking, parts, emitted: execution.emitted }, schema, details);
  perform(execution, ask, { parts, name: asking.name, kind: asking.kind });
  return ask.given;
}

/** Asks the client by an await request that the agent has yielded. */
export function askByYield(execution: Execution, { message, timeoutMs, default: fallback }: AwaitYield): void {
  const key = execution.keyFor("await");
  const asking = { parts: questionParts(message), timeoutMs, default: fallback, emitted: execution.emitted };
  perform(execution, new YieldedQuestion(execution, key, asking), asking);
}

/** Waits for a time. */
export function sleepFor(
  execution: Execution,
  duration: number | string | Date,
  { name, signal }: SleepOptions,
): Promise<unknown> {
  const until = readUntil("duration", duration, execution.clock.now());
  const key = execution.keyFor(name === undefined ? "sleep" : `sleep:${name}`);
  throwIfAborted(signal);
  const sleep = new Sleep(execution, key, until, signal);
  execution.begin(sleep);
  return sleep.given;
}

/** Waits for a message. */
export function receiveMessage(execution: Execution, name: string, options: Receiving): Promise<unknown> {
  const key = execution.keyFor(`receive:${name}`);
  throwIfAborted(options.signal);
  const receive = new Receive(execution, key, name, options);
  execution.begin(receive);
  return receive.given;
}

/** The clock was set, or the store has given the run to this process: the times to all deadlines may be others. */
export function measureAgain(execution: Execution): void {
  for (const key of execution.open) {
    const operation = execution.find(key);
    if (operation instanceof Wait) operation.measureAgain();
  }
}

function perform(execution: Execution, ask: Ask, asked: Asked): void {
  const { settings, isStopped, log } = execution;
  const { interceptors } = settings;
  // What the log has settled is not wrapped again.
  if (interceptors.ask !== undefined && !isStopped && settledQuestion(log.state, ask.key) === undefined)
    observe(interceptors.ask, execution, ask, asked);
  execution.begin(ask);
}

/** Tells the interceptors of a question. They observe it, and what they throw changes nothing. */
function observe(
  wrap: NonNullable<Interceptors["ask"]>,
  { log, logger }: Execution,
  ask: Ask,
  { parts, name, kind = "input" }: Asked,
): void {
  const { agent_name } = createdEntry(log.state);
  const settled = new Promise<AskPassage>((resolve) => {
    ask.onReleased = () => resolve(passageOf(log.state, ask.key));
  });
  const info: AskInfo = { ...log.key, agent_name, await_id: ask.key, name: name ?? null, kind, parts };
  const wrapped = (async () => wrap(info, () => settled))().catch((error: unknown) =>
    logger.warn("An interceptor of questions failed.", { ...aboutRun(log), await_id: ask.key, error }),
  );
  inBackground(logger, wrapped);
}

/** What has become of a question that is not asked here any more. */
function passageOf(state: RunState, awaitId: string): AskPassage {
  const type = settledQuestion(state, awaitId)?.settled?.type;
  if (type === undefined) return isStopped(state) ? "withdrawn" : "left";
  if (type === "resumed") return "answered";
  return type === "timed-out" ? "expired" : type === "declined" ? "declined" : "withdrawn";
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason;
}
