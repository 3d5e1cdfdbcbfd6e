import { CadenzaError } from "../../core/errors.ts";
import { evolve } from "../../core/evolve.ts";
import { messageOf } from "../../core/failure.ts";
import type { Entry } from "../../core/log.ts";
import type { Clock, Mismatch, RunHead, RunKey, Store } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore } from "../../core/promises.ts";
import { initialState } from "../../core/state.ts";
import type { Run } from "../../protocol/run.ts";
import type { Agent, AgentFunction } from "../../runtime/agent/agent.ts";
import type { AgentContext } from "../../runtime/agent/agent-context.ts";
import type { Interceptors } from "../../runtime/agent/interceptors.ts";
import { readInterceptors } from "../../runtime/agent/interceptors.ts";
import { Registry } from "../../runtime/agent/registry.ts";
import type { Execution, NewSubRun } from "../../runtime/execution/execution.ts";
import type { Journal, JournaledAgent, Operation, Residence } from "../../runtime/execution/operations.ts";
import { eachInTurns } from "../../runtime/log/fold-log.ts";
import { SharedByRuns } from "../../runtime/log/shared-by-runs.ts";
import { StepLimits } from "../../runtime/log/step-limits.ts";
import { StoreClock } from "../../runtime/log/store-clock.ts";
import { systemIds } from "../../runtime/log/system.ts";
import type { LiveRuns } from "../../runtime/runs/live-run.ts";
import { LiveRun } from "../../runtime/runs/live-run.ts";
import { readOptions } from "../../runtime/runs/options.ts";
import { executionSettings } from "../../runtime/runs/runs.ts";
import { runSubRun } from "../../runtime/runs/sub-run.ts";
import { AgentJournal } from "./agent-journal.ts";
import { History } from "./history.ts";
import type { JournalEvent } from "./result-queue.ts";

/** A run that code is tried on, and what it may read. */
export interface DryRun {
  readonly key: RunKey;
  readonly agent: Agent;
  readonly head: RunHead;
  /** Its log, at least `created` and the last generation. */
  readonly entries: readonly Entry[];
  /** Called with each operation that the code begins, and the function that it was given. Left out: no call. */
  readonly onOperation?: ((key: string, body: unknown) => void) | undefined;
  /** Called when the code emits another value than the history holds. Left out: no call. */
  readonly onDifference?: (() => void) | undefined;
}

/** Where code and history part. `at`: the line of the code, as the stack has it; null where it is unknown. */
export interface DryMismatch extends Mismatch {
  readonly at: string | null;
}

/** What runs are replayed with. */
export interface DrySettings {
  readonly clock: Clock;
  /** How long code may take to its next operation, in milliseconds. */
  readonly stallMs: number;
  readonly placeOf: PlaceOf;
  /** What wraps the call of an agent. */
  readonly wrap: Interceptors["run"];
}

/** Gives the place of the code that calls `callee`. */
export type PlaceOf = (callee: (...parameters: never[]) => unknown) => string | undefined;

/**
 * Replays runs against code and writes nothing. No body of a step runs. An operation that the history does not hold does not
 * begin: the agent is left where it asks for it. Code between operations runs, as in each replay.
 */
export class DryReplay {
  readonly #store: Store;
  readonly #settings: DrySettings;
  readonly #sharedBy: (run: Interceptors["run"]) => SharedByRuns;

  /** `store`: what agents read of their sessions. */
  constructor(store: Store, settings: DrySettings) {
    this.#store = readOnly(store);
    this.#settings = settings;
    this.#sharedBy = sharing(this.#store, settings.clock);
  }

  /**
   * Resolves with where the code and the history part. Undefined: they match. `onQuiet` is called when the replay only waits
   * for the code to go on.
   */
  async mismatch(
    { key, agent, head, entries, onOperation = ignore, onDifference = ignore }: DryRun,
    onQuiet: () => void = ignore,
  ): Promise<DryMismatch | undefined> {
    const state = initialState(key.run_id);
    const history = new History();
    const { clock, stallMs, placeOf, wrap } = this.#settings;
    await eachInTurns(this.#store, entries, (entry) => {
      evolve(state, entry);
      history.add(entry);
    });
    // Its agent is called for the first time, or a cancel ends it whatever its code does.
    if (history.startedAt === undefined || state.status === "cancelling") return undefined;
    const places = new Places(placeOf, onOperation);
    let journal: Journal | undefined;
    const wrapped = wrap && told(wrap, (error) => journal?.end(error));
    const shared = this.#sharedBy(wrapped);
    return new Promise((resolve) => {
      const clearQuiet = clock.setTimeout(onQuiet, QUIET_MS);
      let isOver = false;
      const end = (mismatch: Mismatch | undefined): void => {
        if (isOver) return;
        isOver = true;
        clearQuiet();
        run.leave("The run was replayed to check its code.", "evicted");
        resolve(mismatch && { ...mismatch, at: places.of(mismatch) });
      };
      const tell = (event: JournalEvent): void => {
        if (event === "difference") onDifference();
        else if (event === "caught up") end(undefined);
        else end("stall" in event ? event.stall : event.mismatch);
      };
      const journalOf = (journaled: JournaledAgent): Journal => {
        journal = noted(new AgentJournal(journaled, tell, history, stallMs), places, () => end(undefined));
        return journal;
      };
      const run = new LiveRun(new DryRuns(shared, journalOf), key, { ...agent, fn: places.noted(agent.fn) });
      run.log.adopt(state, head, 0);
      run.execute();
    });
  }
}

/** After so long a replay is taken for one that waits for its code, in milliseconds. */
const QUIET_MS = 50;

