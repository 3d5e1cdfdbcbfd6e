import type { ProtocolError } from "../protocol/error.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { CopySource, EmissionSource, PartSource } from "./emission-source.ts";
import { isCopy } from "./emission-source.ts";
import type {
  AttemptFailedEntry,
  AwaitedEntry,
  CancelRequestedEntry,
  CreatedEntry,
  EmittedEntry,
  EndedEntry,
  Entry,
  ForkedEntry,
  Growing,
  IntentEntry,
  MeasuredEntry,
  MovedEntry,
  OfferedEntry,
  PatchedEntry,
  ReceivedEntry,
  RefusedEntry,
  Reply,
  SettledEntry,
  StepEntry,
  TakenEntry,
  TornEntry,
} from "./log.ts";
import { isWait } from "./operation-keys.ts";
import type { InboxMessage, Replied } from "./state.ts";

/** What is asked of a run, and when. */
export type Command =
  | { readonly type: "create"; readonly entry: CreatedEntry }
  | { readonly type: "fork"; readonly entry: ForkedEntry }
  | StartCommand
  | { readonly type: "emit"; readonly at: number; readonly item: EmissionFrom<EmissionSource> }
  /** A sub-run that is shown tries a step again. */
  | { readonly type: "tear"; readonly entry: TornEntry }
  | { readonly type: "intend"; readonly entry: IntentEntry }
  /** An attempt at a step has failed, and there will be another one. */
  | { readonly type: "retry"; readonly entry: AttemptFailedEntry }
  | { readonly type: "record"; readonly entry: StepEntry }
  | AskCommand
  | ReplyCommand
  /** A sub-run's question is settled. */
  | { readonly type: "settle"; readonly entry: SettledEntry }
  | { readonly type: "offer"; readonly entry: OfferedEntry }
  | { readonly type: "refuse"; readonly entry: RefusedEntry }
  | { readonly type: "receive"; readonly entry: ReceivedEntry }
  | { readonly type: "take"; readonly entry: TakenEntry }
  | { readonly type: "patch"; readonly entry: PatchedEntry }
  /** Another version of the agent executes the run from now on. */
  | { readonly type: "move"; readonly entry: MovedEntry }
  | { readonly type: "withdraw"; readonly at: number; readonly await_id: string }
  | { readonly type: "expire"; readonly at: number; readonly await_id: string; readonly defaulted: boolean }
  | { readonly type: "overrun"; readonly at: number }
  /** The run and the runs below it have used more than its budget. `usage`: what was reported and is in no entry. */
  | { readonly type: "exceed"; readonly at: number; readonly usage: Usage | null }
  | CancelCommand
  | ContinueCommand
  | EndCommand;

export interface CancelCommand extends Omit<CancelRequestedEntry, "type"> {
  readonly type: "cancel";
}

/** The command to stop a run. `by`: who asks for it; undefined if the application names no one. */
export function cancelCommand(at: number, by: JsonValue | undefined): CancelCommand {
  return by === undefined ? { type: "cancel", at } : { type: "cancel", at, by };
}

export interface StartCommand {
  readonly type: "start";
  readonly at: number;
  /** The time that the agent saw when it was called. Undefined: it has not been called. */
  readonly now?: number;
}

export interface AskCommand extends Omit<AwaitedEntry, "type" | "closes"> {
  readonly type: "ask";
}

export interface ReplyCommand extends Reply {
  readonly type: "reply";
  readonly at: number;
  /** Which question it is for; null for the first open one. */
  readonly await_id: string | null;
  readonly reply: Replied;
}

/** The agent has returned, and begins again. `usage`: what was reported and is in no entry. */
export interface ContinueCommand extends MeasuredEntry {
  readonly type: "continue";
  readonly at: number;
  /** What the agent gives itself. Undefined: nothing. */
  readonly carry: JsonValue | undefined;
  readonly usage: Usage | null;
  /** The messages that receives have taken, and that the agent has not got. */
  readonly left?: readonly InboxMessage[] | undefined;
}

export interface EndCommand extends Pick<EndedEntry, "key" | "cause" | "active_ms" | "queued_ms"> {
  readonly type: "end";
  readonly at: number;
  /** Why the run failed; null for success. Ignored for a run that is cancelling or past a deadline: it ends as such. */
  readonly failure: ProtocolError | null;
  readonly usage: Usage | null;
}

/** What an agent emits: itself, or in a step body. */
export type Emission = EmissionFrom<PartSource>;

