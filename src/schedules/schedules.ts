import { CadenzaError } from "../core/errors.ts";
import { sameJson } from "../core/json.ts";
import type { Labels, ReceivedEntry } from "../core/log.ts";
import type { RunKey } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { OPERATORS, ownKey } from "../core/tenants.ts";
import { isoTime, timeOrNull } from "../core/time.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import { badArgument, checkFunction, checkKey, checkOptionsOf, checkWithin } from "../runtime/agent/check.ts";
import { namedUuid } from "../runtime/agent/uuid.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import { cursorOf, readLimit, readPlace } from "../runtime/api/cursors.ts";
import type { ToldCall } from "../runtime/api/inside.ts";
import { insideKey, unlessGone } from "../runtime/api/inside.ts";
import { readGeneration } from "../runtime/log/fold-log.ts";
import { systemIds } from "../runtime/log/system.ts";
import type { Inside, Named } from "./agent.ts";
import { COMMAND, scheduleAgent } from "./agent.ts";
import type { ScheduleDefinition } from "./definition.ts";
import { readDefinition, readNamed, readTenant } from "./definition.ts";
import type { Command, Definition, ScheduleState } from "./state.ts";
import { applied, decideNext, newSchedule, nextTimes } from "./state.ts";
import type { CronClass } from "./times.ts";
import { Calendar } from "./times.ts";

export type { ScheduleDefinition } from "./definition.ts";

/** The options of {@link schedules}. */
export interface SchedulesOptions {
  /**
   * The class `Cron` of the package `croner`, from version 9 on. Every process that executes schedules with cron expressions
   * needs it. Default: none, and schedules have `everyMs`.
   */
  readonly cron?: CronClass | undefined;
  /** In whose name schedules are changed: JSON, which `onAudit` has as `by`. Default: null. */
  readonly principal?: JsonValue | undefined;
}

/** A schedule, as it is now. Times are texts in ISO 8601. */
export interface Schedule {
  readonly id: string;
  readonly tenant: string;
  readonly agent_name: string;
  readonly version: string | null;
  readonly cron: string | null;
  readonly every_ms: number | null;
  readonly time_zone: string;
  readonly overlap: "skip" | "queue" | "cancel";
  readonly missed: "skip" | "latest" | "all";
  readonly jitter_ms: number;
  readonly start_at: string | null;
  readonly end_at: string | null;
  readonly labels: Labels;
  readonly is_paused: boolean;
  /**
   * The next time; null for none, while it is paused, and in a process that cannot read its cron expression. With `jitterMs`
   * its run comes later.
   */
  readonly next_at: string | null;
  /** Whether a time or a trigger waits: for the end of the run before, for its jitter, or for a process that can create its run. */
  readonly is_waiting: boolean;
  /** The run that was created last, and the time that it was for; null for none. */
  readonly last: { readonly time: string; readonly run_id: string } | null;
  /** The last time that had no run because the run before had not ended; null for none. */
  readonly skipped_at: string | null;
  /** The last time whose run could not be created, and why; null for none, and once a run was created after it. */
  readonly refused: { readonly time: string; readonly code: string; readonly message: string } | null;
  /** When it was last put, and was another one before. */
  readonly put_at: string;
}

/** The state of a schedule that was put. */
type Defined = ScheduleState & { readonly definition: Definition };

/** Of which tenant a schedule is. */
interface OfTenant {
  /** Default: "". */
  readonly tenant?: string | undefined;
}

/** A page of schedules. */
export interface SchedulePage {
  readonly items: readonly Schedule[];
  /** The `cursor` of the next page; null: there are no more. */
  readonly next: string | null;
}

/** The namespace of the names by which the schedules of a tenant are found. It must never change. */
const SCHEDULES = "0b8d6f0a-3a0c-4b0e-9a5e-1f4c1f1d7c52";
const LIVE: readonly RunStatus[] = ["created", "in-progress", "awaiting"];
/** How many times are told at most. */
const MAX_NEXT = 1_000;
/** The longest key of a trigger, which becomes a part of the key of its run. */
const MAX_TRIGGER = 128;

/** The calendar of each runtime: an agent is registered once. */
const calendars = new WeakMap<object, Calendar>();

/**
 * The schedules of a runtime's store. Each process that is to create their runs calls this once, and has or declares the
 * agents. Runs are created once for each time, whatever number of processes there is. A further call costs little: make one for
 * each `principal`. Throws `invalid_argument`.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { schedules } from "cadenza/schedules";
 * import { Cron } from "croner";
 *
 * const runtime = new AgentRuntime().register("report", () => "All is well.");
 * const plans = schedules(runtime, { cron: Cron });
 * await plans.put({ id: "nightly", agent_name: "report", input: "", cron: "0 2 * * *", timeZone: "Europe/Berlin" });
 * const [next] = await plans.next("nightly");
 * console.log(typeof next); // → string
 * ```
 */
