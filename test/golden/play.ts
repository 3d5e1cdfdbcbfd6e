import type { JsonValue, Message, Run, StreamedEvent } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import { durable } from "cadenza/durable";
import type { RunHead, RunWrite, Store } from "cadenza/store";
import type { Entry } from "../../src/core/log.ts";
import { isFinal } from "../../src/core/state.ts";
import { withMembers } from "../harness/port-proxy.ts";
import { lastingStore } from "../harness/store-proxy.ts";
import { agents, helper, wait } from "./agents.ts";

/** The writes of a run to its store, and the record and events at the end. */
export interface GoldenLog {
  readonly agent_name: string;
  readonly run_id: string;
  /** The earlier messages of the session. */
  readonly history: readonly Message[];
  readonly writes: readonly Write[];
  readonly run: Run;
  readonly events: readonly StreamedEvent[];
}

/** One write to the run or to a sub-run. */
export interface Write {
  readonly run_id: string;
  readonly entries: readonly Entry[];
  readonly head: RunHead;
  /** The session's new state. */
  readonly state?: JsonValue;
}

/** What a continued log led to. */
export interface Continued extends Pick<GoldenLog, "run" | "events"> {
  readonly blocked: number;
  readonly differences: number;
}

const SESSION = "00000000-0000-4000-8000-00000000000a";
/** How often a run is read, in milliseconds. */
const LOOK_MS = 2;

/** Runs an agent and keeps the writes to its store. */
export async function record(agent_name: string): Promise<GoldenLog> {
  const writes: Write[] = [];
  const store = openStore(writes);
  const runtime = openRuntime(store, agent_name);
  const inSession = agents[agent_name]?.inSession === true;
  const { run_id } = await runtime.createRun(
    { agent_name, input: "Hello", mode: "async", ...(inSession && { session_id: SESSION }) },
    inSession ? { session: { history: [{ role: "user", parts: [{ content: "Before." }] }] } } : {},
  );
  const history = (await store.session({ tenant: "", session_id: SESSION }))?.history ?? [];
  await follow(runtime, agent_name, run_id);
  const golden = { agent_name, run_id, history, writes, ...(await look(runtime, run_id)) };
  await runtime.close();
  return golden;
}

/** Takes over a run whose process died after so many writes, and goes on to the end. */
export async function goOn(golden: GoldenLog, count: number): Promise<Continued> {
  const { agent_name, run_id } = golden;
  const store = openStore();
  await fill(store, golden, count);
  const runtime = openRuntime(store, agent_name);
  if (count < golden.writes.length) await follow(runtime, agent_name, run_id);
  const { blocked, differences } = await runtime.stats();
  const found = { ...(await look(runtime, run_id)), blocked: blocked.length, differences };
  await runtime.close();
  return found;
}

/** A persistent store. It keeps the writes to runs in `writes`. */
function openStore(writes: Write[] = []): Store {
  const store = lastingStore();
  return withMembers(store, {
    create: (key, write, idempotencyKey) => {
      writes.push(writeOf(key.run_id, write));
      return store.create(key, write, idempotencyKey);
    },
    append: (key, expected, write) => {
      writes.push(writeOf(key.run_id, write));
      return store.append(key, expected, write);
    },
  });
}

function writeOf(run_id: string, { entries, head, session }: RunWrite): Write {
  const state = session?.state;
  return { run_id, entries, head, ...(state !== undefined && { state: state.value }) };
}

/** Applies the first writes of a log to a store. */
async function fill(store: Store, { writes, history }: GoldenLog, count: number): Promise<void> {
  const session = { tenant: "", session_id: SESSION };
  if (history.length > 0) await store.putSession(session, { history, state: null }, 0);
  const logs = new Map<string, { epoch: number; position: number }>();
  for (const { run_id, entries, head, state } of writes.slice(0, count)) {
    const key = { tenant: "", run_id };
    const before = logs.get(run_id);
    const conflict =
      before === undefined
        ? await store.create(key, { entries, head }, null)
        : await store.append(key, before, { entries, head });
    if (conflict !== undefined) throw new Error(`a write to ${run_id} is refused: ${JSON.stringify(conflict)}`);
    logs.set(run_id, { epoch: head.epoch, position: (before?.position ?? 0) + entries.length });
    if (state !== undefined) await store.putSession(session, { history, state }, 0);
  }
}

function openRuntime(store: Store, agent_name: string): AgentRuntime {
  const agent = agents[agent_name];
  if (agent === undefined) throw new Error(`there is no agent ${agent_name}`);
  const runtime = new AgentRuntime({ store: durable(store, { scanMs: 5 }) });
  runtime.register("helper", { durable: true, version: "1" }, helper);
  return runtime.register(agent_name, { durable: true, version: "1" }, agent.fn);
}

async function look(runtime: AgentRuntime, run_id: string): Promise<Pick<GoldenLog, "run" | "events">> {
  const events: StreamedEvent[] = [];
  for await (const event of runtime.events(run_id)) events.push(event);
  return { run: await runtime.getRun(run_id), events };
}

/** Does what the client of this agent does, until the run has ended. */
async function follow(runtime: AgentRuntime, agent_name: string, run_id: string): Promise<void> {
  let run = await runtime.getRun(run_id);
  while (!isFinal(run.status)) {
    const question = run.await_request;
    const answer = question === null ? "nothing" : agents[agent_name]?.answers?.[question.await_id];
    if (answer === undefined) throw new Error(`there is no answer to ${question?.await_id}`);
    if (answer === "cancel") await runtime.cancel(run_id);
    else if (question !== null && answer !== "nothing") {
      const answering = runtime.resume({ run_id, await_id: question.await_id, await_resume: answer });
      await answering.catch(unlessWithdrawn);
    } else await wait(LOOK_MS);
    run = await runtime.getRun(run_id);
  }
}

/** Ignores the refusal of an answer to a question that was withdrawn meanwhile. */
function unlessWithdrawn(error: unknown): void {
  if (!CadenzaError.is(error) || error.code !== "not_awaiting") throw error;
}
