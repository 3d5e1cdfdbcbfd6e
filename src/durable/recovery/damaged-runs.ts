import { aboutStored } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { messageOf } from "../../core/failure.ts";
import { newerPart } from "../../core/format.ts";
import type { FoundRun, Mismatch, RunHead, RunKey, RunPosition, RunWrite } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import type { RemoteReport } from "../../runtime/runs/remote-runs.ts";
import type { Worker } from "./worker.ts";

/** The first pause of a run that cannot go on here, in milliseconds. Each next one is twice as long. */
export const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 3_600_000;
/** The first pause of a run that a newer version of the library has written. A process of that version may take it. */
const FIRST_NEWER_MS = 60_000;
/** The number of runs in one request to the store. */
const MAX_RUNS = 1_000;

/** A run that could not be loaded. */
interface Damaged {
  readonly report: RemoteReport["damaged"][number];
  /** How it was when this process owned it. */
  readonly owned: RunPosition;
}

/**
 * The runs that this process took and could not load. Each is released, and is due again after a pause that grows. A run
 * that a newer version of the library has written to is blocked meanwhile, so that nothing else makes it due.
 */
export class DamagedRuns {
  readonly #worker: Worker;
  /** How often this process has met each run that a newer version has written to. */
  readonly #newer = new RunMap<number>();
  readonly #runs = new RunMap<Damaged>();

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** The runs that have not been loaded since, here or elsewhere: the store is asked. */
  async report(): Promise<RemoteReport["damaged"]> {
    const all = Array.from(this.#runs.values(), ({ owned }) => owned);
    for (let from = 0; from < all.length; from += MAX_RUNS) {
      const known = all.slice(from, from + MAX_RUNS);
      for (const { key, epoch } of await this.#worker.store.moved(known)) {
        const owned = this.#runs.get(key)?.owned;
        if (owned === undefined || !known.includes(owned)) continue;
        // The release by this process is one epoch. With any other the run has had another owner, or has ended.
        if (epoch !== owned.epoch && epoch !== owned.epoch + 1) this.#runs.delete(key);
      }
    }
    return Array.from(this.#runs.values(), ({ report }) => report);
  }

  /** Reports a run that this process owns and could not load, and releases it. */
  put(found: FoundRun, cause: unknown): void {
    inBackground(
      this.#worker.logger,
      this.#release(found, cause),
      "A run could not be released after it could not be loaded.",
      aboutStored(found),
    );
  }

  /** The run was loaded. */
  forget(key: RunKey): void {
    if (this.#runs.size > 0) this.#runs.delete(key);
  }

  async #release(found: FoundRun, cause: unknown): Promise<void> {
    const newer = newerPart(cause);
    const retryMs = newer === undefined ? this.#report(found, cause) : this.#leaveAlone(found, newer);
    const { key, head, position } = found;
    const due_at = this.#worker.clock.now() + retryMs;
    // It would hold its slot for as long as it cannot be loaded.
    const left: RunHead = { ...head, owner: null, epoch: head.epoch + 1, due_at, holds_slot: false };
    const released = newer === undefined ? left : { ...left, blocked: newer };
    const { store } = this.#worker;
    // The run is tried again and again. The feed gets one event.
    const isNews = store.readFeed !== undefined && this.#newer.get(key) === 1;
    const feed: RunWrite["feed"] = newer !== undefined && isNews ? [{ type: "run.blocked" }] : undefined;
    const write = { entries: [], head: released, feed, takes: "all" } as const;
    let conflict = await store.append(key, { epoch: head.epoch, position }, write);
    // The next owner checks everything that the run waits for.
    while (conflict?.conflict === "woken")
      conflict = await store.append(key, { epoch: head.epoch, position, wakes: conflict.wakes }, write);
    // Otherwise another process has written to the run. If this one still owns it, it is loaded again.
    if (conflict !== undefined) return;
    this.#worker.onReleased(key, released);
    if (head.holds_slot) this.#worker.onSlotFree();
  }

  /** Reports a run that cannot be read, and answers when it is tried again. */
  #report({ key, created, head, position }: FoundRun, cause: unknown): number {
    const { logger } = this.#worker;
    const attempts = (this.#runs.get(key)?.report.attempts ?? 0) + 1;
    const message = `Run ${key.run_id} could not be loaded: ${reasonOf(cause)}. Loading it is tried again later.`;
    this.#runs.set(key, {
      report: { ...key, attempts, message },
      owned: { key, epoch: head.epoch, position },
    });
    const about = aboutStored({ key, created });
    logger.error("A run could not be loaded. Loading it is tried again later.", { ...about, attempts, error: cause });
    return pauseOf(FIRST_RETRY_MS, attempts);
  }

  /** Reports a run that a newer version has written to, once, and answers when this process looks at it again. */
  #leaveAlone({ key, created }: FoundRun, { position, expected }: Mismatch): number {
    const attempts = (this.#newer.get(key) ?? 0) + 1;
    this.#newer.set(key, attempts);
    if (attempts === 1)
      this.#worker.logger.warn(
        "A run was written by a newer version of cadenza. It is left to processes that can read it. Update this one.",
        { ...aboutStored({ key, created }), position, expected },
      );
    return pauseOf(FIRST_NEWER_MS, attempts);
  }
}

/** How long to wait after so many attempts, in milliseconds. */
export function pauseOf(firstMs: number, attempts: number): number {
  return Math.min(firstMs * 2 ** Math.min(attempts - 1, 20), LAST_RETRY_MS);
}

/** The failure of the store, rather than the error that names the call. */
function reasonOf(cause: unknown): string {
  return messageOf(CadenzaError.is(cause) && cause.cause instanceof Error ? cause.cause : cause);
}
