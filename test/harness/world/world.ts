import { nextTick } from "node:process";
import type { Clock, Ids, Logger } from "cadenza";
import { AgentRuntime } from "cadenza";
import { durable } from "cadenza/durable";
import type { Store } from "cadenza/store";
import { foldEntries } from "../../../src/core/evolve.ts";
import type { CreatedEntry, Entry } from "../../../src/core/log.ts";
import type { RunKey, StoredRun } from "../../../src/core/ports.ts";
import type { MaybePromise } from "../../../src/core/promises.ts";
import { isPromise } from "../../../src/core/promises.ts";
import type { RunState } from "../../../src/core/state.ts";
import type { DurableRuntimeOptions } from "../durable-runtime.ts";
import { misfed } from "../feed-judge.ts";
import type { Plant } from "../planted-faults.ts";
import { never } from "../promises.ts";
import type { Random } from "../random.ts";
import type { Method } from "../store-proxy.ts";
import { hookedStore, isRead, lastingStore } from "../store-proxy.ts";

/*
 * Simulates several processes on one store. Each has a runtime, a clock and a view of the store of its own, and can be
 * killed or frozen between any two of its actions. Time passes only when a test lets it.
 */

const START = Date.UTC(2031, 0, 1);
/** A world that takes more steps is stuck. */
const MAX_STEPS = 300_000;
const ENDED = ["completed", "failed", "cancelled"] as const;

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
  /** The calls of the first process that fail. */
  readonly failure?: Failure | undefined;
  /** How long a write takes, in milliseconds, as on a slow disk. Default: none. */
  readonly writeMs?: number;
  /** Whether the store keeps a feed. Default: false. */
  readonly isFed?: boolean;
  /** The faults that a test plants. Default: none. */
  readonly plant?: Plant | undefined;
  readonly runtime?: DurableRuntimeOptions;
  /** Called with each runtime when its process starts: registers the agents. */
  readonly register: (process: Process) => void;
}

export class World {
  readonly store: Store;
  readonly options: WorldOptions;
  readonly processes: Process[] = [];
  /** The broken rules. */
  readonly violations: string[] = [];
  now = START;
  steps = 0;
  /** By how much the wall clock is ahead of the time that has passed. Timers do not depend on it. */
  clockOffset = 0;
  #serial = 0;
  readonly #deleted = new Map<string, readonly Entry[]>();
  /** The sub-runs that were made, by the run and the operation that has made them. */
  readonly #subRuns = new Map<string, string>();

  constructor(options: WorldOptions) {
    this.options = options;
    const feed = options.isFed === true ? { keepMs: Number.POSITIVE_INFINITY } : undefined;
    const store = lastingStore({ now: () => this.now }, feed);
    this.store = options.plant?.store?.(store) ?? store;
  }

  /** The time of the wall clock. */
  get time(): number {
    return this.now + this.clockOffset;
  }

  /** The processes that are not dead. */
  get living(): readonly Process[] {
    return this.processes.filter(({ state }) => state !== "dead");
  }

  /** The processes that are neither dead nor frozen. */
  get working(): readonly Process[] {
    return this.processes.filter(({ state }) => state === "alive");
  }

  start(crash?: Crash): Process {
    const process = new Process(this, `process-${this.processes.length + 1}`, crash);
    this.processes.push(process);
    this.options.register(process);
    return process;
  }

  serial(): number {
    return ++this.#serial;
  }

  /** Lets one event happen. */
  async step(): Promise<void> {
    if (++this.steps > MAX_STEPS) throw new Error(`The world does not come to rest.\n${await this.#describe()}`);
    const { random } = this.options;
    for (const process of this.processes) {
      if (process.wakesAt > this.now) continue;
      process.thaw();
      process.startClock();
    }
    const queues = this.working.flatMap((process) => [process.turns, process.calls].filter(({ length }) => length > 0));
    if (queues.length > 0) {
      const queue = random === undefined ? oldest(queues) : random.pick(queues);
      queue.shift()?.begin();
    } else this.#nextTimer();
    await flush();
  }

