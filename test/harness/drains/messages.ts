/* What the driver of a trial of drained workers and its workers tell each other. */

/** How long a step of a run takes, in milliseconds, and how many it has. */
export const STEP_MS = 40;
export const STEPS = 12;

export interface DrainSettings {
  readonly host: string;
  readonly port: number;
  readonly schema: string;
  /** The prefix of the owner's name in the runs of its runtime. */
  readonly name: string;
  readonly drainMs: number;
}

export type DrainReport =
  | { readonly is: "ready" }
  | { readonly is: "began" | "done"; readonly run_id: string; readonly key: string };
