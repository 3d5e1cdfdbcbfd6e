import { CadenzaError } from "../core/errors.ts";
import { copyJson } from "../core/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { StandardSchema } from "../runtime/agent/standard-schema.ts";
import { encode } from "./codec.ts";
import type { SdkContext } from "./sdk-context.ts";
import type { Approval, ApproveOptions } from "./tool-types.ts";

/** A tool call about which a question is asked. */
export interface ToolQuestion {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}

/** The key of a question's part that holds the id of the tool call. */
const CALL_ID = "tool_call_id";

const approvalSchema = /* @__PURE__ */ schemaOf<Approval>(
  {
    type: "object",
    properties: { approved: { type: "boolean" }, reason: { type: "string" } },
    required: ["approved"],
    additionalProperties: false,
  },
  (value) => {
    if (!isJsonObject(value) || typeof value["approved"] !== "boolean")
      return { issues: [{ message: "expected true or false", path: ["approved"] }] };
    const { approved, reason } = value;
    return { value: typeof reason === "string" && reason !== "" ? { approved, reason } : { approved } };
  },
);

/** Asks whether a tool may be called. A question that is declined is a refusal. */
export async function askForApproval(
  context: SdkContext,
  call: ToolQuestion,
  { question, timeoutMs, default: given }: ApproveOptions,
): Promise<Approval> {
  const text = question?.(call.input as never) ?? `Run the tool "${call.name}" with ${textOfInput(call.input)}?`;
  const expired = timeoutMs === undefined ? undefined : { approved: false, reason: "Expired." };
  try {
    return (await context.ask(partOf(text, call), {
      schema: approvalSchema,
      name: call.name,
      kind: "approval",
      timeoutMs,
      ...((given ?? expired) !== undefined && { default: given ?? expired }),
    })) as Approval;
  } catch (error) {
    if (!CadenzaError.is(error) || error.code !== "answer_declined") throw error;
    return { approved: false, ...(error.reason !== undefined && { reason: error.reason }) };
  }
}

/** Asks for the result of a tool that has no function. */
export async function askForResult(context: SdkContext, call: ToolQuestion, outputSchema: unknown): Promise<unknown> {
  const { schema } = await readSchema(outputSchema);
  const text = `The result of the tool "${call.name}" for ${textOfInput(call.input)}?`;
  return context.ask(partOf(text, call), { schema, name: call.name, kind: "input" });
}

/** Whether it is the part of a question about a tool call. */
export function isToolQuestion(part: MessagePart): boolean {
  return typeof (part as unknown as Readonly<Record<string, unknown>>)[CALL_ID] === "string";
}

/** The text of a question, with the call that it is about: pages show it as that tool. */
function partOf(content: string, { id, name, input }: ToolQuestion): { readonly content: string } {
  const tool_input = copyJson(encode(input)) ?? {};
  return { content, [CALL_ID]: id, tool_name: name, tool_input } as { readonly content: string };
}

function textOfInput(input: unknown): string {
  return JSON.stringify(input) ?? "no input";
}

/** A Standard Schema that is written by hand. */
export function schemaOf<Value>(
  jsonSchema: Record<string, unknown>,
  validate: (value: unknown) => { readonly value: unknown } | { readonly issues: readonly { message: string }[] },
): StandardSchema<Value, Value> {
  return {
    "~standard": {
      version: 1,
      vendor: "cadenza",
      validate: validate as StandardSchema<Value, Value>["~standard"]["validate"],
      jsonSchema: { input: () => jsonSchema },
    },
  };
}

/**
 * A schema of the AI SDK as a Standard Schema: one already, its own form, or a function that gives one of these. It is
 * wrapped: a promise of the schema itself would ask it for a method `then`.
 */
async function readSchema(schema: unknown): Promise<{ readonly schema: StandardSchema<unknown, unknown> }> {
  if (schema === undefined) return { schema: schemaOf({}, (value) => ({ value })) };
  if (isSchemaLike(schema) && "~standard" in schema) return { schema: schema as StandardSchema<unknown, unknown> };
  if (typeof schema === "function") return readSchema(schema());
  const { jsonSchema, validate } = schema as SdkSchema;
  const read = schemaOf((await jsonSchema) ?? {}, (async (value: unknown) => {
    const outcome = await validate?.(value);
    if (outcome === undefined || outcome.success) return { value: outcome === undefined ? value : outcome.value };
    return { issues: [{ message: outcome.error?.message ?? "expected another value" }] };
  }) as never);
  return { schema: read };
}

/** What `jsonSchema()` of the AI SDK gives. */
interface SdkSchema {
  readonly jsonSchema?: Record<string, unknown> | PromiseLike<Record<string, unknown>>;
  readonly validate?: (
    value: unknown,
  ) => PromiseLike<{ readonly success: boolean; readonly value?: unknown; readonly error?: Error }>;
}

function isSchemaLike(schema: unknown): schema is object {
  return (typeof schema === "object" || typeof schema === "function") && schema !== null;
}
