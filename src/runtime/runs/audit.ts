import { inBackground } from "../../core/background.ts";
import type { CadenzaErrorCode } from "../../core/errors.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { isoTime } from "../../core/time.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { isNotAdmitted } from "../agent/answer.ts";

/** What `onAudit` gets: a call that changes something, or a request that was refused for want of rights. */
export type AuditRecord = AuditedCall | AuditedRefusal | AuditedPause;

/** A call that changes something: who made it, and what came of it. */
export interface AuditedCall extends AuditedObjects {
  /** What the call is for. */
  readonly action:
    | ("create" | "answer" | "decline" | "cancel" | "send" | "fork" | "move" | "delete" | "deleteSession")
    | ("putSchedule" | "pauseSchedule" | "resumeSchedule" | "triggerSchedule" | "removeSchedule");
  /**
   * `done`: the store has it. `refused`: nothing has changed. `unknown`: the store, or the process that executes the run,
   * did not say whether it has it.
   */
  readonly outcome: "done" | "refused" | "unknown";
  /** When it ended so, as a time in ISO 8601. */
  readonly at: string;
  /** The principal of what was called, a scope or the schedules; null if the application named none. */
  readonly by: JsonValue;
  /** The tenant of the scope, or of the schedule. */
  readonly tenant: string;
  /** Of a fork that is done: the new run. `run_id` is the run that it is a fork of. */
  readonly fork_run_id?: string | undefined;
  /** Of a move: the version to which the run was moved; null for the agent without one. */
  readonly version?: string | null | undefined;
  /** The call has changed nothing, because the same was done before: the log names who did it. */
  readonly repeated?: true | undefined;
  /** Why it was refused, or is unknown: the code of the error that the caller got. `internal`: an error without a code. */
  readonly code?: CadenzaErrorCode | "internal" | undefined;
}

/** A request over HTTP that was refused for want of rights, before the runtime was called. */
export interface AuditedRefusal extends AuditedObjects {
  readonly action: "access";
  readonly outcome: "refused";
  /** When, as a time in ISO 8601. */
  readonly at: string;
  /** The principal that `authorize` has named; null if it has refused to name one. */
  readonly by: JsonValue;
  /** The tenant that `authorize` has named; null if it has refused to name one. */
  readonly tenant: string | null;
  /** What the client wanted to do: the action that `authorize` is asked about. */
  readonly asked: string;
  /** The status of the response. */
  readonly status: number;
  /** The reason in the response. */
  readonly code: string;
}

/** A pause or a resume by an operator: who made it, and what came of it. */
export interface AuditedPause extends AuditedObjects {
  readonly action: "pause" | "resume";
  /** As in {@link AuditedCall}. */
  readonly outcome: "done" | "refused" | "unknown";
  /** When it ended so, as a time in ISO 8601. */
  readonly at: string;
  /** The principal of the `Admin`, or who its caller has named. */
  readonly by: JsonValue;
  /** Of which tenant; null: of all. */
  readonly tenant: string | null;
  /** Of which version of the agent; null: the runs without a version. Left out: of all. */
  readonly version?: string | null | undefined;
  /** Of a pause that releases runs at work. */
  readonly now?: true | undefined;
  /** Nothing has changed: the same was paused already, or was not paused. */
  readonly repeated?: true | undefined;
  /** As in {@link AuditedCall}. */
  readonly code?: CadenzaErrorCode | "internal" | undefined;
}

/** What a call or a request is about. What is not known, or does not exist, is left out. */
export interface AuditedObjects {
  readonly run_id?: string | undefined;
  readonly agent_name?: string | undefined;
  readonly session_id?: string | undefined;
  /** The question that is answered or declined. */
  readonly await_id?: string | undefined;
  /** The name of the message that is sent. */
  readonly message_name?: string | undefined;
  readonly schedule_id?: string | undefined;
}

/** Tells the application's `onAudit`. What it throws, now or later, has no effect on the call. */
export class Audit {
  readonly #hook: (record: AuditRecord) => unknown;
  readonly #clock: Pick<Clock, "now">;
  readonly #logger: Logger;

