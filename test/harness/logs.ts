import type { Message, MessagePart } from "cadenza";
import type { Entry } from "cadenza/store";
import type {
  AttemptFailedEntry,
  AwaitedEntry,
  Command,
  CreatedEntry,
  OfferedEntry,
  ReceivedEntry,
  Replied,
  RunState,
  RunStatus,
  SettledEntry,
} from "./internals.ts";
import { decide, evolve, foldEntries, isRefusal } from "./internals.ts";

/* Logs written by hand, one for each situation that a rule of the core names. */

export const RUN_ID = "00000000-0000-4000-8000-000000000001";
export const T0 = Date.UTC(2026, 0, 1);

const childQuestion = { run_id: "00000000-0000-4000-8000-000000000002", await_id: "ask#1" } as const;

export function part(content: string): MessagePart {
  return { content_type: "text/plain", content, content_encoding: "plain" };
}

export function message(content: string, role: Message["role"] = "user"): Message {
  return { role, parts: [part(content)] };
}

export function created(changes: Partial<CreatedEntry> = {}): CreatedEntry {
  return {
    type: "created",
    at: T0,
    agent_name: "echo",
    session_id: RUN_ID,
    input: [message("Hello")],
    ...changes,
  };
}

export function question(await_id: string): Pick<AwaitedEntry, "await_id" | "parts"> {
  return { await_id, parts: [part(`What about ${await_id}?`)] };
}

export function asked(await_id: string, at = T0 + 20): Entry {
  return { type: "awaited", at, ...question(await_id), emitted: 0 };
}

export function resumed(await_id: string, at = T0 + 30, idempotency_key: string | null = null): Entry {
  return { type: "resumed", at, await_id, answer: { said: await_id }, idempotency_key };
}

/** A question of a sub-run, as its parent shows it. */
export function relayed(await_id: string, at = T0 + 20): AwaitedEntry & { readonly of: object } {
  return { type: "awaited", at, ...question(await_id), of: childQuestion, emitted: 0 };
}

/** The question of the sub-run is not open any more. */
export function settled(await_id: string, reply: Replied | null = null, at = T0 + 30): SettledEntry {
  return { type: "settled", at, await_id, of: childQuestion, ...reply };
}

export function offered(offer_id: string, await_id: string, at = T0 + 30): OfferedEntry {
  return { type: "offered", at, offer_id, await_id, answer: { said: await_id }, idempotency_key: null };
}

export function attemptFailed(key: string, at = T0 + 30): AttemptFailedEntry {
  const failure = { name: "Error", message: "It broke.", code: null, data: undefined };
  return { type: "attempt-failed", at, key, attempt: 1, failure, until: at + 10 };
}

export function received(name: string, data: number, idempotency_key: string, at = T0 + 30): ReceivedEntry {
  return { type: "received", at, name, data, idempotency_key };
}

export function ended(outcome: "completed" | "failed" | "cancelled", at = T0 + 50): Entry {
  const error = { code: "server_error", message: "It broke." } as const;
  return { type: "ended", at, outcome, ...(outcome === "failed" && { error }) };
}

export const started: Entry = { type: "started", at: T0 + 10 };
export const cancelRequested: Entry = { type: "cancel-requested", at: T0 + 40 };

/** A log that leads to each status. */
export const logs: Readonly<Record<RunStatus, readonly Entry[]>> = {
  created: [created()],
  "in-progress": [created(), started],
  awaiting: [created(), started, asked("ask#1")],
  cancelling: [created(), started, cancelRequested],
  completed: [created(), started, ended("completed")],
  failed: [created(), started, ended("failed")],
  cancelled: [created(), started, cancelRequested, ended("cancelled")],
};

export function fold(...entries: readonly Entry[]): RunState {
  return foldEntries(RUN_ID, entries);
}

/** Decides and folds. Gives the entries; a refusal throws. */
export function carryOut(state: RunState, command: Command): readonly Entry[] {
  const decision = decide(state, command);
  if (isRefusal(decision)) throw new Error(`${command.type} was refused: ${decision.refused}`);
  for (const entry of decision) evolve(state, entry);
  return decision;
}
