import type {
  AgentContext,
  AgentFunction,
  AwaitRequest,
  DetailedEvent,
  Logger,
  Message,
  Run,
  RuntimeStats,
  StreamedEvent,
} from "cadenza";
import { AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { expect } from "vitest";
import { makeDurable, openFile, openStore, REPLAY_TURNS, replays } from "./always-replay.ts";
import { FakeClock } from "./clock.ts";
import type { DurableRuntimeOptions } from "./durable-runtime.ts";
import { persistent } from "./store-proxy.ts";

/** A runtime with a clock of the test's own. */
export interface Setup {
  readonly runtime: AgentRuntime;
  readonly clock: FakeClock;
  readonly store: Store;
  /** What the library has logged. */
  readonly said: LogLine[];
}

export interface LogLine {
  readonly level: keyof Logger;
  readonly message: string;
  readonly fields: { readonly error?: unknown; readonly [key: string]: unknown };
}

export function setUp({ durability, ...options }: DurableRuntimeOptions = {}, turns?: number): Setup {
  const clock = options.clock instanceof FakeClock ? options.clock : new FakeClock(replays ? REPLAY_TURNS : turns);
  const store = replays ? persistent(options.store ?? openStore(clock)) : (options.store ?? new MemoryStore({ clock }));
  const said: LogLine[] = [];
  const line =
    (level: keyof Logger) =>
    (message: string, fields: object = {}): void => {
      said.push({ level, message, fields: { ...fields } });
    };
  const logger = { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
  const wrapped = durable(store, { ...durability, ...(replays && { alwaysReplay: true }) });
  const runtime = new AgentRuntime({ clock, logger, ...options, store: wrapped });
  return { runtime: replays ? makeDurable(runtime) : runtime, clock, store, said };
}

/** A runtime with a clock of the test's own, which its store on a file has too. */
export function setUpOnFile(turns?: number): Setup {
  const clock = new FakeClock(replays ? REPLAY_TURNS : turns);
  return setUp({ clock, store: openFile(clock) });
}

/** All events of a stream, up to its end. */
export async function drain(stream: AsyncIterable<StreamedEvent>): Promise<StreamedEvent[]> {
  const events: StreamedEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

export function typesOf(events: readonly StreamedEvent[]): string[] {
  return events.map(({ type }) => type);
}

/** All events of a run that rests. */
export async function eventsOf(runtime: Pick<AgentRuntime, "events">, run_id: string): Promise<StreamedEvent[]> {
  return drain(runtime.events(run_id));
}

/** The output of a run, message by message, each as the texts of its parts joined by `|`. */
export function textsOf({ output }: Run): string[] {
  return output.map(textOf);
}

export function textOf({ parts }: Pick<Message, "parts">): string {
  return parts.map(({ content, content_url }) => content ?? content_url ?? "").join("|");
}

/** The question that a run shows. Throws if it shows none. */
export function questionOf({ await_request }: Run): AwaitRequest {
  if (await_request === null) throw new Error("The run shows no question.");
  return await_request;
}

/** A message of the user, as an answer. */
export function reply(text: string) {
  return { type: "message", message: { role: "user", parts: [{ content: text }] } } as const;
}

/** The error of a call that is refused; a call that is not refused fails the test. */
export async function refusal(call: Promise<unknown> | AsyncIterator<unknown>): Promise<CadenzaError> {
  const outcome = "next" in call ? call.next() : call;
  const error = await outcome.then(
    (value) => expect.fail(`was not refused: ${JSON.stringify(value)}`),
    (thrown: unknown) => thrown,
  );
  if (!CadenzaError.is(error)) throw error;
  return error;
}

/** Runs an agent in mode sync. */
export function runAgent(
  runtime: AgentRuntime,
  agent: (input: readonly Message[], context: AgentContext) => unknown,
  input: string | readonly Message[] = "Hello",
): Promise<Run> {
  runtime.register("agent", { replace: true }, agent as AgentFunction);
  return runtime.createRun({ agent_name: "agent", input });
}

/** The visible state of a runtime, to compare before with after. */
export async function snapshot(runtime: AgentRuntime): Promise<{ stats: RuntimeStats; runs: readonly Run[] }> {
  return structuredClone({ stats: await runtime.stats(), runs: await runtime.listRuns({ output: true }) });
}

/** The parts in the events of a run, without those that its details say do not count. */
export function shownIn(events: readonly DetailedEvent[]): unknown[] {
  const torn = events.flatMap((event) => (event.type === "output.torn" ? event.events : []));
  return events.flatMap((event) => {
    if (event.type !== "message.part" || torn.some(({ first, last }) => event.id >= first && event.id <= last))
      return [];
    return [event.part];
  });
}
