import { copyJson } from "../core/json.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import { decode, encode } from "./codec.ts";
import type { ToolModelOutput } from "./tool-types.ts";

/** A tool call and its result, as the transcript of a run keeps them. */
export interface ToolUse {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
  /** What the tool has returned. Undefined: it was not called, or has failed. */
  readonly output?: unknown;
  /** What the model gets. */
  readonly forModel: ToolModelOutput;
}

/**
 * The part of a tool call. The protocol wants objects: another input or output is the field `value` of one. What the model
 * gets is kept only where it cannot be told from the output.
 */
export function partOf({ id, name, input, output, forModel }: ToolUse): JsonObject {
  const kept = json(output);
  const isPlain = forModel.type === "json" && isJsonObject(kept);
  const { type, ...content } = forModel;
  const shown = kept === undefined ? json(content) : kept;
  return {
    metadata: {
      kind: "trajectory",
      tool_name: name,
      tool_call_id: id,
      tool_input: objectOf(json(input)),
      tool_output: objectOf(shown),
      ...(!isJsonObject(json(input)) && { tool_input_is_value: true }),
      ...(!isPlain && { model_output: json(forModel) ?? null }),
    },
  };
}

/** An output of a tool that is still at work, as the object that tells of it. */
export function preliminaryOf({ id, name, input, output }: Omit<ToolUse, "forModel">): JsonObject {
  return {
    tool_name: name,
    tool_call_id: id,
    tool_input: objectOf(json(input)),
    preliminary_output: json(output) ?? null,
  };
}

/** The tool call that a part shows. Undefined for any other part, and for one that cannot be read. */
export function toolUseIn({ metadata }: MessagePart): ToolUse | undefined {
  if (metadata?.kind !== "trajectory") return undefined;
  const { tool_name: name, tool_input, tool_output } = metadata;
  const { tool_call_id: id, tool_input_is_value, model_output } = metadata;
  if (typeof name !== "string" || typeof id !== "string") return undefined;
  try {
    const isValue = tool_input_is_value === true && isJsonObject(tool_input);
    const input = decode(isValue ? tool_input["value"] : tool_input);
    const forModel = decode(model_output ?? { type: "json", value: tool_output ?? null });
    return isModelOutput(forModel) ? { id, name, input, forModel } : undefined;
  } catch {
    // The part may come from a client, which has written it by hand.
    return undefined;
  }
}

function isModelOutput(value: unknown): value is ToolModelOutput {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

function objectOf(value: JsonValue | undefined): JsonObject {
  return isJsonObject(value) ? value : { value: value ?? null };
}

function json(value: unknown): JsonValue | undefined {
  return copyJson(encode(value));
}
