import { cancelCommand } from "../core/commands.ts";
import type { AgentVersion, FoundRun, RunKey, Store } from "../core/ports.ts";
import { engineKey } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { isOwn, isOwnAgent } from "../core/tenants.ts";
import { waitingLine } from "../core/waiting-line.ts";
import { checkObject } from "../runtime/agent/check.ts";
import type { Registry } from "../runtime/agent/registry.ts";
import { measureAgain } from "../runtime/execution/waits.ts";
import type { Engine, Posted, RemotePost, RemoteReport } from "../runtime/runs/remote-runs.ts";
import { Asking } from "./recovery/asking.ts";
import { FollowedLog } from "./recovery/followed-log.ts";
import { Heartbeat } from "./recovery/heartbeat.ts";
import { Lease } from "./recovery/lease.ts";
import { LeasedResidence } from "./recovery/leased-residence.ts";
import { Offers } from "./recovery/offers.ts";
import type { DurabilityOptions } from "./recovery/options.ts";
import { readDurability } from "./recovery/options.ts";
import { OwnedLine } from "./recovery/owned-line.ts";
import { RemotePosts } from "./recovery/remote-posts.ts";
import type { Owner } from "./recovery/residency.ts";
import { RunLoader } from "./recovery/run-loader.ts";
import { Worker } from "./recovery/worker.ts";
import { StoredStepLimits } from "./stored-step-limits.ts";

/**
 * What durable runs need, with these options: this process owns the runs that it executes, and takes over those that need
 * work. Throws `invalid_argument` for an unknown or invalid option.
 */
export function durableEngine(options: DurabilityOptions = {}): Engine {
  const settings = readDurability(options);
  return (runs) => {
    const worker = new Worker(runs, settings, {
      onWake: (key) => asking.onWake(key),
      onReleased: (key, head) => asking.onReleased(key, head),
      onSlotFree: () => asking.onSlotFree(),
      onRoom: () => asking.onRoom(),
    });
    const { store, clock } = worker;
    const lease = new Lease(worker, () => {
      heartbeat.onRenewed();
      stepLimits.onRenewed();
    });
    const stepLimits = new StoredStepLimits(worker, lease);
    const logs = new RemotePosts(store);
    const offers = new Offers(worker);
    const loader = new RunLoader(worker, lease, logs);
    const heartbeat: Heartbeat = new Heartbeat(worker, lease, loader);
    const asking: Asking = new Asking(worker, lease, heartbeat, loader);
    const owner: Owner = {
      worker,
      lease,
      line: new OwnedLine(worker),
      postAbove: (key, commands) => logs.change(key, commands),
      onBlocked: (run) => loader.onBlocked(run),
      loadAgain: (run) => loader.loadAgain(run),
      reload: (key) => loader.reload(key),
      leaveToOthers: (run, why) => loader.damaged.put(run, why),
      onSuspectCleared: (run) => asking.onSuspectCleared(run),
      onGone: (run) => asking.onGone(run),
      onParentLost: (child, parent) => loader.onParentLost(child, parent),
    };
    const given = async (key: RunKey, post: RemotePost): Promise<RunState | boolean> => {
      // An offer wakes the run when it is posted, before its verdict.
      if (post.type === "answer") return offers.give(key, post.answer);
      if (post.type === "questions") return logs.change(key, post.commands);
      let result: RunState | boolean;
      if (post.type === "message") result = await logs.send(key, post.entry, post.keyBy, runs.shared.settings);
      else {
        await clock.ready();
        result = await logs.change(key, [cancelCommand(clock.now(), post.by)]);
        // The store is not asked for runs of paused agents. If this process has the code, it unwinds the run.
        if (runs.shared.pauses.known.length > 0) loader.reload(key);
      }
      worker.onWake(key);
      return result;
    };
    clock.onSet = () => {
      for (const { execution } of runs) if (execution !== undefined) measureAgain(execution);
    };
    runs.registry.onAdded = (agent) => asking.onRegistered(agent);
    return {
      residenceOf(run) {
        asking.start();
        // A plain run in a store that ends with its process cannot change its owner.
        const mayChangeOwner = store.persistent || run.agent.options.durable === true;
        return mayChangeOwner ? new LeasedResidence(owner, run) : undefined;
      },
      async create(run) {
        await logs.create(run);
        asking.onAccepted(run.key);
      },
      load: (key) => loader.load(key),
      async post<Post extends RemotePost>(key: RunKey, post: Post): Promise<Posted<Post>> {
        return (await given(key, post)) as Posted<Post>;
      },
      logOf(stored) {
        const isBlocked = stored.head.blocked !== null;
        return (isBlocked ? loader.tried(stored) : undefined) ?? new FollowedLog(worker, stored);
      },
      async report() {
        const damaged = await loader.damaged.report();
        const here = { damaged, differences: worker.differences, heartbeatAgeMs: lease.ageMs };
        return reportOf(store, runs.registry, here);
      },
      async stop(what) {
        if (what === "taking") return asking.stopTaking();
        worker.end();
        await stepLimits.stop();
        await heartbeat.stop();
        await asking.stopWaking();
        await store.release(worker.name);
      },
    };
  };
}

const MAX_REPORTED = 1_000;
const MAX_LINES = 100;

/** Asks the store for the runs that cannot go on. */
async function reportOf(
  store: Store,
  registry: Registry,
  here: Pick<RemoteReport, "damaged" | "differences" | "heartbeatAgeMs">,
): Promise<RemoteReport> {
  const blocked = (await store.blocked({ limit: MAX_REPORTED })).filter(({ key }) => !isOwn(key.tenant));
  const backlog = (await store.backlog()).filter(({ agent_name }) => !isOwnAgent(agent_name));
  const lines = await store.lines({ limit: MAX_LINES });
  const isMissing = ({ agent_name, version }: AgentVersion): boolean =>
    registry.known(agent_name, version ?? undefined) === undefined;
  return {
    blocked: blocked.flatMap((found) => blockedRun(found) ?? []),
    unregistered: backlog.filter(isMissing).reduce((sum, { due, waiting }) => sum + due + waiting, 0),
    lines: lines.map(waitingLine),
    ...here,
  };
}

function blockedRun({ key, created, head: { blocked } }: FoundRun): RemoteReport["blocked"][number] | undefined {
  if (created === null || blocked === null) return undefined;
  const { agent_name, version = null } = created;
  return { run_id: key.run_id, agent_name, version, ...blocked };
}

/**
 * Makes a store durable: the runs of its durable agents survive the end of their process, and go on in any process that
 * uses the store. The stores of `cadenza/sqlite` are durable already; wrap them for other options. Throws
 * `invalid_argument` for an unknown or invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime, MemoryStore } from "cadenza";
 * import { durable } from "cadenza/store";
 *
 * const store = durable(new MemoryStore(), { leaseMs: 5_000 }); // yours
 * const runtime = new AgentRuntime({ store });
 * await runtime.close();
 * ```
 */
export function durable(store: Store, options: DurabilityOptions = {}): Store {
  checkObject("store", store);
  const engine = durableEngine(options);
  const bound = new Map<unknown, unknown>();
  return new Proxy(store, {
    get(target, name) {
      if (name === engineKey) return engine;
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      // A class with private members needs its own object as `this`.
      if (!bound.has(member)) bound.set(member, member.bind(target));
      return bound.get(member);
    },
  });
}
