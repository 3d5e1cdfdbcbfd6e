import type { StreamedEvent } from "cadenza";
import type { Mail, Reply } from "../answers.ts";
import type { Place } from "./place.ts";

/* The messages between the driver and its worker processes. */

/** How a worker is started. */
export interface WorkerSettings {
  readonly place: Place;
  /** The prefix of the owner's name in the leases of its runtime. */
  readonly name: string;
  readonly synchronous: "FULL" | "NORMAL";
  readonly leaseMs: number;
  readonly heartbeatMs: number;
  readonly scanMs: number;
  readonly evictAfterMs: number;
  /** Whether each run is replayed after each commit, with a snapshot of each entry. Every second one is spoilt. Default: false. */
  readonly replays?: boolean;
  /** Whether it executes runs. Default: true. */
  readonly work?: boolean;
  /** Default: its clock is right. */
  readonly wrongClock?: WrongClock | undefined;
}

/** A clock that is set again and again, up to an hour off. */
export interface WrongClock {
  readonly seed: string;
  /** When that ends, in milliseconds since 1970. The clock is an hour ahead from then on. */
  readonly until: number;
}

/** What a worker has to do. */
export type Order =
  | { readonly do: "create"; readonly name: string; readonly session_id: string | null; readonly stream: boolean }
  | { readonly do: "answer"; readonly run_id: string; readonly await_id: string; readonly reply: Reply }
  | { readonly do: "look"; readonly run_id: string }
  | { readonly do: "send"; readonly run_id: string; readonly mail: Mail }
  | { readonly do: "cancel"; readonly run_id: string }
  | { readonly do: "follow"; readonly run_id: string; readonly after: number }
  | { readonly do: "close" };

/** What has happened in a worker. */
export type Report =
  | { readonly is: "ready" }
  | { readonly is: "created"; readonly name: string; readonly run_id: string }
  | { readonly is: "event"; readonly run_id: string; readonly event: StreamedEvent }
  | { readonly is: "answered"; readonly run_id: string; readonly await_id: string }
  | { readonly is: "receives"; readonly run_id: string; readonly receives: readonly Receiving[] }
  | { readonly is: "sent"; readonly run_id: string; readonly mail: Mail }
  | { readonly is: "cancelled"; readonly run_id: string }
  | { readonly is: "refused"; readonly order: Order; readonly code: string; readonly message: string }
  | BodyReport
  /** The store has taken entries of a run, from this position on, at the latest at this time of the machine. */
  | {
      readonly is: "stored";
      readonly run_id: string;
      readonly from: number;
      readonly count: number;
      readonly at: number;
    }
  | { readonly is: "got"; readonly run_id: string; readonly key: string; readonly at: number }
  | { readonly is: "said"; readonly message: string; readonly error: string }
  /** A call of the server took too long. */
  | { readonly is: "late"; readonly method: string; readonly ms: number }
  | { readonly is: "blocked"; readonly run_id: string; readonly expected: string; readonly asked: string }
  | { readonly is: "closed"; readonly left: number };

/** A run waits for a message: the run that was looked at, or a sub-run of it. */
export interface Receiving {
  readonly run_id: string;
  readonly key: string;
}

/** A step's body has begun or ended. */
export interface BodyReport {
  readonly is: "began" | "ended";
  readonly run_id: string;
  readonly key: string;
  readonly attempt: number;
  /** The owner of the run and the length of its log when the body begins. Undefined: the store did not say. */
  readonly owner: string | null | undefined;
  readonly position: number | undefined;
  /** When it began or ended, by `machineTime`. */
  readonly at: number;
}

/** The milliseconds since the machine has started: one clock for all processes, which is never set. */
export function machineTime(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
