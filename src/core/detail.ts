import type { DetailEvent, Usage } from "../protocol/extensions.ts";
import type { Run } from "../protocol/run.ts";
import { stepOf } from "./emission-source.ts";
import type { Issue } from "./errors.ts";
import { errorOfStep, failureOf } from "./failure.ts";
import type {
  AttemptFailedEntry,
  EmittedEntry,
  Entry,
  IntentEntry,
  SettledEntry,
  StepEntry,
  TakenEntry,
} from "./log.ts";
import { isReceive, isWait, nameIn } from "./operation-keys.ts";
import { questionRecord } from "./record.ts";
import type { HowSettled, RunState } from "./state.ts";
import { howSettled, latestTime } from "./state.ts";
import { isoTime } from "./time.ts";

/** A detail before it has its number and its time. */
type Told = DetailEvent extends infer One ? (One extends DetailEvent ? Omit<One, "position" | "at"> : never) : never;

type EndOfReceive = DetailEvent & { readonly type: "receive.ended" };

/** An operation that has begun, and whose end has not been told. */
type Begun = { readonly is: "question" } | { readonly is: "intent"; readonly entry: IntentEntry };

/** The numbers of events that follow one another. */
interface EventRange {
  readonly first: number;
  last: number;
}

/** What an attempt at a step has emitted. */
interface Draft {
  readonly attempt: number;
  readonly parts: EventRange[];
}

/**
 * What a log says beside the events of the protocol: a fold of its own, which only readers of details have. It sees each
 * entry of the log once, from the first on.
 */
export class DetailFold {
  readonly #exposeErrors: boolean;
  readonly #begun = new Map<string, Begun>();
  /** The numbers of the messages that no receive has taken, by their positions in the log. */
  readonly #messages = new Map<number, number>();
  /** What steps at work have emitted, by their keys. */
  readonly #drafts = new Map<string, Draft>();
  /** The one that the last message belongs to; undefined: no step has emitted that message. */
  #draft: Draft | undefined;
  #position = 0;
  #at = 0;
  #told: DetailEvent[] = [];

  /** `exposeErrors`: whether the messages of all errors are shown, as in the record of a run that fails. */
  constructor(exposeErrors: boolean) {
    this.#exposeErrors = exposeErrors;
  }

  /** The details of the last entry of a state. They come before its events. */
  detailsOf(state: RunState, entry: Entry): readonly DetailEvent[] {
    this.#told = [];
    this.#at = latestTime(state);
    if (state.last_counts) this.#tell(state, entry);
    return this.#told;
  }

