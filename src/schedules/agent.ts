import { CadenzaError } from "../core/errors.ts";
import { isoTime } from "../core/time.ts";
import type { Agent, AgentFunction, Registration } from "../runtime/agent/agent.ts";
import type { AgentContext } from "../runtime/agent/agent-context.ts";
import type { Inside as InsideOf } from "../runtime/api/inside.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { Command, Definition, Due, Fired, ScheduleState } from "./state.ts";
import { commanded, decideNext, fired, newSchedule } from "./state.ts";
import type { Calendar } from "./times.ts";

/** What a schedule needs of its runtime. */
export type Inside = InsideOf<Scope<string>>;

/** No agent of an application has a name with a colon. */
export const SCHEDULE_AGENT = "cadenza:schedule";
/** The name of the messages that are commands. */
export const COMMAND = "command";
/** How long a schedule is left to other processes by one that cannot tell its times, in milliseconds. */
const ELSEWHERE_MS = 60_000;

/** A schedule outlasts a store that fails, and a process that is being closed. */
const retry = { attempts: Number.MAX_SAFE_INTEGER, backoffMs: 1_000, maxBackoffMs: 60_000, when: isPassing };
const passing: ReadonlySet<string> = new Set(["store_failed", "lost_ownership", "runtime_closed"]);
/** What another process, or the same one later, may not refuse. */
const refusedForNow: ReadonlySet<string> = new Set(["agent_not_found", "limit_reached"]);

function isPassing(error: unknown): boolean {
  return CadenzaError.is(error) && passing.has(error.code);
}

/** The agent of all schedules: each of its runs is a schedule, and waits for its next time or command. */
export function scheduleAgent(inside: () => Inside, calendar: Calendar): Agent {
  const fn = async (_input: unknown, context: AgentContext) => {
    const { tenant, id } = context.metadata as { readonly tenant: string; readonly id: string };
    const state = (context.carry as unknown as ScheduleState | undefined) ?? newSchedule(tenant, id);
    return context.continueAsNew(await turnOf(inside, calendar, context, state));
  };
  const options: Agent["options"] & Registration = {
    // New runs are given the agent: no name leads to it.
    ...{ durable: true, version: "1", current: false },
    timeoutMs: Number.POSITIVE_INFINITY,
  };
  return { name: SCHEDULE_AGENT, options, fn: fn as unknown as AgentFunction };
}

/** Waits for the next time or command, and creates at most one run. */
async function turnOf(
  inside: () => Inside,
  calendar: Calendar,
  { receive, step, sleep, now, logger }: AgentContext,
  carried: ScheduleState,
): Promise<ScheduleState> {
  const { definition, line } = carried;
  const timings = [definition, ...line].flatMap((one) => (one !== null && "timing" in one ? [one.timing] : []));
  if (!timings.every((timing) => calendar.tells(timing))) {
    logger.error("A schedule needs the class Cron: schedules(runtime, { cron: Cron }).", { schedule: carried.id });
    await sleep(ELSEWHERE_MS);
    return carried;
  }
  const timeoutMs = Math.max(0, decideNext(calendar, carried, now()).wakeAt - now());
  const { value, at, how } = await receive(COMMAND, { timeoutMs, default: null, details: true });
  if (how === "message") return commanded(calendar, carried, value as unknown as Command, at, now());
  const { state, due } = decideNext(calendar, carried, now());
  if (due === undefined || definition === null) return state;
  const result = await step("create", () => create(inside(), state, definition, due), { retry });
  if ("code" in result) logger.error("A schedule cannot create a run.", { schedule: state.id, ...result });
  return fired(calendar, state, due, result, now());
}

/** Creates a run, unless the run before has not ended. A repeated call creates no second one. */
async function create(
  inside: Inside,
  { tenant, id, last }: ScheduleState,
  definition: Definition,
  { time, trigger }: Due,
): Promise<Fired> {
  const { overlap, input, labels } = definition;
  const before = last === null ? undefined : await inside.store.find({ tenant, run_id: last.run_id });
  if (before !== undefined && before.head.finished_at === null) {
    if (overlap !== "cancel") return { before: overlap === "skip" ? "skipped" : "queued" };
    await unlessGone(inside.scope(tenant, null).cancel(before.key.run_id));
  }
  try {
    return await inside.begin(agentOf(inside, definition), {
      ...{ tenant, input, principal: null },
      options: {
        idempotencyKey: `schedule:${id}:${trigger ?? isoTime(time)}`,
        metadata: { schedule: id, time: isoTime(time), trigger: trigger ?? null },
        labels,
      },
    });
  } catch (error) {
    if (!CadenzaError.is(error) || isPassing(error)) throw error;
    const { code, message } = error;
    return { code, message, again: refusedForNow.has(code) };
  }
}

/** The agent of which a schedule creates runs. Throws `agent_not_found`. */
export function agentOf({ registry }: Inside, { agent_name, version }: Definition): Agent {
  const agent = version === null ? registry.get(agent_name) : registry.known(agent_name, version);
  if (agent !== undefined) return agent;
  const message = `There is no version ${JSON.stringify(version)} of agent ${JSON.stringify(agent_name)}.`;
  throw new CadenzaError("agent_not_found", message, { agent_name });
}

const gone: ReadonlySet<string> = new Set(["run_not_found", "run_finished", "run_cancelling"]);

/** Resolves with whether a call was not refused because a run has ended, is being cancelled or was deleted. */
export async function unlessGone(call: Promise<unknown>): Promise<boolean> {
  try {
    await call;
    return true;
  } catch (error) {
    if (CadenzaError.is(error) && gone.has(error.code)) return false;
    throw error;
  }
}