/** The places of the operations in the code. */
class Places {
  readonly #placeOf: PlaceOf;
  readonly #of = new Map<string, string>();
  /** The place of the call of the context that is at work. */
  #current: string | undefined;
  #last: string | undefined;
  /** The function that this call was given. */
  #body: unknown;
  readonly #onOperation: NonNullable<DryRun["onOperation"]>;

  constructor(placeOf: PlaceOf, onOperation: NonNullable<DryRun["onOperation"]>) {
    this.#placeOf = placeOf;
    this.#onOperation = onOperation;
  }

  /** The operation is begun. */
  add({ key }: Operation): void {
    this.#onOperation(key, this.#body);
    if (this.#current !== undefined) this.#of.set(key, this.#current);
  }

  /** Where the code does something else than its history; else where it last did the same. */
  of({ asked }: Mismatch): string | null {
    const keys = asked.split(", ").map((part) => part.split(" ")[0] ?? "");
    const found = keys.find((key) => this.#of.has(key));
    return (found === undefined ? undefined : this.#of.get(found)) ?? this.#last ?? null;
  }

  /** The agent function with a context that notes where it is called. */
  noted(fn: AgentFunction): AgentFunction {
    return (input, context) => fn(input, this.#notedContext(context));
  }

  #notedContext(context: AgentContext): AgentContext {
    return new Proxy(context, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        const call = (...parameters: unknown[]): unknown => {
          const place = this.#placeOf(call);
          const before = this.#current;
          this.#body = parameters.find((parameter) => typeof parameter === "function");
          this.#current = place ?? before;
          this.#last = place ?? this.#last;
          try {
            return Reflect.apply(member, target, parameters);
          } finally {
            this.#current = before;
            this.#body = undefined;
          }
        };
        return call;
      },
    });
  }
}

/**
 * Has a journal note where operations begin, and tell of the end of its agent: one that ends as its history allows has no
 * turn in which it catches up.
 */
function noted(journal: AgentJournal, places: Places, onEnd: () => void): Journal {
  const begin = journal.begin.bind(journal);
  const end = journal.end.bind(journal);
  return Object.assign(journal, {
    begin: (operation?: Operation) => {
      if (operation !== undefined) places.add(operation);
      begin(operation);
    },
    end: (error: unknown) => {
      end(error);
      if (error !== undefined) onEnd();
    },
  });
}

/** Has an interceptor tell that it has ended and not called the agent: the run ends with it. */
function told(wrap: NonNullable<Interceptors["run"]>, onUncalled: (error: unknown) => void): Interceptors["run"] {
  return async (info, next) => {
    let isCalled = false;
    let why = "";
    try {
      return await wrap(info, () => {
        isCalled = true;
        return next();
      });
    } catch (error) {
      why = `: ${messageOf(error)}`;
      throw error;
    } finally {
      if (!isCalled) onUncalled(new Error(`an interceptor has not called it${why}`));
    }
  };
}

/** The runs as a replay that writes nothing sees them: no other run is there, and none begins. */
class DryRuns implements LiveRuns {
  readonly shared: SharedByRuns;
  readonly registry = new Registry("here");
  readonly ids = systemIds;
  readonly capacity = 0;
  readonly #journalOf: (agent: JournaledAgent) => Journal;

  constructor(shared: SharedByRuns, journalOf: (agent: JournaledAgent) => Journal) {
    this.shared = shared;
    this.#journalOf = journalOf;
  }

  residenceOf(): Residence {
    return {
      plan: refuse,
      onConflict: refuse,
      note: ignore,
      sync: nothing,
      whenAnswerable: nothing,
      phase: "catching up",
      slot: nothing,
      journal: this.#journalOf,
      release: async () => undefined,
    };
  }

  /** It is an operation, which does not begin. */
  runAgent(parent: LiveRun, execution: Execution, request: NewSubRun): Promise<Run> {
    return runSubRun(parent, execution, request);
  }

  async expect<Result>(_runs: number, work: () => MaybePromise<Result>): Promise<Result> {
    return work();
  }

  find = nothing;
  add = ignore;
  cancelSubRun = nothing;
  onSettled = ignore;
  onBlocked = ignore;
  onGone = ignore;
  acceptSubRun = refuse;
  findSubRun = async () => undefined;
  cancelAnywhere = async () => undefined;

  *[Symbol.iterator](): Iterator<LiveRun> {
    // There is no other run.
  }
}

/** What runs share that only read their store. Each has what wraps the call of its agent. */
function sharing(store: Store, clock: Clock): (run: Interceptors["run"]) => SharedByRuns {
  const options = readOptions({ clock });
  const { logger } = options;
  const storeClock = new StoreClock(clock, noTime);
  const stepLimits = new AnyLimit({}, { grant: refuse, permit: refuse }, storeClock, logger);
  const settings = { ...executionSettings(options), stepLimits };
  const none = readInterceptors();
  return (run) => new SharedByRuns(store, storeClock, logger, { ...settings, interceptors: { ...none, run } });
}

/** A store that lasts, and is only read. */
function readOnly(store: Store): Store {
  return new Proxy(store, {
    get(target, name) {
      if (!reads.has(name)) return name === "persistent" ? true : refuse;
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}

const noTime: Pick<Store, "time"> = {};
const reads: ReadonlySet<string | symbol> = new Set(["find", "read", "session", "sessionHead"]);

/** Steps may name any limit: which ones the processes have that execute the runs is not known. */
class AnyLimit extends StepLimits {
  override get names(): readonly string[] {
    return anyName;
  }
}

const anyName: readonly string[] = Object.assign([], { includes: () => true });

const nothing = (): undefined => undefined;

function refuse(): never {
  throw new CadenzaError("store_failed", "A run is replayed to check its code. Nothing is written.");
}
