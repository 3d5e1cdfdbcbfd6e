import { askForApproval } from "./questions.ts";
import type { SdkContext } from "./sdk-context.ts";

/** What a call of the AI SDK gives, as far as its approvals are concerned. */
export interface SdkResult {
  readonly content: PromiseLike<readonly ContentPart[]> | readonly ContentPart[];
}

/** A streamed result, as far as its end is concerned. */
export interface SdkStreamedResult {
  readonly fullStream: AsyncIterable<{ readonly type: string; readonly error?: unknown }>;
}

/**
 * Reads a result to its end. The AI SDK reports the failure of a model call as a part of the stream, and its promises
 * resolve with what came before it.
 */
export async function consumed(context: SdkContext, { fullStream }: SdkStreamedResult): Promise<void> {
  let failure: { readonly error: unknown } | undefined;
  for await (const part of fullStream) {
    if (part.type === "error") failure ??= { error: part.error };
    if (part.type === "abort") failure ??= { error: new Error("Aborted.") };
  }
  if (context.signal.aborted) throw context.signal.reason;
  if (failure !== undefined) throw failure.error;
}

interface ContentPart {
  readonly type: string;
}

interface ApprovalRequest extends ContentPart {
  readonly approvalId: string;
  readonly toolCall: { readonly toolCallId: string; readonly toolName: string; readonly input: unknown };
}

/** The message with the answers to the requests for approval, for the next call. */
export interface ApprovalMessage {
  role: "tool";
  content: { type: "tool-approval-response"; approvalId: string; approved: boolean; reason?: string }[];
}

/** Asks for the approvals that a call has ended with, all at once. Undefined: there are none. */
export async function answerApprovals(context: SdkContext, result: SdkResult): Promise<ApprovalMessage | undefined> {
  const content = await result.content;
  const answered = new Set(content.filter(isType("tool-approval-response")).map((part) => idOf(part)));
  const requests = content.filter(isType("tool-approval-request")).filter((part) => !answered.has(idOf(part)));
  if (requests.length === 0) return undefined;
  return {
    role: "tool",
    content: await Promise.all(
      requests.map(async ({ approvalId, toolCall }) => {
        const call = { id: toolCall.toolCallId, name: toolCall.toolName, input: toolCall.input };
        const { approved, reason } = await askForApproval(context, call, {});
        return {
          type: "tool-approval-response" as const,
          approvalId,
          approved,
          ...(reason !== undefined && { reason }),
        };
      }),
    ),
  };
}

function isType(type: string) {
  return (part: ContentPart): part is ApprovalRequest => part.type === type;
}

function idOf({ approvalId }: ApprovalRequest): string {
  return approvalId;
}
