import { nextTick } from "node:process";
import type { Clock, Ids, Logger, Scope } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { Entry, RunKey, Store, StoredRun } from "cadenza/store";
import { durable } from "cadenza/store";
import { BodyJudge } from "../body-judge.ts";
import type { DurableRuntimeOptions } from "../durable-runtime.ts";
import { misfed } from "../feed-judge.ts";
import type { CreatedEntry, MaybePromise, RunState } from "../internals.ts";
import { foldEntries, isPromise, RunMap } from "../internals.ts";
import { inboxIn } from "../judge.ts";
import type { Plant } from "../planted-faults.ts";
import { never } from "../promises.ts";
import type { Random } from "../random.ts";
import type { Method } from "../store-proxy.ts";
import { forgetful, hookedStore, isRead, lastingStore } from "../store-proxy.ts";
import { markOf } from "../tenants.ts";
import type { Disturbance } from "../time-judge.ts";
import { mistimed } from "../time-judge.ts";
import type { QueueWaker, WakeQueue } from "../wake-queue.ts";

/*
 * Simulates several processes on one store. Each has a runtime, a clock and a view of the store of its own, and can be
 * killed or frozen between any two of its actions. Time passes only when a test lets it.
 */

const START = Date.UTC(2031, 0, 1);
/** A world that takes more steps is stuck, if its options say nothing else. */
const MAX_STEPS = 300_000;
const ENDED = ["completed", "failed", "cancelled"] as const;
/** How long processes need to take over what another one has left, or to go on after the store has failed, in milliseconds. */
const RECOVERY_MS = 2_000;
/** How long a runtime waits before it writes again to a store that has failed, at most, in milliseconds. */
export const LONGEST_PAUSE_MS = 5_000;
/** Why a run may not be deleted. */
const refusals: readonly string[] = ["run_not_ended", "run_not_found"];

/** The call to the store at which a process dies. It takes effect or not, and is never answered. */
export interface Crash {
  readonly call: number;
  readonly after: boolean;
}

/**
 * Calls to the store that fail while their process lives: the one with this number, and those that follow within `ms`
 * milliseconds. They take effect or not. The process learns of it at once, or in a later turn.
 */
export interface Failure {
  readonly call: number;
  readonly after: boolean;
  readonly late: boolean;
  readonly ms?: number;
}

/** What a failing store says, which no client may see. */
export const SECRET = "password=hunter2 at 10.0.0.7";

export interface WorldOptions {
  /** The order of events. Default: first in, first out. */
  readonly random?: Random;
  /** The store answers in a later turn. */
  readonly late?: boolean;
  /**
   * Of a late store the writes alone take effect in the order of their calls: the reads come in any order, also before
   * writes that were called first, and so do all answers. Default: both keep the order of the calls.
   */
  readonly reorders?: boolean;
  /** The calls of the first process that fail. */
  readonly failure?: Failure | undefined;
  /** How long a write takes, in milliseconds, as on a slow disk. Default: none. */
  readonly writeMs?: number;
  /** Whether the store keeps a feed. Default: false. */
  readonly isFed?: boolean;
  /** The faults that a test plants. Default: none. */
  readonly plant?: Plant | undefined;
  readonly runtime?: DurableRuntimeOptions;
  /** The tenants whose runs there are. Default: the empty one. */
  readonly tenants?: readonly string[];
  /** After how many steps the world is stuck. */
  readonly maxSteps?: number;
  /** The ids of new runs. Undefined: the world gives one that no other run has. */
  readonly uuid?: () => string | undefined;
  /** The queue that wakes runs. Default: none. */
  readonly wakes?: WakeQueue | undefined;
  /** Called with each runtime when its process starts: registers the agents. */
  readonly register: (process: Process) => void;
}

export class World {
  readonly store: Store;
  readonly options: WorldOptions;
  readonly processes: Process[] = [];
  /** The broken rules. */
  readonly violations: string[] = [];
  readonly bodies = new BodyJudge(this.violations);
  now = START;
  steps = 0;
  /** How many runs clients have deleted, with those below them. */
  deletions = 0;
  /** By how much the wall clock is ahead of the time that has passed. Timers do not depend on it. */
  clockOffset = 0;
  #serial = 0;
  #stepping: Promise<void> | undefined;
  readonly #deleted = new RunMap<readonly Entry[]>();
  /** What was in the inboxes of the runs that were deleted. */
  readonly #leftBehind = new RunMap<readonly Entry[]>();
  /** When the store has taken the entries of each run. */
  readonly #taken = new RunMap<number[]>();
  readonly #disturbances: Disturbance[] = [];
  /** There is a process again that executes runs. */
  #isManned: (() => void) | undefined;
  /** The runs that a test looks at, which nothing may delete. */
  readonly #watched = new RunMap<RunKey>();
  /** The sub-runs that were made, by the run and the operation that has made them. */
  readonly #subRuns = new Map<string, string>();
  /** Those that belong to no process. */
  readonly #timers = new Set<Timer>();