export function schedules(runtime: AgentRuntime<string>, options: SchedulesOptions = {}): Schedules {
  if (!(insideKey in Object(runtime))) throw badArgument("runtime", "an AgentRuntime", runtime);
  checkOptionsOf("options", options, ["cron", "principal"]);
  const { cron, principal = null } = options;
  if (cron !== undefined) checkFunction("options.cron", cron);
  // The scope checks that it is JSON.
  runtime.scope({ principal });
  const calendar = calendars.get(runtime) ?? new Calendar();
  calendars.set(runtime, calendar);
  calendar.cron ??= cron;
  return new Schedules(() => runtime[insideKey], calendar, principal);
}

/** The schedules of a store: see {@link schedules}. Calls are refused with `invalid_argument`, and with `store_failed`. */
export class Schedules {
  readonly #inside: () => Inside;
  readonly #calendar: Calendar;
  readonly #principal: JsonValue;
  readonly #agent: Agent;

  constructor(inside: () => Inside, calendar: Calendar, principal: JsonValue) {
    this.#inside = inside;
    this.#calendar = calendar;
    this.#principal = principal;
    this.#agent = inside().register(scheduleAgent(inside, calendar));
  }

  /**
   * Makes a schedule, or changes the one of this id and tenant: to be called whenever a process starts. Times until then
   * follow the schedule before, later ones the new one. The same again changes nothing. It stays paused if it
   * is. Resolves when the store has it, and where one of the same id is being removed, after its end. Refused with
   * `agent_not_found`, and with `invalid_input` for an input that the agent's schema does not accept.
   */
  async put(schedule: ScheduleDefinition): Promise<Schedule> {
    const definition = readDefinition(schedule, this.#calendar);
    const { agent_name, version, input } = definition;
    const named = readNamed(schedule.id, { tenant: schedule.tenant });
    const { tenant, id } = named;
    const inside = this.#inside();
    const options = { metadata: { tenant, id }, labels: labelsOf(tenant) };
    return this.#change(named, { action: "putSchedule", agent_name }, async (unchanged) => {
      await inside.checkInput(inside.registry.get(agent_name, version ?? undefined), input);
      for (;;) {
        const key = await inside.begin(this.#agent, { principal: null, name: nameOf(named), options });
        const before = await this.#read(key);
        if (before !== undefined && sameJson(before.definition, definition)) {
          unchanged();
          return this.#shown(before);
        }
        const isPut = await this.#send(key, { type: "put", definition });
        const state = isPut ? await this.#read(key) : undefined;
        if (state !== undefined) return this.#shown(state);
        // A schedule of this id was removed, or is being removed.
        await this.#end(key);
      }
    });
  }

  /** A page of schedules, in the order in which they were made, the newest first. `limit`: at most 500. Default: 50 of all tenants. */
  async list(
    query: {
      readonly tenant?: string | undefined;
      readonly limit?: number | undefined;
      readonly cursor?: string | null | undefined;
    } = {},
  ): Promise<SchedulePage> {
    checkOptionsOf("query", query, ["tenant", "limit", "cursor"]);
    const { tenant, limit, cursor } = query;
    const page = await this.#inside().store.survey({
      ...{ tenant: OPERATORS, agent_name: this.#agent.name, statuses: LIVE, limit: readLimit(limit) },
      labels: tenant === undefined ? undefined : labelsOf(readTenant(tenant)),
      after: readPlace(cursor ?? undefined),
    });
    const states = await Promise.all(page.runs.map(({ key }) => this.#read(key)));
    const items = states.flatMap((state) => (state === undefined ? [] : [this.#shown(state)]));
    return { items, next: page.next === null ? null : cursorOf(page.next) };
  }

  /** A schedule. Refused with `run_not_found`. */
  async get(id: string, options: OfTenant = {}): Promise<Schedule> {
    return this.#shown(await this.#known(readNamed(id, options)));
  }

  /** Creates no runs of its times from now on, until it is resumed. Those times have no runs later either. Refused with `run_not_found`. */
  async pause(id: string, options: OfTenant = {}): Promise<void> {
    await this.#command(readNamed(id, options), { type: "pause" });
  }

  /** Creates runs of its times again, from now on, and of what has waited. Refused with `run_not_found`. */
  async resume(id: string, options: OfTenant = {}): Promise<void> {
    await this.#command(readNamed(id, options), { type: "resume" });
  }

  /**
   * Creates a run beside its times, also while it is paused; `overlap` holds for it. A repeated call with the same
   * `idempotencyKey` creates no second one. Refused with `run_not_found`.
   */
  async trigger(id: string, options: OfTenant & { readonly idempotencyKey?: string | undefined } = {}): Promise<void> {
    const named = readNamed(id, options, ["tenant", "idempotencyKey"]);
    const { idempotencyKey: key = systemIds.uuid() } = options;
    checkKey("idempotencyKey", key, MAX_TRIGGER);
    await this.#command(named, { type: "trigger", key }, key);
  }

  /** Ends a schedule. Its runs go on. Resolves when a process that executes schedules has ended it. Does nothing if there is none. */
  async remove(id: string, options: OfTenant = {}): Promise<void> {
    const named = readNamed(id, options);
    await this.#change(named, { action: "removeSchedule" }, async (unchanged) => {
      const run = await this.#find(named);
      return run === undefined ? unchanged() : this.#end(run.key);
    });
  }

  /**
   * Its next times, at most `count` (default 1, at most 1,000), as texts in ISO 8601: for a paused schedule those that it
   * would have from now on. None in a process that cannot read its cron expression. Refused with `run_not_found`.
   */
  async next(id: string, count = 1, options: OfTenant = {}): Promise<readonly string[]> {
    checkWithin("count", count, 1, MAX_NEXT);
    return this.#next(await this.#known(readNamed(id, options)), count);
  }

  #next(state: ScheduleState, count: number): readonly string[] {
    return nextTimes(this.#calendar, state, this.#inside().clock.now(), count).map(isoTime);
  }

  #find(named: Named) {
    return this.#inside().store.findByIdempotencyKey(OPERATORS, ownKey(...nameOf(named)));
  }

  async #known(named: Named): Promise<Defined> {
    const run = await this.#find(named);
    const state = run && (await this.#read(run.key));
    if (state) return state;
    throw noSchedule(named.id);
  }

  /** Makes a call that changes a schedule, unless it says that it did not, and tells `onAudit` of it. */
  #change<T>(
    { tenant, id }: Named,
    about: Pick<ToldCall, "action" | "agent_name">,
    call: (unchanged: () => void) => Promise<T>,
  ): MaybePromise<T> {
    return this.#inside().told({ ...about, tenant, by: this.#principal, schedule_id: id }, call);
  }

