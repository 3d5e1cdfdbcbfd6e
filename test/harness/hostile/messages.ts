import type { Place } from "../crash/place.ts";

/** What processes of a hostile trial are told. */
export interface ProcessSettings {
  readonly name: string;
  /** Undefined: memory. */
  readonly place: Place | undefined;
  /** `worker`: executes runs and accepts none. `front`: accepts runs and executes none. `both`: does both. */
  readonly role: "worker" | "front" | "both";
  /** Whether durable agents are replayed after each commit. */
  readonly replays: boolean;
  readonly seed: string;
  /** The numbers of its cases. A worker has none. */
  readonly cases: readonly number[];
  readonly atOnce: number;
}

/** What one case found out. */
export interface CaseReport {
  readonly face: string;
  readonly kind: string;
  readonly sent: number;
  readonly refused: number;
}

export type ProcessReport =
  | { readonly is: "ready" }
  | { readonly is: "case"; readonly report: CaseReport }
  | { readonly is: "wrong"; readonly number: number; readonly where: string; readonly what: string }
  /** A rejection without a handler, or an exception that nothing catches: without a listener, the process would end. */
  | { readonly is: "death"; readonly what: string; readonly at: readonly string[] }
  | { readonly is: "slow"; readonly number: number; readonly what: string }
  | { readonly is: "said"; readonly message: string }
  | { readonly is: "done" };

export type ProcessOrder = { readonly do: "end" };