  constructor(options: WorldOptions) {
    this.options = options;
    const feed = options.isFed === true ? { keepMs: Number.POSITIVE_INFINITY } : undefined;
    const store = lastingStore({ now: () => this.now }, feed);
    this.store = forgetful(options.plant?.store?.(store) ?? store);
  }

  /** The time of the wall clock. */
  get time(): number {
    return this.now + this.clockOffset;
  }

  /** The processes that are not dead. */
  get living(): readonly Process[] {
    return this.processes.filter(({ state }) => state !== "dead");
  }

  /** The processes that are neither dead nor frozen, and execute runs. */
  get workers(): readonly Process[] {
    return this.working.filter(({ isWeb }) => !isWeb);
  }

  /** The processes that are neither dead nor frozen. */
  get working(): readonly Process[] {
    return this.processes.filter(({ state }) => state === "alive");
  }

  /** `isWeb`: a process that executes no runs. */
  start(crash?: Crash, isWeb = false): Process {
    const process = new Process(this, `process-${this.processes.length + 1}`, crash, isWeb);
    this.processes.push(process);
    if (isWeb) this.bodies.webs.add(process.name);
    else this.#isManned?.();
    this.options.register(process);
    return process;
  }

  serial(): number {
    return ++this.#serial;
  }

  /** Lets one event happen, and all reactions to it. Of several that ask at once each gets an event of its own. */
  async step(): Promise<void> {
    while (this.#stepping !== undefined) await this.#stepping;
    this.#stepping = this.#step();
    await this.#stepping;
  }

  async #step(): Promise<void> {
    if (++this.steps > (this.options.maxSteps ?? MAX_STEPS))
      throw new Error(`The world does not come to rest.\n${await this.#describe()}`);
    const { random } = this.options;
    for (const process of this.processes) {
      if (process.wakesAt > this.now) continue;
      process.thaw();
      process.startClock();
    }
    const queues = this.working.flatMap((process) => process.queues.filter(({ length }) => length > 0));
    if (queues.length > 0) {
      const queue = random === undefined ? oldest(queues) : random.pick(queues);
      const isAnyOf = random !== undefined && this.working.some(({ unordered }) => queue === unordered);
      const [task] = queue.splice(isAnyOf ? random.below(queue.length) : 0, 1);
      task?.begin();
    } else this.#nextTimer();
    await flush();
    this.#stepping = undefined;
  }

  /** Lets all events happen that are due now. */
  async settle(): Promise<void> {
    await flush();
    while (this.working.some(({ queues }) => queues.some(({ length }) => length > 0))) await this.step();
  }

  /** Lets time pass, with the events in it. */
  async pass(ms: number): Promise<void> {
    const until = this.now + ms;
    await this.settle();
    for (let next = this.#earliest(); next !== undefined && next.at <= until; next = this.#earliest()) {
      await this.step();
      await this.settle();
    }
    this.now = Math.max(this.now, until);
  }

  /** Lets events happen until a promise is settled. Undefined: the process that should settle it has died. */
  async until<T>(promise: Promise<T>, process: Process): Promise<Outcome<T> | undefined> {
    let outcome: Outcome<T> | undefined;
    promise.then(
      (value) => {
        outcome = { value };
      },
      (error: unknown) => {
        outcome = { error };
      },
    );
    await flush();
    while (outcome === undefined && process.state !== "dead") await this.step();
    return outcome;
  }

  /** A run in the store. */
  async find(run_id: string, tenant = ""): Promise<StoredRun | undefined> {
    return this.store.find({ tenant, run_id });
  }

  /** The log of a run. Of one that `prune` has deleted: as it was then. */
  async log(run_id: string, tenant = ""): Promise<readonly Entry[]> {
    const key = { tenant, run_id };
    return (await this.store.read(key, 0, 1_000_000)) ?? this.#deleted.get(key) ?? [];
  }

