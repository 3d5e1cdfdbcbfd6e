import { CadenzaError } from "../core/errors.ts";
import type { ParentRun } from "../core/log.ts";
import type { Clock, Logger, RunKey, Store } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry, isFinal } from "../core/state.ts";
import type { Run } from "../protocol/run.ts";
import type { Execution } from "./execution.ts";
import { foldLog } from "./fold-log.ts";
import type { RunInput } from "./input.ts";
import { readInput } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import type { NewRun } from "./new-run.ts";
import { OneByOne } from "./one-by-one.ts";
import { blockedError } from "./refusals.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "./retry-pause.ts";
import type { RunLoader } from "./run-loader.ts";
import type { RunLog } from "./run-log.ts";
import type { SubRunFound, SubRunHost } from "./sub-run.ts";
import { SubRun } from "./sub-run.ts";

/** What the sub-runs of a runtime need from its runs. */
export interface SubRunsHost {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly loader: RunLoader;
  /** The run, if this process executes it. */
  find(key: RunKey): LiveRun | undefined;
  newRunId(): string;
  /** Accepts a sub-run. Throws `agent_not_found` or `limit_reached`. */
  acceptSubRun(request: NewRun, runId: string, parent: ParentRun): LiveRun;
}

/** The interval at which a sub-run in another process is polled, in milliseconds. */
const POLL_MS = 200;

/** Starts sub-runs, finds them after a replay, and cancels them with their parents. */
export class SubRuns {
  readonly #host: SubRunsHost;
  readonly #maxDepth: number;
  readonly #cancelling = new OneByOne();

  constructor(host: SubRunsHost, maxDepth: number) {
    this.#host = host;
    this.#maxDepth = maxDepth;
  }

  /** Runs another agent under a run, to its end. */
  run(parent: LiveRun, execution: Execution, agentName: string, input: RunInput): Promise<Run> {
    const { clock } = this.#host;
    const { key: parentKey, state } = parent.log;
    const key = execution.results.keyFor(`run:${agentName}`);
    const request: NewRun = {
      tenant: parentKey.tenant,
      principal: parent.principal,
      agent_name: agentName,
      input: readInput(input),
      session_id: undefined,
      idempotencyKey: undefined,
      timeoutMs: undefined,
      session: undefined,
    };
    const depth = (createdEntry(state).parent?.depth ?? 0) + 1;
    const host: SubRunHost = {
      newRunId: () => this.#host.newRunId(),
      createSubRun: (runId) => {
        this.#checkDepth(depth, agentName);
        const run = this.#host.acceptSubRun(request, runId, { run_id: parentKey.run_id, key, depth });
        // The agent begins after the commit. If the commit fails, the parent creates the sub-run again.
        const committed = run.log.commit();
        if (committed === undefined) run.begin();
        else void committed.then(() => run.begin());
        return run;
      },
      findSubRun: (childKey) => this.#find(childKey),
      pause: () => new Promise((resolve) => clock.setTimeout(resolve, POLL_MS)),
    };
    return new SubRun(key, parent, execution, host).perform();
  }

  /**
   * Cancels a sub-run with its parent. The sub-run then cancels its own sub-runs. See {@link LiveRunHost.cancelSubRun}.
   */
  cancel(key: RunKey, parent: RunLog): undefined | Promise<void> {
    const live = this.#host.find(key);
    if (live !== undefined) this.#cancelling.do(() => void live.cancel().catch(ignore));
    return this.#host.store.persistent ? this.#cancelSurely(key, parent) : undefined;
  }

  /**
   * Another process has taken over the parent. Its new owner cancels the sub-runs that it finds when it ends the
   * parent. This sub-run may have been stored after that, so it is cancelled here. A parent that is not durable is
   * always ended by its new owner.
   */
  onParentLost(child: LiveRun, parent: LiveRun): void {
    const { loader, logger } = this.#host;
    const { key } = child.log;
    const ending = parent.durable ? loader.cancelOrphan(key, parent.log.key) : loader.cancelAnywhere(key);
    ending.catch((error: unknown) =>
      logger.error(`Run ${key.run_id} could not be cancelled with its parent, run ${parent.log.key.run_id}.`, {
        ...key,
        error,
      }),
    );
  }

  /** Tries until the cancel is committed. Each failure rejects the callers that wait for the parent's end. */
  async #cancelSurely(key: RunKey, parent: RunLog): Promise<void> {
    const { loader, clock, logger } = this.#host;
    for (let wait = FIRST_PAUSE_MS; !parent.lost; wait = nextPauseMs(wait)) {
      try {
        await loader.cancelAnywhere(key);
        return;
      } catch (error) {
        const ids = { run_id: parent.key.run_id, sub_run_id: key.run_id };
        const message = `Run ${ids.run_id} does not end yet: its sub-run ${ids.sub_run_id} could not be cancelled. The cancel is tried again.`;
        logger.error(message, { ...ids, error });
        parent.refuse(new CadenzaError("store_failed", message, { run_id: ids.run_id, cause: error }));
      }
      await new Promise<void>((resolve) => clock.setTimeout(resolve, wait));
    }
  }

  #checkDepth(depth: number, agentName: string): void {
    if (depth <= this.#maxDepth) return;
    const message = `A run of agent ${JSON.stringify(agentName)} would have ${depth} ancestors; limits.maxDepth allows ${this.#maxDepth}.`;
    throw new CadenzaError("limit_reached", message, { agent_name: agentName, limit: "maxDepth" });
  }

  async #find(key: RunKey): Promise<SubRunFound> {
    const { store, loader } = this.#host;
    const run = this.#host.find(key) ?? (await loader.load(key));
    if (run !== undefined) return run;
    const stored = await store.find(key);
    if (stored === undefined) return undefined;
    const { created, head } = stored;
    const read = (): MaybePromise<RunState | undefined> => foldLog(store, key, stored.position);
    if (!isFinal(head.status)) {
      const blocked = head.blocked === null ? undefined : blockedError(key.run_id, created.agent_name, head.blocked);
      return { blocked, position: stored.position, read };
    }
    const state = await read();
    return state && { run: runRecord(state), state };
  }
}
