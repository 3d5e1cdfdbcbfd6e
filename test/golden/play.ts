import type { Clock, JsonValue, Message, Run, StreamedEvent } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { Entry, RunHead, RunPost, RunWrite, Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { isFinal, machineClock, silentLogger } from "../harness/internals.ts";
import { withMembers } from "../harness/port-proxy.ts";
import { lastingStore } from "../harness/store-proxy.ts";
import { agents, helper, speaker, wait } from "./agents.ts";

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
  /** Left out: it is a post, which leaves the head as it is. */
  readonly head?: RunHead;
  readonly post?: Omit<RunPost, "entries">;
  /** The session's new state. */
  readonly state?: JsonValue;
}

/** What a continued log led to. */
export interface Continued extends Pick<GoldenLog, "run" | "events"> {
  readonly blocked: number;
  readonly differences: number;
}

const clock = machineClock(silentLogger);
const SESSION = "00000000-0000-4000-8000-00000000000a";
/** How often a run is read, in milliseconds. */
const LOOK_MS = 2;

/** The principal of a client of another process. */
const ELSEWHERE = "ann";

/** Runs an agent and keeps the writes to its store. */
export async function record(agent_name: string): Promise<GoldenLog> {
  const writes: Write[] = [];
  const store = openStore(clock, writes);
  const runtime = openRuntime(store, clock, agent_name);
  const inSession = agents[agent_name]?.inSession === true;
  const { run_id } = await runtime.createRun(
    { agent_name, input: "Hello", mode: "async", ...(inSession && { session_id: SESSION }) },
    {
      ...(inSession && { session: { history: [{ role: "user", parts: [{ content: "Before." }] }] } }),
      budget: agents[agent_name]?.budget,
    },
  );
  await follow(runtime, elsewhere(store, clock), agent_name, run_id);
  const kept = await forkOf(runtime, agent_name, run_id, writes);
  const history = (await store.session({ tenant: "", session_id: SESSION }))?.history ?? [];
  if (kept !== run_id) await follow(runtime, elsewhere(store, clock), agent_name, kept);
  const golden = { agent_name, run_id: kept, history, writes, ...(await look(runtime, kept)) };
  await runtime.close();
  return golden;
}

/** The run that is kept: the run itself, or its fork, whose log holds all that it needs of the run. */
async function forkOf(runtime: AgentRuntime, agent_name: string, run_id: string, writes: Write[]): Promise<string> {
  const input = agents[agent_name]?.forkedWith;
  if (input === undefined) return run_id;
  writes.length = 0;
  return (await runtime.fork(run_id, { input, mode: "async" })).run_id;
}

/** Takes over a run whose process died after so many writes, at the time of the last entry, and goes on to the end. */
export async function goOn(golden: GoldenLog, count: number): Promise<Continued> {
  const { agent_name, run_id } = golden;
  // A write may have a head alone.
  const clock = clockAt(
    Math.max(...golden.writes.slice(0, count).flatMap(({ entries }) => entries.map(({ at }) => at))),
  );
  const store = openStore(clock);
  await fill(store, golden, count);
  const runtime = openRuntime(store, clock, agent_name);
  if (count < golden.writes.length) await follow(runtime, elsewhere(store, clock), agent_name, run_id);
  const { blocked, differences } = await runtime.stats();
  const found = { ...(await look(runtime, run_id)), blocked: blocked.length, differences };
  await runtime.close();
  return found;
}

/** The machine's clock, set back to a time: a recorded deadline is as far away as it was. */
function clockAt(time: number): Clock {
  const behindMs = clock.now() - time;
  return { ...clock, now: () => clock.now() - behindMs };
}

