import { aboutRun } from "../../core/about-run.ts";
import { inBackground, warningOnce } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { frozen } from "../../core/frozen.ts";
import type { NewPause } from "../../core/pauses.ts";
import type { Clock, Logger, RunKey } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import type { Counters } from "../../core/statistics.ts";
import { noCounters } from "../../core/statistics.ts";
import { isOwn, OPERATORS, ownKey } from "../../core/tenants.ts";
import { isoTime } from "../../core/time.ts";
import { userOf } from "../../core/user.ts";
import { eventTypes } from "../../protocol/event.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { RunStatus } from "../../protocol/run.ts";
import type { Agent, AgentDeclaration, AgentFunction, AgentOptions, Registration } from "../agent/agent.ts";
import { newAgent } from "../agent/agent.ts";
import type { DurableContext } from "../agent/agent-context.ts";
import { checkInput } from "../agent/agent-schemas.ts";
import {
  badArgument,
  checkAmount,
  checkFunction,
  checkKey,
  checkKeys,
  checkObject,
  maxLengths,
  readGiven,
} from "../agent/check.ts";
import { recordedValue } from "../agent/recorded.ts";
import type { Demotion } from "../agent/registry.ts";
import { Registry } from "../agent/registry.ts";
import type { RunsReport } from "../log/shared-by-runs.ts";
import type { AnnouncedType, EventListener } from "../runs/announcer.ts";
import { Announcer } from "../runs/announcer.ts";
import { Trail, told } from "../runs/audit.ts";
import type { LiveRun } from "../runs/live-run.ts";
import type { RuntimeOptions, Settings } from "../runs/options.ts";
import { readOptions } from "../runs/options.ts";
import type { RemoteReport } from "../runs/remote-runs.ts";
import { engineOf } from "../runs/remote-runs.ts";
import { Runs } from "../runs/runs.ts";
import type { GivenRun, Inside } from "./inside.ts";
import { insideKey } from "./inside.ts";
import { readNewRun } from "./read-new-run.ts";
import { Scope } from "./scope.ts";
import type { ScopeParts } from "./scope-reads.ts";

/** The state of a runtime, as `stats()` reports it. */
export interface RuntimeStats extends RunsReport, RemoteReport {
  /**
   * The counters of each registered agent since the store was created: ended runs, times in milliseconds, tokens by
   * kind.
   */
  readonly agents: Readonly<Record<string, Counters>>;
  /** What operators have paused in the whole store, the oldest first, since when and by whom. Null: it is not known by whom. */
  readonly pauses: readonly (NewPause & { readonly since: string; readonly by: JsonValue })[];
}

/** The runs that had not ended when a runtime was closed. */
export interface CloseReport {
  /** Those that this process had loaded. */
  readonly left: readonly {
    readonly run_id: string;
    readonly agent_name: string;
    readonly status: RunStatus;
    /** A description of what it waited for. */
    readonly waits_for: string;
  }[];
}

type LeftRun = CloseReport["left"][number];

const announcedTypes: readonly AnnouncedType[] = [...eventTypes, "run.blocked"];

const noRemoteRuns: RemoteReport = {
  ...{ blocked: [], unregistered: 0, lines: [], damaged: [], differences: 0 },
  heartbeatAgeMs: null,
};

const DRAIN_MS = 10_000;
/** How long the store may take to answer after the drain, in milliseconds. */
const STORE_CLOSE_MS = 10_000;

/**
 * Runs agents inside a Node process: registers them by name, and executes their runs. It is the {@link Scope} of the
 * tenant "" with the principal null.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 *
 * const runtime = new AgentRuntime({ timeoutMs: 60_000 });
 * runtime.register("echo", async function* (input) {
 *   yield* input;
 * });
 * const run = await runtime.createRun({ agent_name: "echo", input: "Hello" });
 * console.log(run.status); // → completed
 * await runtime.close();
 * ```
 */
