import type { Entry } from "../core/log.ts";
import { isPassedOn } from "../core/log.ts";
import type { RunKey } from "../core/ports.ts";
import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { isAtRest, isFinal } from "../core/state.ts";
import type { Message } from "../protocol/message.ts";
import type { AwaitResume, Run } from "../protocol/run.ts";
import type { Agent } from "../runtime/agent.ts";
import { AgentRuntime } from "../runtime/agent-runtime.ts";
import type { RunInput } from "../runtime/input.ts";
import { readInput } from "../runtime/input.ts";
import type { Scope, Session } from "../runtime/scope.ts";
import type { StageHooks } from "./cast.ts";
import { Cast } from "./cast.ts";
import type { DriveSettings } from "./drive-options.ts";
import type { FakeClock } from "./fake-clock.ts";
import { createFakeClock } from "./fake-clock.ts";
import { Gate } from "./gate.ts";
import { realPause, realTurn } from "./real-time.ts";
import { RunView } from "./run-view.ts";
import { sequentialIds } from "./sequential-ids.ts";
import { WatchedStore } from "./watched-store.ts";

/** How long to wait for an agent. */
export interface Patience {
  /** Of the machine's time, in milliseconds without a sign of life. */
  readonly patienceMs: number;
  /** How many turns an agent may be busy. Default: 100,000. */
  readonly turns?: number | undefined;
  /** How far the clock may be moved while the agent waits for it, in milliseconds since the epoch. Default: it stands still. */
  readonly until?: number | undefined;
  /** Whether the clock is moved for the pauses between two attempts of a step, as long as no question expires by that. */
  readonly passesPauses?: boolean | undefined;
}

const SESSION_ID = "00000000-0000-4000-8000-0000005e5510";
/** After this many turns without a sign of life, an agent waits for something. */
const QUIET_TURNS = 10;
/** An agent that is busy for this many turns without showing anything is not going to. */
const MAX_BUSY_TURNS = 100_000;
const LONGEST_PAUSE_MS = 20;

/** One run of one agent, in a runtime of its own: the agent is held at a gate, and all that happens is in view. */
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
  #begun: Promise<unknown> | undefined;

  constructor(agent: Agent, input: RunInput, settings: DriveSettings, hooks: StageHooks = {}) {
    this.agent = agent;
    this.settings = settings;
    this.#input = readInput(input);
    this.clock = createFakeClock(settings.now === undefined ? {} : { now: settings.now });
    this.#store = new WatchedStore((key, entries) => this.#onWrite(key, entries));
    this.#runtime = new AgentRuntime({
      store: this.#store,
      clock: this.clock,
      ids: sequentialIds(hooks.firstId),
      retention: { maxAgeMs: Number.POSITIVE_INFINITY, maxIdleSessionMs: Number.POSITIVE_INFINITY },
      awaitTimeoutMs: settings.awaitTimeoutMs,
      cancelGraceMs: settings.cancelGraceMs,
    });
    this.#scope = this.#runtime.scope({ principal: settings.principal });
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

  /** What the runtime counted beside the log. */
  async report(): Promise<{ readonly dropped: number; readonly hung: number }> {
    return this.#runtime.stats();
  }

  /** Creates the run. The agent is called as soon as the gate is open. */
  begin(): Promise<unknown> {
    this.#begun ??= this.#create();
    return this.#begun;
  }

  async resume(answer: AwaitResume, awaitId?: string): Promise<void> {
    await this.#scope.resume({ run_id: this.#runId, await_resume: answer, await_id: awaitId, mode: "async" });
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

  /**
   * Waits until something is so. False: it does not become so; the agent waits for an answer, for the clock, or for
   * something of which there is no sign. Throws what the test does not provide for.
   */
  async until(
    goal: () => boolean,
    { patienceMs, until, passesPauses = false, turns: maxTurns = MAX_BUSY_TURNS }: Patience,
  ): Promise<boolean> {
    let paused = 0;
    let pause = 1;
    let signs = this.#signsOfLife;
    let quiet = 0;
    for (let turns = 0; turns < maxTurns; turns++) {
      if (this.cast.mistake !== undefined) throw this.cast.mistake;
      if (goal()) return true;
      if (quiet < QUIET_TURNS) await realTurn();
      else {
        const { nextDue } = this.clock;
        const limit = passesPauses && this.cast.isPausing ? this.#nextExpiry - 1 : until;
        if (nextDue !== undefined && limit !== undefined && nextDue <= limit) await this.clock.set(nextDue);
        else if (this.state?.status === "awaiting" || paused >= patienceMs) return false;
        else {
          await realPause(pause);
          paused += pause;
          pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
        }
      }
      const now = this.#signsOfLife;
      quiet = now === signs ? quiet + 1 : 0;
      if (now !== signs) paused = 0;
      signs = now;
    }
    return false;
  }

  /** When the question that is shown expires, in milliseconds since the epoch. */
  get #nextExpiry(): number {
    const { deadline, expires_at } = this.state?.shown ?? {};
    const passedOn = expires_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(expires_at);
    return Math.min(deadline ?? Number.POSITIVE_INFINITY, passedOn);
  }

  get #runId(): string {
    return this.state?.run_id ?? "";
  }

  /** While it stays the same, nothing is done that can be seen. */
  get #signsOfLife(): number {
    return this.clock.uses + this.cast.operations.length;
  }

  async #create(): Promise<void> {
    const { session, timeoutMs } = this.settings;
    const sessionId = session === undefined ? undefined : (session.id ?? SESSION_ID);
    if (session !== undefined && sessionId !== undefined) {
      const history = session.history === undefined ? [] : readInput(session.history);
      const key = { tenant: "", session_id: sessionId };
      this.#store.putSession(key, { history, state: session.state ?? null }, this.clock.now());
    }
    await this.#scope.createRun(
      { agent_name: this.agent.name, input: this.#input, session_id: sessionId, mode: "async" },
      timeoutMs === undefined ? {} : { timeoutMs },
    );
  }

  #onWrite({ run_id }: RunKey, entries: readonly Entry[]): void {
    const [first] = entries;
    if (first?.type === "created" && first.parent === undefined) this.view ??= new RunView(run_id);
    if (this.view === undefined || this.state?.run_id !== run_id) return;
    for (const entry of entries) {
      const happening = this.view.add(entry, this.cast.conduct.thrown?.error);
      // What is over is held no longer: what it still does is what is looked for.
      if (happening?.type === "end") this.gate.free();
      // The agent closes the gate itself; what its sub-agents ask closes it here.
      else if (happening?.type === "await" && isPassedOn(happening.await_id)) this.gate.close();
    }
  }
}