  /** Lets all events happen that are due now. */
  async settle(): Promise<void> {
    await flush();
    while (this.working.some(({ turns, calls }) => turns.length + calls.length > 0)) await this.step();
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
  async log(run_id: string): Promise<readonly Entry[]> {
    return (await this.store.read({ tenant: "", run_id }, 0, 1_000_000)) ?? this.#deleted.get(run_id) ?? [];
  }

  /** What is wrong with the feed, by the logs of all runs that there are and were. */
  async misfed(): Promise<readonly string[]> {
    const page = await this.store.readFeed?.({ from: "start", limit: 1_000_000 });
    if (page === undefined) return ["the store of the world keeps no feed"];
    const runs = await this.store.list({ tenant: "", limit: 10_000, offset: 0 });
    const ids = new Set([...runs.map(({ key }) => key.run_id), ...this.#deleted.keys()]);
    for (const { key } of page.items) ids.add(key.run_id);
    const wrong: string[] = [];
    for (const id of ids) wrong.push(...misfed(id, await this.log(id), page.items));
    return wrong;
  }

  /** Deletes whatever the retention may delete, unless a run without a parent has ended: the test looks at that one. */
  prune(): void {
    const ended = this.store.list({ tenant: "", limit: 1_000, offset: 0, statuses: ENDED });
    if (isPromise(ended)) throw new Error("The store of the world answers late.");
    if (ended.some(({ created }) => created?.parent === undefined)) return;
    for (const { key } of ended) {
      const log = this.store.read(key, 0, 1_000_000);
      if (!isPromise(log) && log !== undefined) this.#deleted.set(key.run_id, log);
    }
    void this.store.prune({
      maxRuns: 0,
      endedBefore: Number.POSITIVE_INFINITY,
      sessionsBefore: Number.NEGATIVE_INFINITY,
    });
  }

  /** Checks that each operation makes one sub-run at most. */
  noteSubRun({ parent }: CreatedEntry, run_id: string): void {
    if (parent === undefined) return;
    const operation = `${parent.run_id} ${parent.key}`;
    const first = this.#subRuns.get(operation) ?? run_id;
    this.#subRuns.set(operation, first);
    const isAgain = this.#deleted.has(run_id) ? "again after it was deleted" : first === run_id ? undefined : "twice";
    if (isAgain !== undefined) this.violations.push(`the sub-run of ${operation} is made ${isAgain}`);
  }

  async stateOf(run_id: string): Promise<RunState> {
    return foldEntries(run_id, await this.log(run_id));
  }

  async #describe(): Promise<string> {
    const lines = this.processes.map(({ name, state, said }) => `${name} is ${state}: ${said.slice(-3).join(" / ")}`);
    for (const { key, head } of await this.store.list({ tenant: "", limit: 10, offset: 0 })) {
      lines.push(`${key.run_id}: ${JSON.stringify(head)}`);
      for (const entry of await this.log(key.run_id)) lines.push(`  ${JSON.stringify(entry)}`);
    }
    return lines.join("\n");
  }

  #earliest(): Timer | undefined {
    let earliest: Timer | undefined;
    for (const process of this.working) {
      if (process.clockStands) continue;
      for (const timer of process.timers)
        if (
          earliest === undefined ||
          timer.at < earliest.at ||
          (timer.at === earliest.at && timer.serial < earliest.serial)
        )
          earliest = timer;
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
    timer.process.timers.delete(timer);
    timer.callback();
  }
}

export type Outcome<T> = { readonly value: T } | { readonly error: unknown };

type Appending = Parameters<Store["append"]>;
type Creating = Parameters<Store["create"]>;

interface Timer {
  readonly process: Process;
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
  readonly runtime: AgentRuntime;
  readonly turns: Task[] = [];
  readonly calls: Task[] = [];
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
  #stoppedAt = 0;

  constructor(world: World, name: string, crash: Crash | undefined) {
    this.world = world;
    this.name = name;
    this.crash = crash;
    const { runtime: { durability, ...runtime } = {}, plant } = world.options;
    const clock = this.#clock();
    const view = this.#view();
    const say = (message: string): void => void this.said.push(message);
    const logger: Logger = { debug: say, info: say, warn: say, error: say };
    this.runtime = new AgentRuntime({
      ...runtime,
      logger,
      clock: plant?.clock?.(clock) ?? clock,
      ids: this.#ids(),
      store: durable(plant?.view?.(view) ?? view, durability ?? { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 }),
    });
  }

  /** The process dies: its actions have no effect from now on. */
  kill(): void {
    this.state = "dead";
    this.turns.length = 0;
    this.calls.length = 0;
    this.timers.clear();
  }

  freeze(): void {
    if (this.state === "alive") this.state = "frozen";
  }

  thaw(): void {
    if (this.state === "frozen") this.state = "alive";
    this.wakesAt = Number.POSITIVE_INFINITY;
  }

  /** Stops its clock. */
  stopClock(): void {
    this.#stoppedAt = this.world.time;
    this.clockStands = true;
  }

  startClock(): void {
    this.clockStands = false;
    this.wakesAt = Number.POSITIVE_INFINITY;
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
    const timer = { process: this, at: this.world.now + Math.max(delayMs, 0), serial: this.world.serial(), callback };
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  }

  #enqueue(queue: Task[], begin: () => void): void {
    if (this.state !== "dead") queue.push({ serial: this.world.serial(), begin });
  }

  #ids(): Ids {
    const { name, world } = this;
    return {
      uuid: () => `00000000-0000-4000-8000-${world.serial().toString(16).padStart(12, "0")}`,
      token: () => name,
    };
  }

  /** The store as this process sees it. */
  #view(): Store {
    return hookedStore(
      (call, method, parameters) =>
        this.#call(method, () => {
          if (method === "create") return this.#create(parameters as Creating, call);
          return method === "append" ? this.#append(parameters as Appending, call) : call();
        }),
      this.world.store,
    );
  }

  #create([{ run_id }, { entries }]: Creating, call: () => MaybePromise<unknown>): MaybePromise<unknown> {
    const answer = call();
    const [created] = entries;
    const note = (conflict: unknown): unknown => {
      if (conflict === undefined && created?.type === "created") this.world.noteSubRun(created, run_id);
      return conflict;
    };
    return isPromise(answer) ? answer.then(note) : note(answer);
  }

  /** Checks that another process than the owner writes only posts, which leave the owner as it is. */
  #append([key, , { head }]: Appending, call: () => MaybePromise<unknown>): MaybePromise<unknown> {
    const before = this.world.store.find(key);
    if (isPromise(before)) throw new Error("The store of the world answers late.");
    const answer = call();
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
    if (late === true) return this.#callLater(call, dies);
    return this.#answer(call, dies);
  }

  /** The failure of this call. Undefined: it succeeds. */
  #failure(): Failure | undefined {
    const { options, now, processes } = this.world;
    const { failure } = options;
    if (failure === undefined || this !== processes[0]) return undefined;
    if (failure.call === this.storeCalls.length) this.#failsUntil = now + (failure.ms ?? 0);
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

  #callLater(call: () => MaybePromise<unknown>, dies: boolean): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#enqueue(this.calls, () => {
        void Promise.resolve(call()).then((answer) => {
          if (dies) this.kill();
          this.#enqueue(this.calls, () => resolve(answer));
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

export function keyOf(run_id: string): RunKey {
  return { tenant: "", run_id };
}
