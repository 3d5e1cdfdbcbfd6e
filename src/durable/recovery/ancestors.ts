import type { Command } from "../../core/commands.ts";
import { commandOf } from "../../core/commands.ts";
import type { Entry, ParentRun } from "../../core/log.ts";
import { questionId } from "../../core/operation-keys.ts";
import { settledAbove, shownAbove } from "../../core/passed-on.ts";
import type { RunKey } from "../../core/ports.ts";
import type { Question } from "../../core/state.ts";
import { createdEntry, openQuestion, settledQuestion } from "../../core/state.ts";
import { isNotFound } from "../../runtime/log/refusals.ts";
import { committedUpwards } from "../../runtime/runs/committed-above.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import type { RemotePosts } from "./remote-posts.ts";
import type { Worker } from "./worker.ts";

/**
 * Shows the questions of sub-runs in the logs of the runs above them, whether these are loaded or not. A crash before
 * that harms nothing: the write of the sub-run has woken its parent, which reads the sub-run's log.
 */
export class Ancestors {
  readonly #worker: Worker;
  readonly #logs: RemotePosts;
  readonly #telling = new WeakMap<LiveRun, Promise<void>>();

  constructor(worker: Worker, logs: RemotePosts) {
    this.#worker = worker;
    this.#logs = logs;
  }

  /** Resolves when everything so far has been written above the run, as far as the store takes it. */
  told(run: LiveRun): undefined | Promise<void> {
    const telling = this.#telling.get(run);
    return telling === undefined ? this.#committedAbove(run) : telling.then(() => this.#committedAbove(run));
  }

  /** Resolves when a settled question of a sub-run is settled in the runs above it, as far as the store takes it. */
  settle(key: RunKey, parent: ParentRun, question: Question): Promise<void> {
    return this.#tellAll(key, parent, [question]).catch((error: unknown) => this.#report(key, error));
  }

  /** A parent that is loaded here has been told, and may not have committed it. */
  #committedAbove({ log: { key, state } }: LiveRun): undefined | Promise<void> {
    const { parent } = createdEntry(state);
    const live = parent && this.#worker.runs.find({ tenant: key.tenant, run_id: parent.run_id });
    return live && committedUpwards(live);
  }

  /** Entries of a sub-run are committed. A parent that follows it in this process has been told already. */
  tell(run: LiveRun, entries: readonly Entry[]): void {
    const { parent } = createdEntry(run.log.state);
    if (parent === undefined || run.parent !== undefined) return;
    const questions = entries.map((entry) => questionOf(run, entry)).filter((one) => one !== undefined);
    if (questions.length === 0) return;
    const before = this.#telling.get(run) ?? Promise.resolve();
    const telling = before
      .then(() => this.#tellAll(run.log.key, parent, questions))
      .catch((error: unknown) => this.#report(run.log.key, error))
      .finally(() => {
        if (this.#telling.get(run) === telling) this.#telling.delete(run);
      });
    this.#telling.set(run, telling);
  }

  /** Up to the root, or to a run that is loaded here, which tells those above it. */
  async #tellAll({ tenant, run_id }: RunKey, parent: ParentRun, questions: readonly Question[]): Promise<void> {
    let above: ParentRun | undefined = parent;
    let path = "";
    while (above !== undefined) {
      path = path === "" ? above.key : `${above.key}/${path}`;
      const key: RunKey = { tenant, run_id: above.run_id };
      const commands = questions.map((question) => this.#commandFor(run_id, question, path));
      const live = this.#worker.runs.find(key);
      if (live !== undefined) {
        for (const command of commands) live.log.decide(command);
        await committedUpwards(live);
        if (!live.log.lost) return;
      }
      above = createdEntry(await this.#logs.change(key, commands)).parent;
    }
  }

  #commandFor(runId: string, question: Question, path: string): Command {
    const at = this.#worker.clock.now();
    const entry =
      question.settled === null ? shownAbove(runId, question, path, at) : settledAbove(runId, question, path, at);
    return commandOf(entry);
  }

  #report(key: RunKey, error: unknown): void {
    if (isNotFound(error)) return;
    this.#worker.logger.warn(
      "The runs above a sub-run could not be told of its questions. Its parent reads them when it is loaded.",
      { ...key, error },
    );
  }
}

/** The question that an entry asks or settles. Undefined: it does neither. */
function questionOf({ log: { state } }: LiveRun, entry: Entry): Question | undefined {
  const id = questionId(entry);
  return id == null ? undefined : (openQuestion(state, id) ?? settledQuestion(state, id));
}
