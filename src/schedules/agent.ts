import { CadenzaError } from "../core/errors.ts";
import { isoTime } from "../core/time.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import type { DurableContext } from "../runtime/agent/agent-context.ts";
import type { Inside as InsideOf } from "../runtime/api/inside.ts";
import { isPassing, outlasting, ownAgent, unlessGone } from "../runtime/api/inside.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { Command, Definition, Due, Fired, ScheduleState } from "./state.ts";
import { commanded, decideNext, fired, newSchedule } from "./state.ts";
import type { Calendar } from "./times.ts";

/** What a schedule needs of its runtime. */
export type Inside = InsideOf<Scope<string>>;

/** Names a schedule. */
export interface Named {
  readonly tenant: string;
  readonly id: string;
}

/** The name of the messages that are commands. */
export const COMMAND = "command";
/** How long a schedule is left to other processes by one that cannot tell its times, in milliseconds. */
const ELSEWHERE_MS = 60_000;

/** What another process, or the same one later, may not refuse. */
const refusedForNow: ReadonlySet<string> = new Set(["agent_not_found", "limit_reached"]);

/** The agent of all schedules: each of its runs is a schedule, and waits for its next time or command. */
export function scheduleAgent(inside: () => Inside, calendar: Calendar): Agent {
  return ownAgent("schedule", async (_input, context) => {
    const { tenant, id } = context.metadata as unknown as Named;
    const state = (context.carry as unknown as ScheduleState | undefined) ?? newSchedule(tenant, id);
    return context.continueAsNew(await turnOf(inside, calendar, context, state));
  });
}

/** Waits for the next time or command, and creates at most one run. */
async function turnOf(
  inside: () => Inside,
  calendar: Calendar,
  { receive, step, sleep, now, logger }: DurableContext,
  carried: ScheduleState,
): Promise<ScheduleState> {
  const { definition, times } = carried;
  if (definition !== null && ![definition, ...times].every(({ timing }) => calendar.tells(timing))) {
    logger.error("A schedule needs the class Cron: schedules(runtime, { cron: Cron }).", { schedule: carried.id });
    await sleep(ELSEWHERE_MS);
    return carried;
  }
  // The time of the agent stands still since its generation began: it may have been paused, or without a process, since then.
  const timeoutMs = Math.max(0, decideNext(calendar, carried, now()).wakeAt - inside().clock.now());
  const { value, at, how } = await receive(COMMAND, { timeoutMs, default: null, details: true });
  if (how === "message") return commanded(calendar, carried, value as unknown as Command, at, now());
  const { state, due } = decideNext(calendar, carried, now());
  if (due === undefined || definition === null) return state;
  const result = await step("create", () => create(inside(), state, definition, due), { retry: outlasting });
  if ("code" in result) logger.error("A schedule cannot create a run.", { schedule: state.id, ...result });
  return fired(calendar, state, due, result, now());
}

/** Creates a run, unless the run before has not ended. A repeated call creates no second one. */
async function create(
  inside: Inside,
  { tenant, id, last }: ScheduleState,
  definition: Definition,
  { time: at, trigger }: Due,
): Promise<Fired> {
  const { agent_name, version, overlap, input, labels } = definition;
  const time = isoTime(at);
  const before = last === null ? undefined : await inside.store.find({ tenant, run_id: last.run_id });
  if (before !== undefined && before.head.finished_at === null) {
    if (overlap !== "cancel") return { before: overlap === "skip" ? "skipped" : "queued" };
    await unlessGone(() => inside.scope(tenant, { schedule: id }).cancel(before.key.run_id));
  }
  try {
    return await inside.begin(inside.registry.get(agent_name, version ?? undefined), {
      ...{ tenant, input, principal: null },
      name: ["schedule", id, ...(trigger === undefined ? ["time", time] : ["trigger", trigger])],
      options: { metadata: { schedule: id, time, trigger: trigger ?? null }, labels },
    });
  } catch (error) {
    if (!CadenzaError.is(error) || isPassing(error)) throw error;
    const { code, message } = error;
    return { code, message, again: refusedForNow.has(code) };
  }
}
