import { CadenzaError } from "../core/errors.ts";
import type { ParentRun } from "../core/log.ts";
import type { Clock, RunKey } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import { createdEntry } from "../core/state.ts";
import type { Run } from "../protocol/run.ts";
import type { Execution } from "./execution.ts";
import { readInput } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import type { NewRun, NewSubRun } from "./new-run.ts";
import { onceCommitted } from "./once-committed.ts";
import { OneByOne } from "./one-by-one.ts";
import type { RemoteRuns } from "./remote-runs.ts";
import type { RunLog } from "./run-log.ts";
import { parentOf } from "./seed.ts";
import type { SubRunHost } from "./sub-run.ts";
import { SubRun } from "./sub-run.ts";

/** What the sub-runs of a runtime need from its runs. */
export interface SubRunsHost {
  readonly clock: Clock;
  readonly remote: RemoteRuns;
  /** The run, if this process executes it. */
  find(key: RunKey): LiveRun | undefined;
  newRunId(): string;
  /** Throws `agent_not_found`, or `invalid_input` if the agent does not take this input. */
  checkInput(agentName: string, input: NewRun["input"]): MaybePromise<void>;
  /**
   * Accepts a sub-run. A promise of undefined: another process executes it, and the store has it. Throws
   * `agent_not_found` or `limit_reached`.
   */
  acceptSubRun(request: NewRun, runId: string, parent: ParentRun): MaybePromise<LiveRun | undefined>;
}

/** The interval at which a sub-run in another process is polled, in milliseconds. */
const POLL_MS = 200;

/** Starts sub-runs, finds those of an earlier execution, and cancels them with their parents. */
export class SubRuns {
  readonly #host: SubRunsHost;
  readonly #maxDepth: number;
  readonly #cancelling = new OneByOne();

  constructor(host: SubRunsHost, maxDepth: number) {
    this.#host = host;
    this.#maxDepth = maxDepth;
  }

  /** Runs another agent under a run, to its end. */
  run(parent: LiveRun, execution: Execution, asked: NewSubRun): Promise<Run> {
    const { agentName, show, totalTokens } = asked;
    const { clock } = this.#host;
    const { key: parentKey, state } = parent.log;
    const key = execution.operations.keyFor(`run:${agentName}`);
    const request: NewRun = {
      tenant: parentKey.tenant,
      principal: createdEntry(state).principal ?? null,
      agent_name: agentName,
      input: readInput(asked.input),
      session_id: undefined,
      idempotencyKey: undefined,
      timeoutMs: undefined,
      totalTokens,
      startAt: undefined,
      session: undefined,
      metadata: null,
      labels: undefined,
    };
    const above = parentOf(createdEntry(state), parentKey.run_id, key);
    const host: SubRunHost = {
      newRunId: () => this.#host.newRunId(),
      checkInput: () => this.#host.checkInput(agentName, request.input),
      createSubRun: (runId) => {
        this.#checkDepth(above.depth, agentName);
        const limited = { ...request, tokensLeft: parent.family.spending?.left };
        const run = this.#host.acceptSubRun(limited, runId, above);
        if (run === undefined || isPromise(run)) return run;
        // The agent begins after the commit. If the commit fails, the parent creates the sub-run again.
        onceCommitted(run.log, () => run.begin());
        return run;
      },
      findSubRun: async (childKey) => {
        // Another process may have written to a run that is loaded here, and may have ended it.
        const checked = this.#host.find(childKey)?.ownership.refresh();
        if (checked !== undefined) await checked;
        return this.#host.find(childKey) ?? this.#host.remote.findSubRun(childKey);
      },
      pause: () => new Promise((resolve) => clock.setTimeout(resolve, POLL_MS)),
    };
    return new SubRun(key, show, parent, execution, host).perform();
  }

  /**
   * Cancels a sub-run with its parent. The sub-run then cancels its own sub-runs. See {@link LiveRunHost.cancelSubRun}.
   */
  cancel(key: RunKey, parent: RunLog): undefined | Promise<void> {
    const live = this.#host.find(key);
    if (live !== undefined) this.#cancelling.do(() => void live.cancel().catch(ignore));
    return this.#host.remote.cancelSubRun(key, parent);
  }

  #checkDepth(depth: number, agentName: string): void {
    if (depth <= this.#maxDepth) return;
    const message = `A run of agent ${JSON.stringify(agentName)} would have ${depth} ancestors; limits.maxDepth allows ${this.#maxDepth}.`;
    throw new CadenzaError("limit_reached", message, { agent_name: agentName, limit: "maxDepth" });
  }
}
