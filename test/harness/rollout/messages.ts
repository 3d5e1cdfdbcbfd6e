import type { Place } from "../crash/place.ts";

/* What the driver of a trial of roll-outs, and the processes of the versions of the library, tell each other. */

export const durability = { leaseMs: 5_000, heartbeatMs: 1_000, scanMs: 300, maxTakeovers: 1_000 } as const;

export interface RolloutSettings {
  readonly name: string;
  readonly place: Place;
  /** The file to which the bodies of steps write. */
  readonly witness: string;
}

/** `label`: it makes the same run, or sends the same message, however often it is ordered. */
export type RolloutOrder =
  | { readonly do: "create"; readonly label: string; readonly acts: readonly Act[] }
  | { readonly do: "send"; readonly label: string; readonly run_id: string };

export type RolloutReport =
  | { readonly is: "ready" }
  /** The library does not open the store. The process ends. */
  | { readonly is: "refused"; readonly code: string; readonly message: string }
  | { readonly is: "done"; readonly did: RolloutOrder["do"]; readonly label: string; readonly run_id: string }
  | { readonly is: "said"; readonly level: "warn" | "error"; readonly message: string };

/** What an agent does. `retry` is a step whose first attempt fails, `talk` emits many parts. */
export type Act = "step" | "slow" | "retry" | "both" | "ask" | "receive" | "sleep" | "talk" | "sub" | "patch";

/** What the bodies of steps leave outside of the library. */
export interface WitnessLine {
  readonly is: "began" | "ended" | "stopped" | "failed";
  readonly run: string;
  readonly key: string;
  readonly body: string;
  readonly process: string;
  readonly at: number;
}

/** What a run is told, which is always the same. */
export function answerTo(question: string): string {
  return `the answer to ${question}`;
}

export function wordFor(label: string): string {
  return `the word for ${label}`;
}
