/** A message of a chat with the parts that all supported versions of the AI SDK share: their `UIMessage` takes it. */
export interface LoadedMessage {
  id: string;
  role: "system" | "user" | "assistant";
  metadata?: unknown;
  parts: LoadedPart[];
}

/** A part of a message. Some versions have more: `loadChat<UIMessage>` of `ai` gives the types of that version. */
export type LoadedPart =
  | { type: "text"; text: string; state?: "streaming" | "done" }
  | { type: "reasoning"; text: string; state?: "streaming" | "done" }
  | { type: "file"; mediaType: string; filename?: string; url: string }
  | { type: "source-url"; sourceId: string; url: string; title?: string }
  | { type: "source-document"; sourceId: string; mediaType: string; title: string; filename?: string }
  | { type: "step-start" }
  | { type: `data-${string}`; id?: string; data: unknown }
  | (({ type: "dynamic-tool"; toolName: string } | { type: `tool-${string}` }) & { toolCallId: string } & ToolState);

type ToolState =
  | { state: "input-streaming" | "input-available"; input: unknown }
  | { state: "output-available"; input: unknown; output: unknown }
  | { state: "output-error"; input: unknown; errorText: string };
