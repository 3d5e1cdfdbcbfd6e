import type { Clock, Ids, RunKey, RunWrite, Store, StoreConflict, StoreHint, WrittenWithInbox } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import { durable } from "../durable/engine.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { BlockedEvent } from "../runtime/runs/announcer.ts";
import type { StageHooks } from "./cast.ts";
import { Cast } from "./cast.ts";
import type { CrashPoint } from "./crash-point.ts";
import { markOf } from "./crash-point.ts";
import type { Disk } from "./disk.ts";
import type { DriveSettings } from "./drive-options.ts";
import type { LeapingClock } from "./fake-clock.ts";
import { Gate } from "./gate.ts";

/** What a process shares with its successor. */
export interface Machine {
  readonly agent: Agent;
  readonly settings: DriveSettings;
  readonly disk: Disk;
  readonly clock: LeapingClock;
  readonly ids: Ids;
  readonly hooks: StageHooks;
  readonly alwaysReplay: boolean;
}

/** Leases do not expire by themselves: a process that dies releases its runs. */
const LEASE_MS = 1e12;

/** A process that executes the agent until it dies. Then its store, its clock and its turns never answer again. */
export class CrashingProcess {
  readonly name: string;
  readonly cast: Cast;
  readonly scope: Scope;
  isDead = false;
  /** Where the history and the code disagree, if the run is blocked. */
  blocked: BlockedEvent | undefined;
  readonly #machine: Machine;
  readonly #point: CrashPoint | number | undefined;
  #writes = 0;
  readonly #timers = new Set<() => void>();
  readonly #watchers = new Set<(hint: StoreHint) => void>();

  /** `point`: where it dies, or after how many writes of entries. Undefined: it does not. */
  constructor(machine: Machine, name: string, point: CrashPoint | number | undefined) {
    this.#machine = machine;
    this.#point = point;
    this.name = name;
    const { agent, settings, hooks, ids, alwaysReplay } = machine;
    const runtime = new AgentRuntime({
      store: durable(this.#storeView(), {
        leaseMs: LEASE_MS,
        heartbeatMs: Number.POSITIVE_INFINITY,
        scanMs: Number.POSITIVE_INFINITY,
        evictAfterMs: Number.POSITIVE_INFINITY,
        alwaysReplay,
      }),
      clock: this.#clockView(),
      ids: { uuid: () => ids.uuid(), token: () => name },
      awaitTimeoutMs: settings.awaitTimeoutMs,
      cancelGraceMs: settings.cancelGraceMs,
      // The test needs the error that the agent threw.
      exposeErrors: true,
    });
    runtime.on("run.blocked", (event) => {
      this.blocked ??= event;
    });
    this.scope = runtime.scope({ principal: settings.principal });
    const gate = new Gate();
    gate.free();
    this.cast = new Cast(settings, gate, hooks, (one) => runtime.register(one));
    this.cast.addLead(agent);
  }

  /** Time has passed, and a run may be due. */
  lookForWork(): void {
    for (const watcher of this.#watchers) watcher({ due: true });
  }

  /** From now on this process has no effect on the store, and receives no calls. Its runs are released. */
  kill(): void {
    if (this.isDead) return;
    this.isDead = true;
    for (const clear of this.#timers) clear();
    this.#timers.clear();
    this.#machine.disk.store.release(this.name);
  }

  #storeView(): Store {
    const { store } = this.#machine.disk;
    const create: Store["create"] = (key, write, idempotencyKey) =>
      this.#write(key, write, () => store.create(key, write, idempotencyKey));
    const append: Store["append"] = (key, expected, write) =>
      this.#write(key, write, () => store.append(key, expected, write));
    const watch: Store["watch"] = (callback) => {
      this.#watchers.add(callback);
      return () => {
        this.#watchers.delete(callback);
      };
    };
    const own: Partial<Store> = { persistent: true, create, append, watch };
    return new Proxy<Store>(store, {
      get: (target, name) => {
        if (name in own) return Reflect.get(own, name) as unknown;
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        return (...parameters: unknown[]) =>
          this.isDead ? new Promise(ignore) : (Reflect.apply(member, target, parameters) as unknown);
      },
    });
  }

  #write<Answer extends StoreConflict | WrittenWithInbox | undefined>(
    key: RunKey,
    { entries }: RunWrite,
    write: () => Answer,
  ): MaybePromise<Answer> {
    const run = this.#machine.disk.runOf(key, entries);
    const point = this.#point;
    const mark = typeof point === "object" ? point.mark : undefined;
    const isMarked = mark !== undefined && entries.some((entry) => markOf(run, entry) === mark);
    if (isMarked && typeof point === "object" && !point.isStored) this.kill();
    if (this.isDead) return new Promise(ignore);
    const conflict = write();
    if (conflict?.conflict !== undefined) return conflict;
    if (entries.length > 0) this.#writes += 1;
    if (!isMarked && this.#writes !== point) return conflict;
    this.kill();
    return new Promise(ignore);
  }

  #clockView(): Clock {
    const { clock } = this.#machine;
    return {
      now: () => clock.now(),
      monotonic: () => clock.monotonic?.() ?? clock.now(),
      setTimeout: (callback, delayMs) => {
        if (this.isDead) return ignore;
        const clear = clock.setTimeout(() => {
          this.#timers.delete(clear);
          callback();
        }, delayMs);
        this.#timers.add(clear);
        return () => {
          this.#timers.delete(clear);
          clear();
        };
      },
      turn: async () => {
        await clock.turn();
        if (this.isDead) await new Promise(ignore);
      },
      hold: () => ignore,
    };
  }
}