  #tell(state: RunState, entry: Entry): void {
    switch (entry.type) {
      case "emitted":
        this.#emit(state, entry);
        return;
      case "torn":
        this.#tear(stepOf(entry.source)?.key);
        return;
      case "intent":
        this.#tear(entry.key);
        this.#begin(entry);
        return;
      case "attempt-failed":
        this.#fail(entry);
        return;
      case "step":
        this.#drafts.delete(entry.key);
        this.#end(entry);
        this.#tellUsage(state, entry.usage);
        return;
      case "awaited":
        this.#begun.set(entry.await_id, { is: "question" });
        this.#add({ type: "question.asked", question: questionRecord(state, entry) });
        this.#tellUsage(state, entry.usage);
        return;
      case "resumed":
      case "declined":
      case "settled":
        this.#settle(entry.await_id, howSettled(entry), entry);
        return;
      case "withdrawn":
        this.#withdraw(entry.await_id);
        return;
      case "timed-out":
        if (entry.await_id !== null) this.#settle(entry.await_id, entry.defaulted ? "default" : "expired");
        if (!entry.defaulted) this.#withdrawAll();
        return;
      case "received":
        this.#add({ type: "message.received", name: entry.name, data: entry.data, by: entry.by ?? null });
        this.#messages.set(state.position - 1, this.#position);
        return;
      case "taken":
        this.#take(entry);
        return;
      case "forked":
        this.#addFork(state);
        return;
      case "continued":
        this.#withdrawAll();
        this.#tellUsage(state, entry.usage);
        this.#begun.clear();
        this.#drafts.clear();
        this.#draft = undefined;
        this.#add({ type: "generation.started", generation: entry.generation });
        return;
      case "cancel-requested":
        this.#add({ type: "cancel.requested", by: entry.by ?? null });
        this.#withdrawAll();
        return;
      case "exceeded":
      case "ended":
        this.#withdrawAll();
        this.#tellUsage(state, entry.usage);
        return;
      default:
    }
  }

  /** Notes which events hold what a step has emitted. */
  #emit({ events }: RunState, entry: EmittedEntry): void {
    if (entry.kind === "generic" || entry.kind === "close") return;
    const opens = entry.kind === "message" || entry.opens === true;
    if (opens) {
      const step = stepOf(entry.source);
      const before = step && this.#drafts.get(step.key);
      if (step !== undefined && before !== undefined && before.attempt < step.attempt) this.#tear(step.key);
      this.#draft = step && (this.#drafts.get(step.key) ?? { attempt: step.attempt, parts: [] });
      if (step !== undefined && this.#draft !== undefined) this.#drafts.set(step.key, this.#draft);
    }
    if (this.#draft === undefined) return;
    // The parts of a whole message come before its end.
    const last = entry.kind === "part" ? events : events - 1;
    const first = entry.kind === "part" ? last : last - entry.message.parts.length + 1;
    const range = this.#draft.parts.at(-1);
    if (range !== undefined && range.last === first - 1) range.last = last;
    else if (last >= first) this.#draft.parts.push({ first, last });
  }

  /** A step is tried again: what it has emitted does not count. */
  #tear(key = ""): void {
    const draft = this.#drafts.get(key);
    if (draft === undefined) return;
    this.#drafts.delete(key);
    if (this.#draft === draft) this.#draft = undefined;
    if (draft.parts.length > 0) this.#add({ type: "output.torn", events: draft.parts });
  }

  #begin(entry: IntentEntry): void {
    const { key, attempt, run_id, stored } = entry;
    if (stored === true) return;
    // What the runtime records for the session of the run is no step of the agent.
    if (key.startsWith("session.")) return;
    const name = nameIn(key);
    this.#begun.set(key, { is: "intent", entry });
    if (run_id !== null) this.#add({ type: "sub_run.started", key, agent_name: name, run_id });
    else if (!isWait(entry)) this.#add({ type: "step.started", key, name, attempt });
    else if (isReceive(key)) this.#add({ type: "receive.started", key, name, until: timeOf(entry) });
    // A sleep always has an end.
    else this.#add({ type: "sleep.started", key, until: timeOf(entry) ?? isoTime(entry.at) });
  }

  #fail({ key, attempt, failure, until }: AttemptFailedEntry): void {
    const error = failureOf(errorOfStep(failure), this.#exposeErrors);
    const about = { key, name: nameIn(key), attempt, error };
    this.#add({ type: "step.attempt_failed", ...about, until: until === undefined ? null : isoTime(until) });
  }

  #end({ key, result, error }: StepEntry): void {
    const begun = this.#begun.get(key);
    if (begun?.is !== "intent") return;
    this.#begun.delete(key);
    const { run_id, attempt } = begun.entry;
    const name = nameIn(key);
    const failure = error === null ? null : failureOf(errorOfStep(error), this.#exposeErrors);
    if (run_id !== null) {
      // The result of a sub-run is its record.
      const run = failure === null ? (result as unknown as Run) : undefined;
      const ended = { status: run?.status ?? null, error: run === undefined ? failure : run.error };
      this.#add({ type: "sub_run.ended", key, agent_name: name, run_id, ...ended });
    } else if (isWait(begun.entry)) this.#add({ type: "sleep.ended", key, how: "elapsed" });
    else if (failure === null) this.#add({ type: "step.completed", key, name, attempt });
    else this.#add({ type: "step.failed", key, name, attempt, error: failure });
  }

  #settle(
    awaitId: string,
    how: HowSettled,
    { by = null, decline, answer }: Pick<SettledEntry, "by" | "decline" | "answer"> = {},
  ): void {
    if (!this.#begun.delete(awaitId)) return;
    const reason = decline?.reason ?? null;
    this.#add({ type: "question.settled", await_id: awaitId, how, by, reason, answer: answer ?? null });
  }

  #addFork({ created }: RunState): void {
    const { run_id, by = null } = created?.origin ?? {};
    if (run_id !== undefined) this.#add({ type: "fork.started", origin_run_id: run_id, by });
  }

  /** A receive that finds a message at once has no beginning. */
  #take({ key, position, issues }: TakenEntry): void {
    this.#begun.delete(key);
    const message = position === null ? null : (this.#messages.get(position) ?? null);
    if (position !== null) this.#messages.delete(position);
    const how = position === null ? "expired" : issues === undefined ? "message" : "rejected";
    this.#addEndOfReceive(key, how, message, issues);
  }

  #withdraw(key: string): void {
    const begun = this.#begun.get(key);
    if (begun === undefined) return;
    if (begun.is === "question") this.#settle(key, "withdrawn");
    else if (isWait(begun.entry)) {
      this.#begun.delete(key);
      if (isReceive(key)) this.#addEndOfReceive(key, "withdrawn", null);
      else this.#add({ type: "sleep.ended", key, how: "withdrawn" });
    }
  }

  #addEndOfReceive(key: string, how: EndOfReceive["how"], message: number | null, issues?: readonly Issue[]): void {
    const copies = issues?.map(({ path, message }) => ({ path: [...path], message })) ?? null;
    this.#add({ type: "receive.ended", key, name: nameIn(key), how, message, issues: copies });
  }

  /** The run waits for nothing any more. Steps and sub-runs may still end. */
  #withdrawAll(): void {
    for (const key of this.#begun.keys()) this.#withdraw(key);
  }

  #tellUsage(state: RunState, usage: Usage | null = null): void {
    if (usage !== null) this.#add({ type: "usage", usage, total: state.usage ?? usage });
  }

  #add(told: Told): void {
    this.#position += 1;
    this.#told.push({ ...told, position: this.#position, at: isoTime(this.#at) });
  }
}

function timeOf({ until = null }: IntentEntry): string | null {
  return until === null ? null : isoTime(until);
}