  /** What has arrived for a run, and is not in its log. */
  inbox(run_id: string, tenant = ""): Promise<readonly Entry[]> {
    const key = { tenant, run_id };
    return Promise.resolve(this.#leftBehind.get(key) ?? inboxIn(this.store, key));
  }

  /** What is wrong with the times in a log. */
  mistimed(key: RunKey, log: readonly Entry[]): readonly string[] {
    const taken = this.#taken.get(key) ?? [];
    return mistimed({ log, taken, disturbances: this.#disturbances, recoveryMs: RECOVERY_MS });
  }

  /** The store has taken entries of a run. */
  noteTaken(key: RunKey): void {
    const taken = this.#taken.get(key) ?? [];
    const length = atOnce(this.store.find(key))?.position ?? 0;
    while (taken.length < length) taken.push(this.now);
    this.#taken.set(key, taken);
  }

  /** Something is wrong with a process or its store from now on, for some time. The returned function says that it is over. */
  disturb(ms = Number.POSITIVE_INFINITY): () => void {
    const disturbance = { from: this.now, to: this.now + ms };
    this.#disturbances.push(disturbance);
    return () => {
      disturbance.to = Math.min(disturbance.to, this.now);
    };
  }

  /** A process was killed. Until another one is started there may be none that executes runs. */
  noteKill(): void {
    if (this.workers.length === 0) this.#isManned = this.disturb();
  }

  /** What is wrong with the feed, by the logs of all runs that there are and were. */
  async misfed(): Promise<readonly string[]> {
    const page = await this.store.readFeed?.({ from: "start", limit: 1_000_000 });
    if (page === undefined) return ["the store of the world keeps no feed"];
    const runs = await this.store.list({ tenant: "", limit: 10_000, offset: 0 });
    const deleted = [...this.#deleted.entries()].map(([key]) => key.run_id);
    const ids = new Set([...runs.map(({ key }) => key.run_id), ...deleted]);
    for (const { key } of page.items) ids.add(key.run_id);
    const wrong: string[] = [];
    for (const id of ids) wrong.push(...misfed(id, await this.log(id), page.items));
    return wrong;
  }

  /** Keeps a run without a parent from being deleted, until the returned function is called. */
  watch(key: RunKey): () => void {
    this.#watched.set(key, key);
    return () => this.#watched.delete(key);
  }

  /** Deletes whatever the retention may delete, unless that is a run which a test looks at. */
  prune(): void {
    for (const key of this.#watched.values()) if (atOnce(this.store.find(key))?.head.finished_at !== null) return;
    for (const tenant of this.#tenants)
      for (const { key } of atOnce(this.store.list({ tenant, limit: 10_000, offset: 0, statuses: ENDED })))
        this.#keepLog(key);
    void this.store.prune({
      maxRuns: 0,
      endedBefore: Number.POSITIVE_INFINITY,
      sessionsBefore: Number.NEGATIVE_INFINITY,
    });
  }

  /** A client deletes one of the runs at random, which may be refused. */
  async deleteOne(random: Random): Promise<void> {
    const tenant = random.pick(this.#tenants);
    const found = atOnce(this.store.list({ tenant, limit: 10_000, offset: 0 }));
    const runs = found.filter(({ key }) => !this.#watched.has(key));
    if (runs.length === 0) return;
    const { key } = random.pick(runs);
    try {
      await scopeIn(random.pick(this.working), tenant).delete(key.run_id);
      this.deletions += 1;
    } catch (error) {
      const code = CadenzaError.is(error) ? error.code : "";
      if (!refusals.includes(code)) this.violations.push(`the deletion of ${key.run_id} failed: ${String(error)}`);
    }
  }

  /** Some runs are about to be deleted. Each of them has ended, and so has what is above it. */
  noteDeletion(keys: readonly RunKey[]): void {
    for (const key of keys) {
      const found = atOnce(this.store.find(key));
      if (found === undefined) continue;
      const { tenant } = key;
      const { parent } = found.created;
      const above = parent && atOnce(this.store.find({ tenant, run_id: parent.run_id }));
      if (found.head.finished_at === null || above?.head.finished_at === null)
        this.violations.push(
          `${markOf(tenant || undefined)}${key.run_id} is deleted before it and its parent have ended`,
        );
      this.#keepLog(key);
    }
  }

  /** How many runs a tenant has, and had. */
  countOf(tenant: string): number {
    const stored = atOnce(this.store.list({ tenant, limit: 10_000, offset: 0 })).length;
    let deleted = 0;
    for (const [key] of this.#deleted.entries()) if (key.tenant === tenant) deleted += 1;
    return stored + deleted;
  }

  #keepLog(key: RunKey): void {
    const log = atOnce(this.store.read(key, 0, 1_000_000));
    if (log === undefined) return;
    this.#deleted.set(key, log);
    const inbox = atOnce(this.store.find(key, "with inbox"))?.inbox ?? [];
    this.#leftBehind.set(
      key,
      inbox.flatMap(({ entries }) => entries),
    );
  }

  /** Checks that each operation makes one sub-run at most. */
  noteSubRun({ parent }: CreatedEntry, key: RunKey): void {
    if (parent === undefined) return;
    const { tenant, run_id } = key;
    const operation = `${markOf(tenant || undefined)}${parent.run_id} ${parent.key}`;
    const first = this.#subRuns.get(operation) ?? run_id;
    this.#subRuns.set(operation, first);
    const isAgain = this.#deleted.has(key) ? "again after it was deleted" : first === run_id ? undefined : "twice";
    if (isAgain !== undefined) this.violations.push(`the sub-run of ${operation} is made ${isAgain}`);
  }

  async stateOf(run_id: string): Promise<RunState> {
    return foldEntries(run_id, await this.log(run_id));
  }

  async #describe(): Promise<string> {
    const lines = this.processes.map(({ name, state, said }) => `${name} is ${state}: ${said.slice(-3).join(" / ")}`);
    for (const tenant of this.#tenants) {
      for (const { key, head } of await this.store.list({ tenant, limit: 10, offset: 0 })) {
        if (this.#tenants.length > 1 && head.finished_at !== null) continue;
        lines.push(`${markOf(tenant || undefined)}${key.run_id}: ${JSON.stringify(head)}`);
        for (const entry of await this.log(key.run_id, tenant)) lines.push(`  ${JSON.stringify(entry)}`);
      }
    }
    return lines.join("\n");
  }

  get #tenants(): readonly string[] {
    return this.options.tenants ?? [""];
  }

  /** Calls back after a time, whatever becomes of the processes. Returns what prevents it. */
  callAfter(ms: number, callback: () => void): () => void {
    const timer = { timers: this.#timers, at: this.now + ms, serial: this.serial(), callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  #earliest(): Timer | undefined {
    let earliest: Timer | undefined;
    for (const timer of this.#timers) if (isEarlier(timer, earliest)) earliest = timer;
    for (const process of this.working) {
      if (process.clockStands) continue;
      for (const timer of process.timers) if (isEarlier(timer, earliest)) earliest = timer;
    }
    return earliest;
  }

  #nextTimer(): void {
    const timer = this.#earliest();
    if (timer === undefined) {
      this.now += 1_000;
      return;
    }
    this.now = Math.max(this.now, timer.at);
    timer.timers.delete(timer);
    timer.callback();
  }
}

export type Outcome<T> = { readonly value: T } | { readonly error: unknown };

type Appending = Parameters<Store["append"]>;
type Creating = Parameters<Store["create"]>;

interface Timer {
  /** Those among which it is. */
  readonly timers: Set<Timer>;
  readonly at: number;
  readonly serial: number;
  readonly callback: () => void;
}

interface Task {
  readonly serial: number;
  readonly begin: () => void;
}

/** A process with a runtime, a clock and a view of the store, which die with it. */
export class Process {
  readonly world: World;
  readonly name: string;
  /** Whether it executes no runs. */
  readonly isWeb: boolean;
  readonly runtime: AgentRuntime;
  readonly turns: Task[] = [];
  readonly calls: Task[] = [];
  /** The reads, and the answers to all calls, of a store that reorders them. */
  readonly unordered: Task[] = [];
  readonly queues = [this.turns, this.calls, this.unordered] as const;
  readonly timers = new Set<Timer>();
  /** What the runtime has logged. */
  readonly said: string[] = [];
  state: "alive" | "frozen" | "dead" = "alive";
  /** When it is thawed, or its clock is started. */
  wakesAt = Number.POSITIVE_INFINITY;
  /** Whether its wall clock is stopped, and its timers do not fire, while it goes on. Its monotonic clock is never stopped. */
  clockStands = false;
  /** By how much its wall clock is ahead of that of the world. */
  aheadMs = 0;
  /** Its calls of the store, in order. */
  readonly storeCalls: Method[] = [];
  crash: Crash | undefined;
  /** How many bodies of steps it executes. */
  bodies = 0;
  /** How many calls of the store have failed. */
  failed = 0;
  #failsUntil = Number.NEGATIVE_INFINITY;
  /** It works as it should again. */
  #isWell: () => void = () => {};
  #stoppedAt = 0;
  readonly #waker: QueueWaker | undefined;

  constructor(world: World, name: string, crash: Crash | undefined, isWeb: boolean) {
    this.world = world;
    this.name = name;
    this.crash = crash;
    this.isWeb = isWeb;
    const { runtime: { durability, ...runtime } = {}, plant } = world.options;
    const clock = this.#clock();
    this.#waker = world.options.wakes?.connect(() => clock.now() - world.now);
    const view = this.#view();
    const say = (message: string): void => void this.said.push(message);
    const logger: Logger = { debug: say, info: say, warn: say, error: say };
    this.runtime = new AgentRuntime({
      ...runtime,
      logger,
      clock: plant?.clock?.(clock) ?? clock,
      ids: this.#ids(),
      store: durable(plant?.view?.(view) ?? view, {
        ...(durability ?? { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 }),
        ...(this.#waker !== undefined && { waker: this.#waker }),
      }),
      ...(isWeb && { work: false }),
    });
  }

  /** The process dies: its actions have no effect from now on. */
  kill(): void {
    this.#disturb(0);
    this.state = "dead";
    this.#waker?.kill();
    for (const queue of this.queues) queue.length = 0;
    this.timers.clear();
    this.world.noteKill();
  }

  freeze(): void {
    if (this.state !== "alive") return;
    this.#disturb();
    this.state = "frozen";
  }

  thaw(): void {
    if (this.state === "frozen") {
      this.state = "alive";
      this.#isWell();
    }
    this.wakesAt = Number.POSITIVE_INFINITY;
  }

  /** Stops its clock. */
  stopClock(): void {
    this.#disturb();
    this.#stoppedAt = this.world.time;
    this.clockStands = true;
  }

  startClock(): void {
    if (this.clockStands) this.#isWell();
    this.clockStands = false;
    this.wakesAt = Number.POSITIVE_INFINITY;
  }

  #disturb(ms?: number): void {
    this.world.bodies.left(this.name);
    this.#isWell();
    this.#isWell = this.world.disturb(ms);
  }

  /** Resolves after some time of this process; never, if it is dead by then. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.#setTimeout(resolve, ms));
  }

  #clock(): Clock {
    return {
      now: () => (this.clockStands ? this.#stoppedAt : this.world.time) + this.aheadMs,
      monotonic: () => this.world.now,
      setTimeout: (callback, delayMs) => this.#setTimeout(callback, delayMs),
      turn: () => new Promise((resolve) => this.#enqueue(this.turns, resolve)),
      // A simulated process that is killed releases no hold, and the process of the tests must exit all the same.
      hold: () => () => {},
    };
  }

  #setTimeout(callback: () => void, delayMs: number): () => void {
    if (this.state === "dead" || delayMs === Number.POSITIVE_INFINITY) return () => {};
    const timer = {
      timers: this.timers,
      at: this.world.now + Math.max(delayMs, 0),
      serial: this.world.serial(),
      callback,
    };
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  }

  #enqueue(queue: Task[], begin: () => void): void {
    if (this.state !== "dead") queue.push({ serial: this.world.serial(), begin });
  }

  #ids(): Ids {
    const { name, world } = this;
    return {
      uuid: () => world.options.uuid?.() ?? `00000000-0000-4000-8000-${world.serial().toString(16).padStart(12, "0")}`,
      token: () => name,
    };
  }

  /** The store as this process sees it. */
  #view(): Store {
    return hookedStore(
      (call, method, parameters) =>
        this.#call(method, () => {
          if (method === "delete") this.world.noteDeletion(parameters[0] as readonly RunKey[]);
          if (method === "create") return this.#create(parameters as Creating, call);
          if (method === "append") return this.#append(parameters as Appending, call);
          return method === "post" ? this.#taking(parameters[0] as RunKey, call()) : call();
        }),
      this.world.store,
    );
  }

  /** The answer to a write, after which the store has entries that it did not have. */
  #taking(key: RunKey, answer: MaybePromise<unknown>): MaybePromise<unknown> {
    const note = (conflict: unknown): unknown => {
      if (conflict === undefined) this.world.noteTaken(key);
      return conflict;
    };
    return isPromise(answer) ? answer.then(note) : note(answer);
  }

  #create([key, { entries }]: Creating, call: () => MaybePromise<unknown>): MaybePromise<unknown> {
    const answer = this.#taking(key, call());
    const [created] = entries;
    const note = (conflict: unknown): unknown => {
      if (conflict === undefined && created?.type === "created") this.world.noteSubRun(created, key);
      return conflict;
    };
    return isPromise(answer) ? answer.then(note) : note(answer);
  }

  /** Checks that another process than the owner writes only posts, which leave the owner as it is. */
  #append([key, , { head }]: Appending, call: () => MaybePromise<unknown>): MaybePromise<unknown> {
    const before = atOnce(this.world.store.find(key));
    const answer = this.#taking(key, call());
    const owner = before?.head.owner ?? this.name;
    if (owner === this.name || owner === head.owner) return answer;
    const look = (conflict: unknown): unknown => {
      if (conflict === undefined) this.world.violations.push(`${this.name} has written to a run of ${owner}`);
      return conflict;
    };
    return isPromise(answer) ? answer.then(look) : look(answer);
  }

  #call(method: Method, call: () => MaybePromise<unknown>): MaybePromise<unknown> {
    if (this.state === "dead") return never();
    if (method === "close") return undefined;
    this.storeCalls.push(method);
    const dies = this.crash?.call === this.storeCalls.length;
    if (dies && this.crash?.after === false) {
      this.kill();
      return never();
    }
    const failure = this.#failure();
    if (failure !== undefined) return this.#fail(failure, call);
    const { late, writeMs = 0 } = this.world.options;
    if (writeMs > 0 && !isRead(method)) return this.wait(writeMs).then(() => this.#answer(call, dies));
    if (late === true) return this.#callLater(call, dies, isRead(method));
    return this.#answer(call, dies);
  }

  /** The failure of this call. Undefined: it succeeds. */
  #failure(): Failure | undefined {
    const { options, now, processes } = this.world;
    const { failure } = options;
    if (failure === undefined || this !== processes[0]) return undefined;
    if (failure.call === this.storeCalls.length) {
      this.#failsUntil = now + (failure.ms ?? 0);
      this.world.disturb((failure.ms ?? 0) + LONGEST_PAUSE_MS);
    }
    const isFirst = failure.call === this.storeCalls.length;
    return isFirst || now < this.#failsUntil ? failure : undefined;
  }

