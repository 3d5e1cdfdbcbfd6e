import type { Entry } from "../core/log.ts";
import type { RunKey } from "../core/ports.ts";
import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { isAtRest, isFinal, isWaiting } from "../core/state.ts";
import { durable } from "../durable/engine.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { Run } from "../protocol/run.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { readInput } from "../runtime/agent/input.ts";
import { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { ResumeRequest, Session } from "../runtime/runs/requests.ts";
import type { StageHooks } from "./cast.ts";
import { Cast } from "./cast.ts";
import type { DriveSettings } from "./drive-options.ts";
import type { FakeClock } from "./fake-clock.ts";
import { createFakeClock } from "./fake-clock.ts";
import { Gate } from "./gate.ts";
import { RunView } from "./run-view.ts";
import { sequentialIds } from "./sequential-ids.ts";
import { createRequest, seedSession } from "./stage-request.ts";
import type { Delivery, OpenWait } from "./supply.ts";
import { nextExpiry, openWaits, waitId } from "./supply.ts";
import type { WaitLimits } from "./until.ts";
import { passTo, waitUntil } from "./until.ts";
import { WatchedStore } from "./watched-store.ts";

/** How long to wait for an agent. */
export interface Patience extends WaitLimits {
  /**
   * How far the clock may be moved while the agent waits for it, in milliseconds since the epoch. Default: it stands
   * still.
   */
  readonly until?: number | undefined;
  /**
   * Whether the clock is moved when the agent does nothing but wait for it: in a sleep, in a receive, and between two
   * attempts of a step. No question expires by that. A receive in `holds` does not, either.
   */
  readonly passesTime?: boolean | undefined;
  readonly holds?: string | undefined;
}

/**
 * One run of one agent in a runtime of its own. The agent is held at a gate, and everything that happens is observable.
 */
export class Stage {
  readonly clock: FakeClock;
  readonly gate = new Gate();
  readonly cast: Cast;
  readonly agent: Agent;
  readonly settings: DriveSettings;
  /** The run; undefined before it is created. */
  view: RunView | undefined;
  readonly #input: readonly Message[];
  readonly #store: WatchedStore;
  readonly #runtime: AgentRuntime;
  readonly #scope: Scope;
  readonly #holdsAt: (entry: Entry) => boolean;
  #begun: Promise<unknown> | undefined;

  constructor(agent: Agent, input: RunInput, settings: DriveSettings, hooks: StageHooks = {}) {
    this.agent = agent;
    this.settings = settings;
    this.#input = readInput(input);
    this.clock = createFakeClock(settings.now === undefined ? {} : { now: settings.now });
    this.#store = new WatchedStore(this.clock, (key, entries) => this.#onWrite(key, entries));
    this.#runtime = new AgentRuntime({
      // A durable agent gets its results in the same order as on a store that outlives its process.
      store: durable(this.#store),
      clock: this.clock,
      ids: sequentialIds(hooks.firstId),
      retention: { maxAgeMs: Number.POSITIVE_INFINITY, maxIdleSessionMs: Number.POSITIVE_INFINITY },
      awaitTimeoutMs: settings.awaitTimeoutMs,
      cancelGraceMs: settings.cancelGraceMs,
    });
    this.#scope = this.#as(settings.principal);
    this.#holdsAt = hooks.holdsAt ?? (() => false);
    this.cast = new Cast(settings, this.gate, hooks, (one) => this.#runtime.register(one));
    this.cast.addLead(agent);
  }

  get state(): RunState | undefined {
    return this.view?.state;
  }

  get run(): Run | undefined {
    return this.state === undefined ? undefined : runRecord(this.state);
  }

  get isOver(): boolean {
    return this.state !== undefined && isFinal(this.state.status);
  }

  get isAtRest(): boolean {
    return this.state !== undefined && isAtRest(this.state.status);
  }

  get usage(): RunState["usage"] {
    return this.cast.lead?.usage.total ?? this.state?.usage ?? null;
  }

  /** What the runtime counts outside of the log. */
  async report(): Promise<{ readonly dropped: number; readonly hung: number }> {
    return this.#runtime.stats();
  }

  /** Creates the run. The agent is called once the gate is open. */
  begin(): Promise<unknown> {
    this.#begun ??= this.#create();
    return this.#begun;
  }

  /** Answers a question, or declines to. `by`: who does. Default: the principal of the run. */
  async reply(
    reply: Pick<ResumeRequest, "await_resume" | "decline">,
    awaitId?: string,
    by: JsonValue = this.settings.principal,
  ): Promise<void> {
    await this.#as(by).resume({ ...reply, run_id: this.#runId, await_id: awaitId, mode: "async" });
  }

  /** Sends a message. `by`: who does. Default: the principal of the run. */
  async send(name: string, data: unknown, by: JsonValue = this.settings.principal): Promise<void> {
    await this.begin();
    await this.#as(by).send({ to: this.#runId, name, data });
  }

  /** Sends a message to the run or to a sub-run. */
  async deliver({ run_id, name, data, idempotencyKey }: Delivery): Promise<void> {
    await this.#scope.send({ to: run_id, name, data }, { idempotencyKey });
  }

  /** The sleeps and receives that are open, those of sub-runs too. */
  get waits(): readonly OpenWait[] {
    return openWaits(this.#store.states);
  }

  async cancel(): Promise<void> {
    await this.begin();
    await this.#scope.cancel(this.#runId);
    this.gate.free();
  }

  async session(): Promise<Session> {
    await this.begin();
    return this.#scope.getSession(this.run?.session_id ?? "");
  }

  /** See {@link waitUntil}. */
  async until(goal: () => boolean, { until, passesTime = false, holds, ...limits }: Patience): Promise<boolean> {
    const stage = this;
    return waitUntil(
      goal,
      {
        get activity() {
          return stage.clock.uses + stage.cast.operations.length;
        },
        get isAwaiting() {
          const { state, cast } = stage;
          return state !== undefined && isWaiting(state) && (state.question !== null || !cast.isAtWork);
        },
        check: () => stage.cast.check(),
        pass: () => passTo(stage.clock, passesTime ? stage.#mayPassTo(holds) : until),
      },
      limits,
    );
  }

  /** Until when nothing but time can make the agent go on. Undefined: it does not wait for time alone. */
  #mayPassTo(holds: string | undefined): number | undefined {
    const { waits, cast } = this;
    const isWaiting = waits.length > 0 && !cast.isAtWork;
    if (!isWaiting && !cast.isPausing) return undefined;
    const held = waits.find((open) => waitId(open) === holds)?.wait.until ?? Number.POSITIVE_INFINITY;
    return Math.min(nextExpiry(this.#store.states), held) - 1;
  }

  #as(principal: JsonValue): Scope {
    return this.#runtime.scope({ principal });
  }

  get #runId(): string {
    return this.state?.run_id ?? "";
  }

  async #create(): Promise<void> {
    seedSession(this.#store, this.settings, this.clock.now());
    await this.#scope.createRun(...createRequest(this.agent, this.#input, this.settings));
  }

  #onWrite({ run_id }: RunKey, entries: readonly Entry[]): void {
    const [first] = entries;
    if (first?.type === "created" && first.parent === undefined) this.view ??= new RunView(run_id);
    if (this.view === undefined || this.state?.run_id !== run_id) return;
    for (const entry of entries) {
      const driveEvent = this.view.add(entry, this.cast.conduct.thrown?.error);
      // An agent whose run has ended is not held: what it still does is observed.
      if (driveEvent?.type === "end") this.gate.free();
      // The agent closes the gate itself. A question of its sub-agent closes it here.
      else if (entry.type === "awaited" ? entry.of !== undefined : this.#holdsAt(entry)) this.gate.close();
    }
  }
}
