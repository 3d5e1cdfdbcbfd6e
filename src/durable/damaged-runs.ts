import { aboutStored } from "../core/about-run.ts";
import { CadenzaError } from "../core/errors.ts";
import { messageOf } from "../core/failure.ts";
import type { FoundRun } from "../core/ports.ts";
import type { DamagedRun } from "../runtime/remote-runs.ts";
import type { Worker } from "./worker.ts";

const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 3_600_000;

/** The runs that this process took and could not load. Each is released, and is due again after a pause that grows. */
export class DamagedRuns {
  readonly #worker: Worker;
  readonly #runs = new Map<string, DamagedRun>();

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** The runs that have not been loaded since. */
  get report(): readonly DamagedRun[] {
    return [...this.#runs.values()];
  }

  /** Reports a run that this process owns and could not load, and releases it. */
  put(found: FoundRun, cause: unknown): void {
    this.#release(found, cause).catch((error: unknown) => {
      this.#worker.logger.error("A run could not be released after it could not be loaded.", {
        ...aboutStored(found),
        error,
      });
    });
  }

  /** The run was loaded. */
  forget(runId: string): void {
    if (this.#runs.size > 0) this.#runs.delete(runId);
  }

  async #release({ key, created, head, position }: FoundRun, cause: unknown): Promise<void> {
    const { store, clock, logger } = this.#worker;
    const attempts = (this.#runs.get(key.run_id)?.attempts ?? 0) + 1;
    const message = `Run ${key.run_id} could not be loaded: ${reasonOf(cause)}. Loading it is tried again later.`;
    this.#runs.set(key.run_id, { ...key, attempts, message });
    const about = aboutStored({ key, created });
    logger.error("A run could not be loaded. Loading it is tried again later.", { ...about, attempts, error: cause });
    const due_at = clock.now() + Math.min(FIRST_RETRY_MS * 2 ** Math.min(attempts - 1, 20), LAST_RETRY_MS);
    const released = { ...head, owner: null, epoch: head.epoch + 1, due_at };
    const write = { entries: [], head: released };
    const conflict = await store.append(key, { epoch: head.epoch, position }, write);
    // Otherwise another process has written to the run or woken it. If this one still owns it, it is loaded again.
    if (conflict === undefined) this.#worker.onReleased(key, released);
  }
}

/** The failure of the store, rather than the error that names the call. */
function reasonOf(cause: unknown): string {
  return messageOf(CadenzaError.is(cause) && cause.cause instanceof Error ? cause.cause : cause);
}