/** A copy of what a sub-run has emitted. */
export type Copy = EmissionFrom<CopySource> & { readonly source: CopySource };

/** What is emitted, with where it comes from. */
export type EmissionFrom<Source> =
  /** `opens`: of a copy that opens a message in the sub-run. */
  | { readonly kind: "part"; readonly part: MessagePart; readonly opens?: true; readonly source?: Source }
  | { readonly kind: "message"; readonly message: Message; readonly source?: Source }
  | { readonly kind: "generic"; readonly generic: JsonObject; readonly source?: Source }
  | { readonly kind: "close"; readonly source?: Source };

/** Whether the agent begins to wait with this command. */
export function beginsToWait(command: Command): boolean {
  return command.type === "ask" || (command.type === "intend" && isWait(command.entry));
}

/** The entry that a command carries. Undefined: `decide` makes it. */
export function carriedEntry(command: Command): Entry | undefined {
  switch (command.type) {
    case "start":
    case "emit":
    case "ask":
    case "reply":
    case "withdraw":
    case "expire":
    case "overrun":
    case "exceed":
    case "cancel":
    case "continue":
    case "end":
      return undefined;
    default:
      return command.entry;
  }
}

/**
 * The command that an entry carries out. After a conflict of positions the pending entries are decided again from their
 * commands. Every entry has a command, also those that `decide` adds.
 */
export function commandOf(entry: Entry): Command {
  const { at } = entry;
  switch (entry.type) {
    case "created":
      return { type: "create", entry };
    case "forked":
      return { type: "fork", entry };
    case "started":
      return { type: "start", at, now: entry.now ?? at };
    case "emitted":
      return { type: "emit", at, item: emissionOf(entry) };
    case "torn":
      return { type: "tear", entry };
    case "intent":
      return { type: "intend", entry };
    case "attempt-failed":
      return { type: "retry", entry };
    case "step":
      return { type: "record", entry };
    case "awaited": {
      // `decide` sets `closes` again.
      const { closes: _, ...asked } = entry;
      return { ...asked, type: "ask" };
    }
    case "resumed": {
      const { answer, ...reply } = entry;
      return { ...reply, type: "reply", reply: { answer } };
    }
    case "declined": {
      const { decline, ...reply } = entry;
      return { ...reply, type: "reply", reply: { decline } };
    }
    case "withdrawn":
      return { type: "withdraw", at, await_id: entry.await_id };
    case "settled":
      return { type: "settle", entry };
    case "offered":
      return { type: "offer", entry };
    case "refused":
      return { type: "refuse", entry };
    case "received":
      return { type: "receive", entry };
    case "taken":
      return { type: "take", entry };
    case "patched":
      return { type: "patch", entry };
    case "moved":
      return { type: "move", entry };
    case "timed-out":
      if (entry.await_id === null) return { type: "overrun", at };
      return { type: "expire", at, await_id: entry.await_id, defaulted: entry.defaulted };
    case "exceeded":
      return { type: "exceed", at, usage: entry.usage ?? null };
    case "cancel-requested":
      return cancelCommand(at, entry.by);
    case "continued":
      return {
        ...timesOf(entry),
        type: "continue",
        at,
        carry: entry.carry,
        usage: entry.usage ?? null,
        left: entry.messages,
      };
    case "ended":
      return { ...entry, type: "end", failure: entry.error ?? null, usage: entry.usage ?? null };
  }
}

function timesOf({ active_ms, queued_ms }: MeasuredEntry): MeasuredEntry {
  return { ...(active_ms !== undefined && { active_ms }), ...(queued_ms !== undefined && { queued_ms }) };
}

function emissionOf(entry: EmittedEntry): EmissionFrom<EmissionSource> {
  switch (entry.kind) {
    case "part":
      // `decide` says again where the agent itself opens a message.
      return withSource(
        { kind: "part", part: entry.part, ...(isCopy(entry.source) && entry.opens && { opens: true }) },
        entry.source,
      );
    case "message":
      return withSource({ kind: "message", message: entry.message }, entry.source);
    case "generic":
      return withSource({ kind: "generic", generic: entry.generic }, entry.source);
    case "close":
      return withSource({ kind: "close" }, entry.source);
  }
}

/** The emission, or the entry, with where it comes from. */
export function withSource<T extends EmittedEntry | EmissionFrom<EmissionSource>>(
  emitted: Growing<T>,
  source: EmissionSource | undefined,
): T {
  if (source !== undefined) emitted.source = source;
  return emitted;
}
