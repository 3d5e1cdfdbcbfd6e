import type { CreateRunRequest, StreamedEvent } from "cadenza";
import type { Loss } from "../unreliable-store.ts";
import type { MessageName } from "./plans.ts";

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
      readonly mode: NonNullable<CreateRunRequest["mode"]>;
      /** When the agent may begin, in milliseconds since 1970; null for at once. */
      readonly startAt: number | null;
      /** A label that only this run has. */
      readonly label: string;
    }
  | {
      readonly do: "answer";
      readonly to: ShownQuestion;
      readonly reply: GivenReply;
      readonly key: string | null;
      readonly mode: NonNullable<CreateRunRequest["mode"]>;
    }
  | {
      readonly do: "send";
      /** A run, or the label of one. */
      readonly to: { readonly run_id: string } | { readonly label: string };
      readonly name: MessageName;
      readonly data: NamedData;
      readonly key: string | null;
    }
  | { readonly do: "look"; readonly run_id: string }
  | { readonly do: "cancel"; readonly run_id: string }
  | { readonly do: "follow"; readonly run_id: string; readonly after: number };

/** Data with a unique name. A value that is a text matches no schema. */
export type NamedData = {
  readonly value: number | string;
  readonly nonce: string;
};

/** Named data as the text of a message. */
interface NamedMessage {
  readonly type: "message";
  readonly message: { readonly role: "user"; readonly parts: readonly [{ readonly content: string }] };
}

/** A reply with a unique name: an answer, as an object or in the text of a message, or the reason of a decline. */
export type GivenReply =
  | { readonly await_resume: NamedData | NamedMessage }
  | { readonly decline: { readonly reason: string } };

/** A run that shows a question, and the id of the question in it. */
export interface ShownQuestion {
  readonly run_id: string;
  readonly await_id: string;
}

/** What a run waits for: the run itself, or a sub-run of it. */
export interface Waiting {
  readonly questions: readonly (ShownQuestion & { readonly text: string; readonly expires_at: string | null })[];
  /** The keys of the receives. */
  readonly receives: readonly { readonly run_id: string; readonly key: string }[];
}

/** What has happened in a worker. */
export type Report =
  | { readonly is: "ready" }
  | { readonly is: "done"; readonly id: number; readonly run_id: string; readonly waiting?: Waiting }
  | { readonly is: "refused"; readonly id: number; readonly code: string; readonly message: string }
  | { readonly is: "event"; readonly run_id: string; readonly event: StreamedEvent }
  /** The library has logged an error or a warning. */
  | { readonly is: "said"; readonly level: "warn" | "error"; readonly message: string; readonly error: string }
  /** A write was carried out, and its answer is lost. A process that waits for it for ever has to be killed. */
  | { readonly is: "swallowed"; readonly how: Loss };
