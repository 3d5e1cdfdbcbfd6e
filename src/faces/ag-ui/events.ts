import type { JsonObject, JsonValue } from "../../protocol/json.ts";

/* The events of AG-UI 1.0 that are sent. An optional field is absent, never null. */

export type AgUiEvent =
  | {
      readonly type: "RUN_STARTED";
      readonly threadId: string;
      readonly runId: string;
      readonly protocolVersion: "1.0";
      readonly metadata?: { readonly run_id: string };
    }
  | {
      readonly type: "RUN_FINISHED";
      readonly threadId: string;
      readonly runId: string;
      readonly outcome: Outcome;
      /** Why the run has failed, or was cancelled, after a resume. */
      readonly result?: { readonly error: JsonObject };
      readonly usage?: readonly TokenUsage[];
    }
  | {
      readonly type: "RUN_ERROR";
      readonly message: string;
      readonly code?: string;
      readonly usage?: readonly TokenUsage[];
    }
  | { readonly type: "MESSAGES_SNAPSHOT"; readonly messages: readonly AgUiMessage[] }
  | { readonly type: "TEXT_MESSAGE_START"; readonly messageId: string; readonly role: "assistant" | "user" }
  | { readonly type: "TEXT_MESSAGE_END"; readonly messageId: string }
  | { readonly type: "STEP_STARTED" | "STEP_FINISHED"; readonly stepName: string }
  | { readonly type: "SUBAGENT_STARTED"; readonly subagentRunId: string; readonly name: string }
  | {
      readonly type: "SUBAGENT_FINISHED";
      readonly subagentRunId: string;
      readonly outcome:
        | { readonly type: "success" }
        | { readonly type: "suspended"; readonly interruptIds: readonly string[] };
    }
  | {
      readonly type: "SUBAGENT_ERROR";
      readonly subagentRunId: string;
      readonly message: string;
      readonly code?: string;
    }
  | PartEvent;

/** What a part of a message becomes. */
export type PartEvent =
  | {
      readonly type: "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT";
      readonly messageId: string;
      readonly delta: string;
    }
  | { readonly type: "STATE_SNAPSHOT"; readonly snapshot: JsonValue }
  | { readonly type: "STATE_DELTA"; readonly delta: readonly PatchOperation[] }
  | { readonly type: "REASONING_START" | "REASONING_MESSAGE_END" | "REASONING_END"; readonly messageId: string }
  | { readonly type: "REASONING_MESSAGE_START"; readonly messageId: string; readonly role: "reasoning" }
  | { readonly type: "TOOL_CALL_START"; readonly toolCallId: string; readonly toolCallName: string }
  | { readonly type: "TOOL_CALL_ARGS"; readonly toolCallId: string; readonly delta: string }
  | { readonly type: "TOOL_CALL_END"; readonly toolCallId: string }
  | {
      readonly type: "TOOL_CALL_RESULT";
      readonly messageId: string;
      readonly toolCallId: string;
      readonly content: string;
    }
  | {
      readonly type: "ACTIVITY_SNAPSHOT";
      readonly messageId: string;
      readonly activityType: "artifact";
      readonly content: JsonObject;
    }
  | { readonly type: "CUSTOM"; readonly name: string; readonly value: JsonValue };

/** An operation of JSON Patch (RFC 6902). */
export type PatchOperation =
  | { readonly op: "add" | "replace"; readonly path: string; readonly value: JsonValue }
  | { readonly op: "remove"; readonly path: string };

/** How a segment of a run has ended. */
export type Outcome =
  | { readonly type: "success" | "cancelled" }
  | { readonly type: "interrupt"; readonly interrupts: readonly Interrupt[] };

/** A question that waits for an answer. */
export interface Interrupt {
  readonly id: string;
  readonly reason: "input_required" | "confirmation";
  readonly message: string;
  readonly toolCallId?: string;
  readonly responseSchema?: JsonObject;
  readonly expiresAt?: string;
  readonly subagentRunId?: string;
  readonly metadata: JsonObject;
}

/** What was used. The totals include what was cached, and reasoning. */
export interface TokenUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly totalTokens: number;
  readonly reasoningTokens: number;
  readonly cachedInputTokens: number;
  readonly cacheWriteInputTokens: number;
}

/** A message of a thread, as it is sent. */
export type AgUiMessage = { readonly id: string } & (
  | { readonly role: "user"; readonly content: string | readonly JsonObject[] }
  | { readonly role: "assistant"; readonly content: string }
  | {
      readonly role: "assistant";
      readonly toolCalls: readonly {
        readonly id: string;
        readonly type: "function";
        readonly function: { readonly name: string; readonly arguments: string };
      }[];
    }
  | { readonly role: "tool"; readonly toolCallId: string; readonly content: string }
  | { readonly role: "reasoning"; readonly content: string }
  | { readonly role: "activity"; readonly activityType: string; readonly content: JsonObject }
);