export class AgentRuntime<Names extends string = never> extends Scope<Names> {
  readonly #settings: Settings;
  readonly #registry: Registry;
  readonly #runs: Runs;
  readonly #announcer: Announcer;
  #closing: Promise<CloseReport> | undefined;
  /** A durable agent works in a store that is not durable, too, until the process ends. The logger gets one warning. */
  readonly #warnOfStore: (agent: Agent) => void;
  /** The runs that were to end or to be handed on while the runtime was closed. */
  readonly #left = new Map<LiveRun, LeftRun>();

  /** Throws `invalid_argument` for an unknown or invalid option. */
  constructor(options: RuntimeOptions & { readonly agents?: readonly Agent<Names>[] | undefined } = {}) {
    checkObject("options", options);
    const { agents = [], ...others } = options;
    const settings = readOptions(others);
    const registry = new Registry(settings.work === undefined ? "elsewhere" : "here");
    const announcer = new Announcer(settings.logger, settings.clock);
    const runs = new Runs(settings, engineOf(options.store), registry, announcer);
    super({ settings, registry, runs }, "", null);
    this.#settings = settings;
    this.#registry = registry;
    this.#runs = runs;
    this.#announcer = announcer;
    this.#warnOfStore = warningOnce(
      settings.logger,
      'An agent is durable, and the store is not: its runs end with this process. Use a store of "cadenza/sqlite" or "cadenza/postgres", or durable(store) of "cadenza/store".',
      ({ name }) => ({ agent_name: name }),
    );
    if (!Array.isArray(agents)) throw badArgument("options.agents", "a list of agents", agents);
    // A list may have gaps, which `map` would keep.
    this.#add(Array.from(agents, (agent) => readAgent(agent, {})));
  }

  /** For the entries of this package. */
  get [insideKey](): Inside<Scope> {
    const { store, pauses, isClosed } = this.#runs.shared;
    const { interceptors, feed, onAudit: audit, perTenant, clock } = this.#settings;
    return {
      ...{ store, registry: this.#registry, interceptors, feed, pauses, audit, isClosed, clock },
      readersPerTenant: perTenant.readers,
      scope: (tenant, principal, told) => {
        const settings = told === "untold" ? { ...this.#settings, onAudit: undefined } : this.#settings;
        return new Scope({ ...this.#parts, settings, forks: "anywhere" }, tenant, principal);
      },
      told: ({ action, tenant, by, ...about }, call) => {
        let repeated: true | undefined;
        const unchanged = (): void => {
          repeated = true;
        };
        const trail = audit && new Trail(audit, this.logger, tenant, by);
        return told(
          trail,
          action,
          about,
          () => call(unchanged),
          () => ({ repeated }),
        );
      },
      checkInput: (agent, input) => checkInput(agent, input, this.#runs.shared),
      register: (agent) => this.#registerForOperators(agent),
      begin: (agent, request) => this.#beginGiven(agent, request),
    };
  }

  #registerForOperators(agent: Agent): Agent {
    const { name, options } = agent;
    const known = this.#registry.known(name, options.version);
    if (known !== undefined) return known;
    this.#registry.add([agent]);
    return agent;
  }

  async #beginGiven(
    agent: Agent,
    { tenant = OPERATORS, principal, input = "", name, options = {} }: GivenRun,
  ): Promise<RunKey> {
    const request = readNewRun({ agent_name: agent.name, input }, options, tenant, principal, undefined);
    const created = await this.#runs.create({ ...request, idempotencyKey: name && ownKey(...name) }, agent);
    if ("elsewhere" in created) return created.elsewhere;
    const { run } = created;
    try {
      await run.log.acknowledge();
    } finally {
      run.begin();
    }
    return run.log.key;
  }

  get #parts(): ScopeParts {
    return { settings: this.#settings, registry: this.#registry, runs: this.#runs };
  }

  /** The clock of the runtime. */
  get clock(): Clock {
    return this.#settings.clock;
  }

  /** The logger of the runtime. It takes the messages that no caller waits for. */
  get logger(): Logger {
    return this.#settings.logger;
  }

  /**
   * Registers an agent; new runs of its name use it, unless `current` says otherwise. Throws `agent_exists` if this name
   * and version is registered, unless `replace` is true. Throws `invalid_argument` for an invalid name or option, and for
   * a second version of a name that says `current: true`.
   *
   * @example
   * ```ts
   * import { AgentRuntime, defineAgent } from "cadenza";
   *
   * const runtime = new AgentRuntime();
   * runtime.register("hello", () => "Hello!");
   * runtime.register("greet", { description: "Greets by name.", timeoutMs: 5_000 }, async (_input, { ask }) => {
   *   const name = await ask("Who are you?");
   *   return { name };
   * });
   * runtime.register(defineAgent("bye", () => "Bye!"));
   * ```
   */
  register<const Name extends string>(agent: Agent<Name>, options: Registration): AgentRuntime<Names | Name>;
  register<const Name extends string>(...agents: readonly Agent<Name>[]): AgentRuntime<Names | Name>;
  register<const Name extends string>(name: Name, fn: AgentFunction): AgentRuntime<Names | Name>;
  register<const Name extends string>(
    name: Name,
    options: AgentOptions & Registration & { readonly durable: true },
    fn: AgentFunction<DurableContext>,
  ): AgentRuntime<Names | Name>;
  register<const Name extends string>(
    name: Name,
    options: AgentOptions & Registration,
    fn: AgentFunction,
  ): AgentRuntime<Names | Name>;
  register(...given: readonly unknown[]): AgentRuntime<string> {
    this.#add(readAgents(given));
    return this;
  }

  /**
   * Makes agents known that other processes execute. This process accepts, shows, answers and cancels their runs, also as
   * sub-runs of its own. Give the agent as it is registered elsewhere, or its name and what is to be known of it: version,
   * schemas and `durable` as there. Throws `invalid_argument` for an invalid name or option, and if no other process can
   * see the store; throws `agent_exists` if this name and version is known.
   */
  declare<const Name extends string>(
    ...agents: readonly (Agent<Name> | AgentDeclaration<Name>)[]
  ): AgentRuntime<Names | Name> {
    if (!this.#settings.isShared) throw unsharedError();
    this.#warnOf(this.#registry.declare(agents.map(readDeclared)));
    return this as AgentRuntime<Names | Name>;
  }

  #add(agents: readonly Agent[]): void {
    this.#warnOf(this.#registry.add(agents));
    if (this.#runs.isDurable) return;
    for (const agent of agents)
      if (agent.options.durable === true && this.#registry.executes(agent)) this.#warnOfStore(agent);
  }

  #warnOf(demotions: readonly Demotion[]): void {
    for (const demotion of demotions)
      this.#settings.logger.warn(
        "New runs of an agent use an older version from now on, since it was registered last. Say which version is current, with { current: true } or { current: false }.",
        demotion,
      );
  }

  /**
   * The runs and sessions of one tenant. A scope cannot see the runs and sessions of other tenants. Agents see `principal` as
   * `context.principal`. With `owns: true` only the runs and sessions exist that the principal has created: it then has to
   * name a user, as a text or as an object with an `id`, of at most 255 characters. Defaults: the tenant "", the principal
   * null, and all runs of the tenant. Throws `invalid_argument` for a tenant that is no string of at most 128 characters,
   * and for a principal that is not JSON, or with `owns` names no user.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * const ada = runtime.scope({ principal: { id: "ada" }, owns: true });
   * await ada.createRun({ agent_name: "echo", input: "Hello" });
   * console.log((await ada.listRuns()).length, (await runtime.listRuns()).length); // → 1 1
   * const bob = runtime.scope({ principal: { id: "bob" }, owns: true });
   * console.log((await bob.listRuns()).length); // → 0
   * ```
   */
  scope(
    options: { readonly tenant?: string; readonly principal?: JsonValue; readonly owns?: boolean } = {},
  ): Scope<Names> {
    checkObject("options", options);
    checkKeys("options", options, ["tenant", "principal", "owns"]);
    const { tenant = "", principal = null, owns = false } = options;
    if (tenant !== "") checkKey("options.tenant", tenant, maxLengths.tenant);
    if (isOwn(tenant)) throw badArgument("options.tenant", "a name that is not reserved", tenant);
    const by = frozen(recordedValue("options.principal", principal) ?? null);
    if (typeof owns !== "boolean") throw badArgument("options.owns", "true or false", owns);
    const onlyOf = owns ? userOf(by) : undefined;
    if (owns && onlyOf === undefined) throw badArgument("options.principal", "a text or an object with an id", by);
    return new Scope(this.#parts, tenant, by, onlyOf);
  }

  /**
   * Calls a listener with each event of one type, of all runs and tenants that this process executes, after the event
   * is committed. What other processes execute is not heard here, and nothing with `work: false`: see {@link watch}. Throws
   * `invalid_argument` for an unknown type.
   */
  on<Type extends AnnouncedType>(type: Type, listener: EventListener<Type>): this {
    return this.#listen(type, listener, "always");
  }

  /** As {@link on}, but only for the next event. */
  once<Type extends AnnouncedType>(type: Type, listener: EventListener<Type>): this {
    return this.#listen(type, listener, "once");
  }

  /** Removes a listener. Does nothing if it was not added. */
  off<Type extends AnnouncedType>(type: Type, listener: EventListener<Type>): this {
    checkType(type);
    checkFunction("listener", listener);
    this.#announcer.remove(type, listener);
    return this;
  }

  /**
   * Counts the runs of this process, and reads the counters and the runs that need attention from the store. Rejects
   * with `store_failed` if the store fails.
   */
  async stats(): Promise<RuntimeStats> {
    const agents: Record<string, Counters> = {};
    for (const { name } of this.#registry.all())
      agents[name] = (await this.#settings.store.counters(name)) ?? noCounters;
    const pauses = (await this.#settings.store.pauses()).map(({ at, ...pause }) => ({ ...pause, since: isoTime(at) }));
    return { ...this.#runs.report, ...((await this.#runs.remote?.report()) ?? noRemoteRuns), agents, pauses };
  }

  /**
   * Accepts no new runs, waits up to `drainMs` milliseconds (default 10,000) for active runs to rest, and closes the
   * store. Resolves with the runs that have not ended. A durable run in a persistent store begins no more steps in the
   * second half of this time. As soon as none of its steps is at work, it is released and continues in another process.
   * Any other run fails at the end with the reason `interrupted`. A repeated call gives the same promise. Errors
   * of the store go to the logger. A store that does not answer is waited for 10,000 milliseconds after the drain.
   * Rejects with `invalid_argument` for an invalid option.
   */
  close(options: { readonly drainMs?: number } = {}): Promise<CloseReport> {
    let drainMs: number;
    try {
      drainMs = readGiven("options", readDrain, options);
    } catch (error) {
      return Promise.reject(error);
    }
    this.#closing ??= this.#runs.shared.holdFor(this.#closeInTime(drainMs));
    return this.#closing;
  }

  /** Closes, and waits no longer for a store that does not answer. Its runs are left as they are. */
  #closeInTime(drainMs: number): Promise<CloseReport> {
    const { clock, logger } = this.#settings;
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        for (const run of this.#runs) this.#note(run);
        logger.error(
          "The store did not answer while the runtime was closed. Other processes go on with its runs later.",
        );
        this.#leave();
        resolve({ left: [...this.#left.values()] });
      };
      const inTime = drainMs + STORE_CLOSE_MS;
      const cancel = inTime === Number.POSITIVE_INFINITY ? ignore : clock.setTimeout(giveUp, inTime);
      inBackground(logger, this.#close(drainMs).then(resolve, reject).finally(cancel));
    });
  }

  async #close(drainMs: number): Promise<CloseReport> {
    const { store, logger } = this.#settings;
    const end = async (run: LiveRun): Promise<void> => {
      const released = run.mayLeave ? run.residence?.release() : undefined;
      if (released !== undefined) {
        await released;
        run.leave("The runtime was closed.");
        return undefined;
      }
      run.fail(leftError(run.log.key.run_id));
      return run.log.acknowledge();
    };
    const ending: Promise<void>[] = [];
    const endLater = (run: LiveRun): void => {
      this.#note(run);
      const ended = end(run).catch((error: unknown) =>
        logger.error("A run could not be released or failed while the runtime was closed.", {
          ...aboutRun(run.log),
          error,
        }),
      );
      ending.push(ended);
    };
    await this.#runs.drain(drainMs, endLater);
    const rest = [...this.#runs].filter((run) => !this.#left.has(run));
    for (const run of rest) this.#note(run);
    for (const run of rest) endLater(run);
    await Promise.all(ending);
    this.#leave();
    for (const close of [() => this.#runs.remote?.stop("executing"), () => store.close()]) {
      try {
        await close();
      } catch (error) {
        logger.error("The store failed to close.", { error });
      }
    }
    return { left: [...this.#left.values()] };
  }

  #note(run: LiveRun): void {
    if (!this.#left.has(run)) this.#left.set(run, leftRun(run));
  }

  #leave(): void {
    for (const run of this.#runs) run.leave("The runtime was closed.");
    this.#runs.end();
    this.#announcer.removeAll();
  }

  #listen<Type extends AnnouncedType>(type: Type, listener: EventListener<Type>, times: "always" | "once"): this {
    checkType(type);
    checkFunction("listener", listener);
    this.#announcer.add(type, listener, times, this.#runs);
    return this;
  }
}

/** The agents that `register` is given, in any of its forms. */
function readAgents(given: readonly unknown[]): readonly Agent[] {
  const [first, second, third] = given;
  if (typeof first === "string") {
    const [options, fn] = third === undefined ? [{}, second] : [second, third];
    return [newAgent(first, options as AgentOptions, fn as AgentFunction, "plain")];
  }
  if (given.length === 2 && !isAgent(second)) {
    const options = second ?? {};
    checkObject("options", options);
    checkKeys("options", options, ["replace", "current"]);
    return [readAgent(first, options)];
  }
  return given.map((agent) => readAgent(agent, {}));
}

function readDeclared(given: Agent | AgentDeclaration): Agent {
  if (isAgent(given)) return readAgent(given, {});
  checkObject("agent", given);
  const { name, ...options } = given as AgentDeclaration;
  return newAgent(name, options, executedElsewhere, "typed");
}

function unsharedError(): CadenzaError {
  const message = "Another process executes a declared agent, and no other process sees the runs of this store.";
  return new CadenzaError("invalid_argument", `${message} Use a persistent one, as of "cadenza/sqlite".`);
}

function executedElsewhere(): never {
  throw new Error("Another process executes this agent.");
}

function isAgent(value: unknown): value is Agent {
  return typeof value === "object" && value !== null && "fn" in value;
}

function readAgent(agent: unknown, extra: Registration): Agent {
  checkObject("agent", agent);
  const { name, options, fn } = agent as Agent;
  return newAgent(name, { ...options, ...extra }, fn, "typed");
}

function checkType(type: unknown): void {
  const types: readonly unknown[] = announcedTypes;
  if (!types.includes(type)) throw badArgument("type", `one of ${announcedTypes.join(", ")}`, type);
}

function leftError(runId: string): CadenzaError {
  return new CadenzaError("interrupted", "The runtime was closed before the run ended.", { run_id: runId });
}

function leftRun(run: LiveRun): LeftRun {
  const { status } = run.log.state;
  return { run_id: run.log.key.run_id, agent_name: run.agent.name, status, waits_for: waitsFor(run) };
}

/** What a run waits for, in words. */
function waitsFor({ log, execution }: LiveRun): string {
  const { status, question, waits } = log.state;
  if (status === "created") return "a slot";
  if (question !== null) return `the answer to ${question.asked.await_id}`;
  const [wait] = waits?.keys() ?? [];
  return wait ?? execution?.waitsFor ?? "nothing";
}

function readDrain(options: { readonly drainMs?: number }): number {
  checkObject("options", options);
  checkKeys("options", options, ["drainMs"]);
  const { drainMs = DRAIN_MS } = options;
  checkAmount("options.drainMs", drainMs);
  return drainMs;
}
