import type { RunMode, StreamedEvent } from "cadenza";
import type { Answer } from "../answers.ts";
import type { Loss } from "../unreliable-store.ts";

/* The messages between the harness and its worker processes. */

/** How a worker is started. */
export interface WorkerSettings {
  /** The prefix of the owner's name in the leases of its runtime. */
  readonly name: string;
  /** The store, as a file. */
  readonly file: string;
  /** The file of the lines that its agents write. */
  readonly witness: string;
  readonly driver: string;
  readonly synchronous: "FULL" | "NORMAL";
  readonly leaseMs: number;
  readonly heartbeatMs: number;
  readonly scanMs: number;
  readonly evictAfterMs: number;
  /** How long `close` lets runs finish on SIGTERM. */
  readonly drainMs: number;
  /** Whether it has the new version of the agent that is being deployed, beside the old one. */
  readonly isNew: boolean;
  /** The delay of each write. */
  readonly writeMs: number;
  /** The answer of one in so many writes is lost; 0 for none. */
  readonly loseOneIn: number;
  /** The seed that chooses these writes. */
  readonly seed: string;
}

/** What a worker has to do. A living worker answers each order with a `done` or a `refused` and the order's number. */
export type Order = Task & { readonly id: number };

export type Task =
  | {
      readonly do: "create";
      readonly agent: string;
      readonly input: string;
      readonly session_id: string | null;
      readonly key: string | null;
      readonly mode: RunMode;
    }
  | {
      readonly do: "answer";
      readonly run_id: string;
      readonly await_id: string;
      readonly answer: GivenAnswer;
      readonly key: string | null;
      readonly mode: RunMode;
    }
  | { readonly do: "cancel"; readonly run_id: string }
  | { readonly do: "follow"; readonly run_id: string; readonly after: number };

/** An answer with a unique name, in its text if it is a message. An answer whose value is a text matches no schema. */
export type GivenAnswer =
  | { readonly value: number | string; readonly nonce: string }
  | Extract<Answer, { readonly type: "message" }>;

/** What has happened in a worker. */
export type Report =
  | { readonly is: "ready" }
  | { readonly is: "done"; readonly id: number; readonly run_id: string }
  | { readonly is: "refused"; readonly id: number; readonly code: string; readonly message: string }
  | { readonly is: "event"; readonly run_id: string; readonly event: StreamedEvent }
  /** The library has logged an error or a warning. */
  | { readonly is: "said"; readonly level: "warn" | "error"; readonly message: string; readonly error: string }
  /** A write was carried out, and its answer is lost. A process that waits for it for ever has to be killed. */
  | { readonly is: "swallowed"; readonly how: Loss };
