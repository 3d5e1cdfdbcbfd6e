import type { Command } from "../../core/commands.ts";
import { commandOf } from "../../core/commands.ts";
import { isNotFound } from "../../core/errors.ts";
import type { Entry, ParentRun } from "../../core/log.ts";
import { questionId } from "../../core/operation-keys.ts";
import type { RunKey } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import { settledAbove, shownAbove } from "../../core/questions-above.ts";
import type { Question, RunState } from "../../core/state.ts";
import { createdEntry, openQuestion, settledQuestion } from "../../core/state.ts";
import type { LiveRun, LiveRuns } from "./live-run.ts";

/**
 * Resolves when the entries of a run's ancestors are committed, or their writes have failed. Undefined: they are
 * committed.
 */
export function committedAbove(run: LiveRun): undefined | Promise<void> {
  if (run.parent !== undefined) return committedUpwards(run.parent);
  if (run.residence === undefined) return undefined;
  const told = telling.get(run);
  return told === undefined ? committedInParent(run) : told.then(() => committedInParent(run));
}

/** A parent that is loaded here, and does not follow the run, has been told and may not have committed it. */
function committedInParent({ log: { key, state }, runs }: LiveRun): undefined | Promise<void> {
  const { parent } = createdEntry(state);
  const live = parent && runs.find({ tenant: key.tenant, run_id: parent.run_id });
  return live && committedUpwards(live);
}

/** As {@link committedAbove}, with the entries of the run itself. */
function committedUpwards(run: LiveRun): undefined | Promise<void> {
  // What the store does not take now is found in the log of the sub-run later.
  const committed = run.log.acknowledge()?.catch(ignore);
  return committed === undefined ? committedAbove(run) : committed.then(() => committedAbove(run));
}

/** The sub-runs whose questions are being written to the runs above them. */
const telling = new WeakMap<LiveRun, Promise<void>>();

/**
 * Entries of a sub-run are committed. Their questions are shown or settled in the runs above, whether these are loaded or
 * not. A parent that follows the sub-run in this process knows them. A crash before that harms nothing: the write of the
 * sub-run has woken its parent, which reads the sub-run's log.
 */
export function tellAboveLater(run: LiveRun, entries: readonly Entry[], post: PostCommands): void {
  const { parent } = createdEntry(run.log.state);
  if (parent === undefined || run.parent !== undefined) return;
  const questions = entries.map((entry) => questionIn(run, entry)).filter((one) => one !== undefined);
  if (questions.length === 0) return;
  const before = telling.get(run) ?? Promise.resolve();
  const told = before
    .then(() => tellAbove(run.runs, post, run.log.key, parent, questions))
    .finally(() => {
      if (telling.get(run) === told) telling.delete(run);
    });
  telling.set(run, told);
}

/** The question that an entry asks or settles. Undefined: it does neither. */
function questionIn({ log: { state } }: LiveRun, entry: Entry): Question | undefined {
  const id = questionId(entry);
  return id == null ? undefined : (openQuestion(state, id) ?? settledQuestion(state, id));
}

/** Decides commands on a run that is not loaded here, and writes the entries. Resolves with the state after that. */
export type PostCommands = (key: RunKey, commands: readonly Command[]) => Promise<RunState>;

/**
 * Shows questions of a sub-run in the runs above it, or settles them there, as each question is by now. Resolves when the
 * store has that, or has failed to take it.
 */
export async function tellAbove(
  runs: LiveRuns,
  post: PostCommands,
  key: RunKey,
  parent: ParentRun,
  questions: readonly Question[],
): Promise<void> {
  try {
    await tellAll(runs, post, key, parent, questions);
  } catch (error) {
    if (isNotFound(error)) return;
    runs.shared.logger.warn(
      "The runs above a sub-run could not be told of its questions. Its parent reads them when it is loaded.",
      { ...key, error },
    );
  }
}

/** Up to the root, or to a run that is loaded here, which tells the runs above it. */
async function tellAll(
  runs: LiveRuns,
  post: PostCommands,
  { tenant, run_id }: RunKey,
  parent: ParentRun,
  questions: readonly Question[],
): Promise<void> {
  let above: ParentRun | undefined = parent;
  let path = "";
  while (above !== undefined) {
    path = path === "" ? above.key : `${above.key}/${path}`;
    const key: RunKey = { tenant, run_id: above.run_id };
    const at = runs.shared.clock.now();
    const commands = questions.map((question) => commandAbove(run_id, question, path, at));
    const live = runs.find(key);
    if (live !== undefined) {
      for (const command of commands) live.log.decide(command);
      await committedUpwards(live);
      if (!live.log.lost) return;
    }
    above = createdEntry(await post(key, commands)).parent;
  }
}

function commandAbove(runId: string, question: Question, path: string, at: number): Command {
  const isOpen = question.settled === null;
  return commandOf(isOpen ? shownAbove(runId, question, path, at) : settledAbove(runId, question, path, at));
}