  constructor(hook: (record: AuditRecord) => unknown, clock: Pick<Clock, "now">, logger: Logger) {
    this.#hook = hook;
    this.#clock = clock;
    this.#logger = logger;
  }

  tell(told: Omit<AuditedCall, "at"> | Omit<AuditedRefusal, "at"> | Omit<AuditedPause, "at">): void {
    const known = Object.entries(told).filter(([, value]) => value !== undefined);
    const record = { ...Object.fromEntries(known), at: isoTime(this.#clock.now()) } as AuditRecord;
    const { action, run_id } = told;
    inBackground(this.#logger, () => this.#hook(record), "onAudit failed.", { action, run_id });
  }
}

/** What a call has come to, in addition to what it was asked for. */
export type Ended = AuditedObjects & Pick<AuditedCall, "fork_run_id" | "repeated">;

/** Tells of the calls of one scope. */
export class Trail {
  readonly #audit: Audit;
  readonly #logger: Logger;
  readonly #tenant: string;
  readonly #by: JsonValue;

  constructor(audit: Audit, logger: Logger, tenant: string, by: JsonValue) {
    this.#audit = audit;
    this.#logger = logger;
    this.#tenant = tenant;
    this.#by = by;
  }

  /**
   * Makes a call, and tells what came of it. `endOf` says it of the result. `commit`: what the result still waits for until
   * the store has it.
   */
  follow<T>(
    action: AuditedCall["action"],
    asked: AuditedObjects,
    call: () => MaybePromise<T>,
    endOf: (result: T) => Ended,
    commit: (result: T) => undefined | Promise<void> = atOnce,
  ): MaybePromise<T> {
    const onDone = (result: T): T => {
      const tell = (): void => this.#tell(action, "done", { ...asked, ...endOf(result) });
      const committed = commit(result);
      if (committed === undefined) tell();
      else {
        const told = committed.then(tell, (error: unknown) =>
          this.#fail(action, { ...asked, ...endOf(result) }, error),
        );
        inBackground(this.#logger, told);
      }
      return result;
    };
    const onFailed = (error: unknown): never => {
      this.#fail(action, asked, error);
      throw error;
    };
    let calling: MaybePromise<T>;
    try {
      calling = call();
    } catch (error) {
      return onFailed(error);
    }
    return isPromise(calling) ? calling.then(onDone, onFailed) : onDone(calling);
  }

  /** A call with an invalid argument asks for nothing. */
  #fail(action: AuditedCall["action"], about: AuditedObjects, error: unknown): void {
    const code = CadenzaError.is(error) ? error.code : "internal";
    if (code === "invalid_argument") return;
    const isUnknown = undecided.has(code) && !isNotAdmitted(error);
    this.#tell(action, isUnknown ? "unknown" : "refused", { ...about, code });
  }

  #tell(
    action: AuditedCall["action"],
    outcome: AuditedCall["outcome"],
    about: AuditedObjects & Pick<AuditedCall, "fork_run_id" | "repeated" | "code">,
  ): void {
    this.#audit.tell({ action, outcome, by: this.#by, tenant: this.#tenant, ...about });
  }
}

/** Makes a call, and tells of it where the application has asked for that. See {@link Trail.follow}. */
export function told<T>(
  trail: Trail | undefined,
  action: AuditedCall["action"],
  asked: AuditedObjects,
  call: () => MaybePromise<T>,
  endOf: (result: T) => Ended = nothingMore,
  commit?: (result: T) => undefined | Promise<void>,
): MaybePromise<T> {
  return trail === undefined ? call() : trail.follow(action, asked, call, endOf, commit);
}

/** The errors after which the store may have it all the same. */
const undecided: ReadonlySet<CadenzaErrorCode | "internal"> = new Set([
  "store_failed",
  "answer_pending",
  "lost_ownership",
  "internal",
] as const);

function atOnce(): undefined {
  return undefined;
}

function nothingMore(): Ended {
  return {};
}
