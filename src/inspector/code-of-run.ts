import type { RunKey } from "../core/ports.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";

/** A recorded operation, and the code that does it now. */
export interface OperationCode {
  readonly key: string;
  /**
   * A digest of the source of its function; of a model's call one of its prompt. Null for an operation without a function,
   * or one that the code does not come to.
   */
  readonly body: string | null;
}

/** What the code that a process has does with what a run has recorded. */
export interface CodeOfRun {
  /** In the order in which they began. */
  readonly operations: readonly OperationCode[];
  /** Where the code first does something else than the run did; null: it does the same, apart from the bodies of its steps. */
  readonly differs: {
    /** The place in `operations`; behind the last one for what the run did after them. */
    readonly at: number;
    readonly expected: string;
    readonly asked: string;
    /** The line of the code, as `file:line:column`; null where it is unknown. */
    readonly line: string | null;
  } | null;
}

/** Which steps of the forks of a run get what the run has recorded: calls of models, or all but those that are named. */
export type StubbedSteps = { readonly stub: "models" } | { readonly stub: "steps"; readonly except: readonly string[] };

/** Tries edited code on runs: what `createPlayground()` of `cadenza/testing` gives. */
export interface CodeTrials {
  /** Compares the code that the runtime has with a run. */
  codeOf(runtime: AgentRuntime, run: RunKey): Promise<CodeOfRun>;
  /** From now on forks of the run get what it has recorded. Null: they do all for real. */
  stub(runtime: AgentRuntime, run: RunKey, stubbed: StubbedSteps | null): Promise<void>;
}
