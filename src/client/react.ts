import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import type { OpenQuestionDetails } from "../protocol/extensions.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { CallableAgent } from "../runtime/agent/agent-schemas.ts";
import { ClientError } from "./client-error.ts";
import type { ClientRun } from "./client-run.ts";
import type { RunView } from "./run-view.ts";
import { emptyView } from "./run-view.ts";

/** A run as a component shows it. */
export interface UsedRun<Called extends CallableAgent> {
  /** What the run is like now. Before the first event, and without a run, it is `created` and empty. */
  readonly state: RunView;
  /** All parts of its output: those of `state`. */
  readonly parts: readonly MessagePart[];
  /** Its open questions: those of `state`. */
  readonly questions: readonly OpenQuestionDetails[];
  /** What went wrong last: an answer that was refused, or events that cannot be read further; null for nothing. */
  readonly error: unknown;
  /** Answers a question, as {@link ClientRun.answer} does. A refusal becomes `error`, and the promise resolves. */
  readonly answer: (...reply: Parameters<ClientRun<Called>["answer"]>) => Promise<void>;
  /** Declines to answer, in the same way. */
  readonly decline: (...reply: Parameters<ClientRun<Called>["decline"]>) => Promise<void>;
  /** Stops the run. */
  readonly stop: () => Promise<void>;
}

/**
 * Follows a run while the component is mounted. The server needs `extensions: true`. `run` is what `client.run` or
 * `client.attach` gives, which may be called in the render: the same client gives the same run for an id. Throws
 * `invalid_argument` for a client that is made in the render.
 *
 * @example
 * ```ts no-run — it needs a page
 * import type { ClientRun } from "cadenza/client";
 * import { useRun } from "cadenza/client/react";
 *
 * export function useApproval(run: ClientRun | null) {
 *   const { state, questions, answer } = useRun(run);
 *   const approve = () => answer("approval", { approved: true });
 *   return { text: state.text, approve: questions.length > 0 ? approve : undefined };
 * }
 * ```
 */
export function useRun<Called extends CallableAgent>(run: ClientRun<Called> | null | undefined): UsedRun<Called> {
  checkStable(useRef<LastRun>({ run, changes: 0 }).current, run);
  const [error, setError] = useState<unknown>(null);
  const watch = useCallback((onChange: () => void) => run?.watch(onChange, setError) ?? noWatch, [run]);
  const view = useCallback(() => run?.view ?? emptyView, [run]);
  const state = useSyncExternalStore(watch, view, view);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the error is that of the run before.
  useEffect(() => setError(null), [run]);
  const told = useCallback(async (done: Promise<void> | undefined): Promise<void> => {
    try {
      await done;
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  }, []);
  const answer = useCallback<UsedRun<Called>["answer"]>((...reply) => told(run?.answer(...reply)), [run, told]);
  const decline = useCallback<UsedRun<Called>["decline"]>((...reply) => told(run?.decline(...reply)), [run, told]);
  const stop = useCallback(() => told(run?.cancel()), [run, told]);
  const { parts, questions } = state;
  return { state, parts, questions, error, answer, decline, stop };
}

/** What the last render had, and how many in a row had another object for the same run. */
interface LastRun {
  run: Pick<ClientRun, "run_id"> | null | undefined;
  changes: number;
}

/** Refuses a run that is another object in each render: React would show nothing of any of them. */
function checkStable(last: LastRun, run: LastRun["run"]): void {
  const isSame = last.run?.run_id === run?.run_id;
  last.changes = isSame && last.run !== run ? last.changes + 1 : 0;
  last.run = run;
  if (last.changes < MOST_CHANGES) return;
  const message = `useRun got another object for run ${run?.run_id} in each of ${MOST_CHANGES} renders. Make the client once, outside of the component.`;
  throw new ClientError("invalid_argument", message);
}

/** After a change of the client the events of the run come, and its component renders with the same object again. */
const MOST_CHANGES = 3;

function noWatch(): void {
  // There is no run.
}
