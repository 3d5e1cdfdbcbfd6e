import type { Mismatch } from "../../core/ports.ts";
import type { OperationsHost } from "../../runtime/execution/live-operations.ts";

/** What journaled operations need from their run, and what they report to it. */
export interface JournalHost extends OperationsHost {
  /**
   * How long a replayed agent may take for the next operation in its history, in milliseconds of the process's running
   * time, before a stall is reported.
   */
  readonly stallMs: number;
  /** The agent has caught up with its history. */
  onCaughtUp(): void;
  /** The agent does not do what its history holds. */
  onMismatch(mismatch: Mismatch): void;
  /** As {@link onMismatch}, but the agent may still go on. Undefined: it has gone on. */
  onStall(mismatch: Mismatch | undefined): void;
  /** The agent emitted another value of the same kind than its history holds. The history counts. */
  onDifference(): void;
}
