import type { Usage } from "../../protocol/extensions.ts";
import type { JsonValue } from "../../protocol/json.ts";

/** A chunk of the UI message stream v1. These alone are sent; clients of `ai` 5, 6 and 7 know them. */
export type UiChunk =
  | { readonly type: "start"; readonly messageId: string; readonly messageMetadata?: MessageMetadata }
  | { readonly type: "start-step" | "finish-step" | "abort" }
  | { readonly type: `${BlockKind}-start` | `${BlockKind}-end`; readonly id: string }
  | { readonly type: `${BlockKind}-delta`; readonly id: string; readonly delta: string }
  | {
      readonly type: "tool-input-available";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly input: unknown;
      /** Absent: a page knows the tool by its name. */
      readonly dynamic?: true;
      readonly providerExecuted?: true;
    }
  | {
      readonly type: "tool-output-available";
      readonly toolCallId: string;
      readonly output: unknown;
      /** The tool is still at work. */
      readonly preliminary?: true;
      readonly dynamic?: true;
      readonly providerExecuted?: true;
    }
  | { readonly type: "tool-output-error"; readonly toolCallId: string; readonly errorText: string }
  | { readonly type: "tool-output-denied"; readonly toolCallId: string }
  | { readonly type: "tool-approval-request"; readonly approvalId: string; readonly toolCallId: string }
  | { readonly type: "file"; readonly url: string; readonly mediaType: string }
  | { readonly type: "source-url"; readonly sourceId: string; readonly url: string; readonly title?: string }
  | { readonly type: `data-${string}`; readonly id?: string; readonly data: JsonValue; readonly transient?: true }
  | {
      readonly type: "finish";
      readonly finishReason: "stop" | "tool-calls" | "error";
      readonly messageMetadata?: MessageMetadata;
    }
  | { readonly type: "error"; readonly errorText: string };

/** What is written piece by piece: what the agent says, and what its model thinks. */
export type BlockKind = "text" | "reasoning";

/** What a page gets about an assistant message, as the `metadata` of it. */
export interface MessageMetadata {
  readonly run_id: string;
  /** When the run was created, in ISO 8601. */
  readonly created_at?: string;
  /** When the run ended, in ISO 8601. Absent before. */
  readonly finished_at?: string;
  /** What the run has used so far, in tokens. Absent: nothing was reported. */
  readonly usage?: Usage;
}

/** The name of the tool that stands for the questions of an agent. */
export const ASK = "ask";