  #fail({ after, late }: Failure, call: () => MaybePromise<unknown>): Promise<never> {
    this.failed += 1;
    const effect = after ? call() : undefined;
    if (isPromise(effect)) throw new Error("The store of the world answers late.");
    const error = new Error(SECRET);
    if (!late) throw error;
    return new Promise((_resolve, reject) => this.#enqueue(this.calls, () => reject(error)));
  }

  #answer(call: () => MaybePromise<unknown>, dies: boolean): MaybePromise<unknown> {
    const answer = call();
    if (!dies) return answer;
    this.kill();
    return never();
  }

  #callLater(call: () => MaybePromise<unknown>, dies: boolean, isRead: boolean): Promise<unknown> {
    const answers = this.world.options.reorders === true ? this.unordered : this.calls;
    return new Promise((resolve, reject) => {
      this.#enqueue(isRead ? answers : this.calls, () => {
        void Promise.resolve(call()).then((answer) => {
          if (dies) this.kill();
          this.#enqueue(answers, () => resolve(answer));
        }, reject);
      });
    });
  }
}

function oldest(queues: readonly Task[][]): Task[] {
  const [first = []] = queues;
  return queues.reduce((a, b) => ((a[0]?.serial ?? 0) <= (b[0]?.serial ?? 0) ? a : b), first);
}

/** Resolves when all promise reactions have run. */
function flush(): Promise<void> {
  // `nextTick` comes after all promise reactions that are due, and is ten times as fast as a turn of the event loop.
  return new Promise((resolve) => nextTick(resolve));
}

/** What the store of a world, which answers at once, has answered. */
export function atOnce<T>(answer: MaybePromise<T>): T {
  if (isPromise(answer)) throw new Error("The store of the world answers late.");
  return answer;
}

function isEarlier(timer: Timer, than: Timer | undefined): boolean {
  return than === undefined || timer.at < than.at || (timer.at === than.at && timer.serial < than.serial);
}

/** The runtime of a process, as a tenant uses it. */
export function scopeIn({ runtime }: Process, tenant: string): Scope {
  return tenant === "" ? runtime : runtime.scope({ tenant });
}

export function keyOf(run_id: string): RunKey {
  return { tenant: "", run_id };
}
