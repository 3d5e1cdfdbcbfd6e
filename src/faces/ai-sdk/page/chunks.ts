import type { JsonValue } from "../../../protocol/json.ts";

/** A chunk of the UI message stream v1. These alone are sent; clients of `ai` 5, 6 and 7 know them. */
export type UiChunk =
  | { readonly type: "start"; readonly messageId: string }
  | { readonly type: "start-step" | "finish-step" | "abort" }
  | { readonly type: "text-start" | "text-end"; readonly id: string }
  | { readonly type: "text-delta"; readonly id: string; readonly delta: string }
  | {
      readonly type: "tool-input-available";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly input: unknown;
      readonly dynamic: true;
      readonly providerExecuted?: true;
    }
  | {
      readonly type: "tool-output-available";
      readonly toolCallId: string;
      readonly output: unknown;
      readonly dynamic: true;
      readonly providerExecuted?: true;
    }
  | { readonly type: "tool-approval-request"; readonly approvalId: string; readonly toolCallId: string }
  | { readonly type: "file"; readonly url: string; readonly mediaType: string }
  | { readonly type: "source-url"; readonly sourceId: string; readonly url: string; readonly title?: string }
  | { readonly type: `data-${string}`; readonly data: JsonValue; readonly transient?: true }
  | { readonly type: "finish"; readonly finishReason: "stop" | "tool-calls" | "error" }
  | { readonly type: "error"; readonly errorText: string };

/** The name of the tool that stands for the questions of an agent. */
export const ASK = "ask";