/** A persistent store. It keeps the writes to runs in `writes`. */
function openStore(clock: Clock, writes: Write[] = []): Store {
  const store = lastingStore(clock);
  /** The store answers at once. A write that it refuses is not kept. */
  const note = <Conflict>(write: Write, conflict: Conflict): Conflict => {
    if (conflict === undefined) writes.push(write);
    return conflict;
  };
  return withMembers(store, {
    create: (key, write, idempotencyKey) => note(writeOf(key.run_id, write), store.create(key, write, idempotencyKey)),
    append: (key, expected, write) => note(writeOf(key.run_id, write), store.append(key, expected, write)),
    post: (key, { entries, ...post }) =>
      note({ run_id: key.run_id, entries, post }, store.post(key, { entries, ...post })),
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
  for (const { run_id, entries, head, post, state } of writes.slice(0, count)) {
    const key = { tenant: "", run_id };
    const before = logs.get(run_id);
    const conflict = await (head === undefined
      ? store.post(key, { entries, ...post })
      : before === undefined
        ? store.create(key, { entries, head }, null)
        : store.append(key, before, { entries, head }));
    if (conflict !== undefined) throw new Error(`a write to ${run_id} is refused: ${JSON.stringify(conflict)}`);
    logs.set(run_id, { epoch: (head ?? before)?.epoch ?? 0, position: (before?.position ?? 0) + entries.length });
    if (state !== undefined) await store.putSession(session, { history, state }, 0);
  }
}

function openRuntime(store: Store, clock: Clock, agent_name: string): AgentRuntime {
  const agent = agents[agent_name];
  if (agent === undefined) throw new Error(`there is no agent ${agent_name}`);
  const runtime = new AgentRuntime({ store: durable(store, { scanMs: 5, heartbeatMs: 100 }), clock });
  runtime.register("helper", { durable: true, version: "1" }, helper);
  runtime.register("speaker", { durable: true, version: "1" }, speaker);
  return runtime.register(agent_name, { durable: true, version: "1" }, agent.fn);
}

/** A process without the code. Its answers are validated by the process that has it. */
function elsewhere(store: Store, clock: Clock): AgentRuntime {
  return new AgentRuntime({ store: durable(store, { scanMs: 5, heartbeatMs: 100 }), clock });
}

async function look(runtime: AgentRuntime, run_id: string): Promise<Pick<GoldenLog, "run" | "events">> {
  const events: StreamedEvent[] = [];
  for await (const event of runtime.events(run_id)) {
    // The logs hold what clients see.
    const { usage: _, ...shown } = { usage: null, ...event };
    events.push(shown as StreamedEvent);
  }
  return { run: await runtime.getRun(run_id), events };
}

/** Does what the clients of this agent do, until the run has ended. */
async function follow(runtime: AgentRuntime, other: AgentRuntime, agent_name: string, run_id: string): Promise<void> {
  const { answers = {}, messages = [], unfitElsewhere } = agents[agent_name] ?? {};
  const clients = unfitElsewhere === undefined ? runtime : other.scope({ principal: ELSEWHERE });
  for (const [index, message] of messages.entries()) {
    await runtime.send({ to: run_id, ...message }, { idempotencyKey: `message ${index}` });
    await wait(LOOK_MS);
  }
  let run = await runtime.getRun(run_id);
  while (!isFinal(run.status)) {
    const await_id = run.await_request?.await_id;
    const answer = await_id === undefined ? "nothing" : answers[await_id];
    if (answer === undefined) throw new Error(`there is no answer to ${await_id}`);
    const replies = answer === "decline" ? [{ decline: { reason: "Not today." } }] : [];
    const asked = [unfitElsewhere, answer].flatMap((await_resume) =>
      typeof await_resume === "object" ? [{ await_resume }] : [],
    );
    if (answer === "cancel") await runtime.cancel(run_id);
    else if (answer === "nothing") await wait(LOOK_MS);
    else
      for (const reply of [...replies, ...asked])
        await clients.resume({ run_id, await_id, ...reply }).catch(unlessRefused);
    run = await runtime.getRun(run_id);
    // A question that was answered before the crash is still shown until the runs above the one that asks are loaded.
    if (answer !== "nothing" && run.await_request?.await_id === await_id) await wait(LOOK_MS);
  }
}

const refusals: readonly string[] = ["not_awaiting", "answer_rejected", "answer_conflict"];

/** Ignores the refusal of an answer that does not fit, or to a question that was answered or withdrawn meanwhile. */
function unlessRefused(error: unknown): void {
  if (!CadenzaError.is(error) || !refusals.includes(error.code)) throw error;
}