  async #command(named: Named, command: Command, key?: string): Promise<void> {
    await this.#change(named, { action: `${command.type}Schedule` }, async () => {
      const run = await this.#find(named);
      if (run === undefined || !(await this.#send(run.key, command, key))) throw noSchedule(named.id);
    });
  }

  /** Resolves with whether the schedule takes commands: not if it was removed. */
  #send({ run_id: to }: RunKey, data: Command, idempotencyKey?: string): Promise<boolean> {
    return unlessGone(() => this.#scope.send({ to, name: COMMAND, data }, { idempotencyKey }));
  }

  /** Ends the run of a schedule, and deletes it, so that another one may have its id. */
  async #end({ run_id }: RunKey): Promise<void> {
    await unlessGone(() => this.#scope.cancel(run_id, { wait: true }));
    await unlessGone(() => this.#scope.delete(run_id));
  }

  get #scope() {
    return this.#inside().scope(OPERATORS, this.#principal, "untold");
  }

  /**
   * The state of a schedule: the one with which it has gone on last, and the commands since. Undefined: it was removed, or
   * has no definition.
   */
  async #read(key: RunKey): Promise<Defined | undefined> {
    const { store } = this.#inside();
    const run = await store.find(key, "with inbox");
    if (run === undefined || !LIVE.includes(run.head.status)) return undefined;
    const { position, inbox = [] } = run;
    const generation = (await readGeneration(store, key, position)) ?? [];
    const entries = [...generation, ...inbox.flatMap((arrived) => arrived.entries)];
    const { tenant, id } = run.created.metadata as unknown as Named;
    let state = newSchedule(tenant, id);
    let commands: readonly ReceivedEntry[] = [];
    for (const entry of entries) {
      if (entry.type === "received") commands = [...commands, entry];
      if (entry.type !== "continued") continue;
      state = entry.carry as unknown as ScheduleState;
      commands = (entry.messages ?? []).map((message) => message.entry);
    }
    for (const { data, at } of commands) state = applied(state, data as unknown as Command, at);
    const { definition } = state;
    return definition === null ? undefined : { ...state, definition };
  }

  #shown(state: Defined): Schedule {
    const { definition, tenant, id, is_paused, last, skipped, refused, put_at } = state;
    const { timing, input: _, ...others } = definition;
    const { start_at, end_at } = timing;
    const { times, triggers } = decideNext(this.#calendar, state, this.#inside().clock.now()).state;
    return {
      ...{ id, tenant, ...others, ...timing, start_at: timeOrNull(start_at), end_at: timeOrNull(end_at), is_paused },
      next_at: is_paused ? null : (this.#next(state, 1)[0] ?? null),
      is_waiting: times.length + triggers.length > 0,
      last: last && { ...last, time: isoTime(last.time) },
      skipped_at: timeOrNull(skipped),
      refused: refused && { ...refused, time: isoTime(refused.time) },
      put_at: isoTime(put_at),
    };
  }
}

function noSchedule(id: string): CadenzaError {
  return new CadenzaError("run_not_found", `There is no schedule ${JSON.stringify(id)} of this tenant.`);
}

/** What names the run of a schedule. */
function nameOf({ tenant, id }: Named): readonly string[] {
  return ["schedule", tenant, id];
}

/** A tenant may be longer than a label. */
function labelsOf(tenant: string): Labels {
  return { tenant: namedUuid(SCHEDULES, tenant) };
}
