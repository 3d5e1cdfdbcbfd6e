import { CadenzaError } from "../core/errors.ts";
import { isoTime } from "../core/time.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { Agent, AgentFunction, Registration } from "../runtime/agent/agent.ts";
import type { AgentContext } from "../runtime/agent/agent-context.ts";
import type { Inside as InsideOf } from "../runtime/api/inside.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { Command, Definition, Due, Fired, ScheduleState } from "./state.ts";
import { commanded, decideNext, fired, newSchedule } from "./state.ts";
import type { Calendar } from "./times.ts";
import { NoCron } from "./times.ts";

/** What a schedule needs of its runtime. */
export type Inside = InsideOf<Scope<string>>;

/** No agent of an application has a name with a colon. */
export const SCHEDULE_AGENT = "cadenza:schedule";
/** The name of the messages that are commands. */
export const COMMAND = "command";
/** The name of the step whose result is the state with which a schedule goes on. */
export const CARRY = "carry";
/** How long a schedule is left to other processes by one that cannot tell its times, in milliseconds. */
const ELSEWHERE_MS = 60_000;

/** A schedule outlasts a store that fails, and a process that is being closed. */
const retry = { attempts: Number.MAX_SAFE_INTEGER, backoffMs: 1_000, maxBackoffMs: 60_000, when: isPassing };
const passing: ReadonlySet<string> = new Set(["store_failed", "lost_ownership", "runtime_closed"]);
/** What another process, or the same one later, may not refuse. */
const refusedForNow: ReadonlySet<string> = new Set(["agent_not_found", "limit_reached"]);
const ended: ReadonlySet<RunStatus> = new Set(["completed", "failed", "cancelled"]);

function isPassing(error: unknown): boolean {
  return CadenzaError.is(error) && passing.has(error.code);
}

/** The agent of all schedules: each of its runs is a schedule, and waits for its next time or command. */
export function scheduleAgent(inside: () => Inside, calendar: Calendar): Agent {
  const fn = async (_input: unknown, context: AgentContext): Promise<void> => {
    const { tenant, id } = context.metadata as { readonly tenant: string; readonly id: string };
    let state = newSchedule(tenant, id);
    for (;;) {
      const next = await turnOf(inside, calendar, context, state);
      await context.step(CARRY, () => next);
      state = next;
    }
  };
  const options: Agent["options"] & Registration = {
    // New runs are given the agent: no name leads to it.
    ...{ durable: true, version: "1", current: false },
    timeoutMs: Number.POSITIVE_INFINITY,
  };
  return { name: SCHEDULE_AGENT, options, fn: fn as AgentFunction };
}

/** Waits for the next time or command, and creates at most one run. */
async function turnOf(
  inside: () => Inside,
  calendar: Calendar,
  { receive, step, sleep, now, logger }: AgentContext,
  carried: ScheduleState,
): Promise<ScheduleState> {
  try {
    const waiting = decideNext(calendar, carried, now());
    const wakeAt = "due" in waiting.next ? now() : waiting.next.wakeAt;
    const timeoutMs = wakeAt === null ? undefined : Math.max(0, wakeAt - now());
    const { value, at, how } = await receive(COMMAND, { timeoutMs, default: null, details: true });
    const told =
      how === "message" ? commanded(calendar, waiting.state, value as unknown as Command, at, now()) : waiting.state;
    const { state, next } = decideNext(calendar, told, now());
    if (!("due" in next) || state.definition === null) return state;
    const { due } = next;
    const { definition } = state;
    const result = await step("create", () => create(inside(), state, definition, due), { retry });
    if ("code" in result)
      logger.error("A schedule cannot create a run.", { schedule: state.id, tenant: state.tenant, ...result });
    return fired(calendar, state, due, result, now());
  } catch (error) {
    if (!(error instanceof NoCron)) throw error;
    logger.error(
      "A schedule has a cron expression, and this process has no class for it. Give it to schedules(runtime, { cron: Cron }).",
      { schedule: carried.id, tenant: carried.tenant },
    );
    await sleep(ELSEWHERE_MS);
    return carried;
  }
}

/** Creates a run, unless the run before has not ended. A repeated call creates no second one. */
async function create(
  inside: Inside,
  { tenant, id, last }: ScheduleState,
  definition: Definition,
  { time, trigger }: Due,
): Promise<Fired> {
  const { overlap, agent_name, version, input, labels } = definition;
  const before = await inside.store.find({ tenant, run_id: last?.run_id ?? "" });
  if (before !== undefined && !ended.has(before.head.status)) {
    if (overlap === "skip") return { before: "skipped" };
    if (overlap === "queue") return { before: "queued" };
  }
  try {
    if (before !== undefined && !ended.has(before.head.status)) await cancel(inside, tenant, before.key.run_id);
    const { registry } = inside;
    const agent = version === null ? registry.get(agent_name) : registry.known(agent_name, version);
    if (agent === undefined)
      throw new CadenzaError(
        "agent_not_found",
        `There is no version ${JSON.stringify(version)} of agent ${agent_name}.`,
      );
    const { run_id } = await inside.begin(agent, {
      ...{ tenant, input, principal: null },
      options: {
        idempotencyKey: `schedule:${id}:${trigger ?? isoTime(time)}`,
        metadata: { schedule: id, time: isoTime(time) },
        labels,
      },
    });
    return { run_id };
  } catch (error) {
    if (!CadenzaError.is(error) || isPassing(error)) throw error;
    const { code, message, run_id } = error;
    // It was created for what the schedule was before.
    if (code === "idempotency_conflict" && run_id !== undefined) return { run_id };
    return { code, message, again: refusedForNow.has(code) };
  }
}

async function cancel(inside: Inside, tenant: string, run_id: string): Promise<void> {
  try {
    await inside.scope(tenant, null).cancel(run_id);
  } catch (error) {
    if (!CadenzaError.is(error) || (error.code !== "run_finished" && error.code !== "run_not_found")) throw error;
  }
}
