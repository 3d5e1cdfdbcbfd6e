import { CadenzaError } from "../../core/errors.ts";
import { resumeFor } from "../../http/claims.ts";
import { RpcError } from "../../http/json-rpc.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Reply } from "../chat/questions.ts";
import { declined, isTooLate, replyOf, schemaOf, wordsOf } from "../chat/questions.ts";
import type { McpCall } from "./options.ts";
import { objectIn } from "./peer.ts";
import { unfit } from "./responses.ts";
import { objectWith } from "./tools.ts";

/* Questions as forms, and their answers. */

/** The field that holds an answer which is no object. */
const ANSWER = "answer";

/** The request that asks a user a question. `reason`: why the last answer was refused. */
export function elicitationOf(question: OpenQuestionDetails, reason?: string): JsonObject {
  const words = wordsOf(question.message) || "An answer is needed.";
  const message = reason === undefined ? words : `${words}\n\n${reason}`;
  return { method: "elicitation/create", params: { mode: "form", message, requestedSchema: formOf(question) } };
}

/** Gives an answer, unless its question has been settled. The result says why it was refused; undefined: it was not. */
export async function refusedAnswer(
  call: McpCall,
  run_id: string,
  question: OpenQuestionDetails,
  result: JsonValue | undefined,
): Promise<string | undefined> {
  try {
    await reply(call, run_id, question, result);
  } catch (error) {
    if (error instanceof RpcError) return error.message;
    if (CadenzaError.is(error) && error.code === "answer_rejected") return error.message;
    throw error;
  }
  return undefined;
}

/** Answers a question with the result of an elicitation. A question that is not open any more changes nothing. */
export async function reply(
  { caller }: McpCall,
  run_id: string,
  question: OpenQuestionDetails,
  result: JsonValue | undefined,
): Promise<void> {
  const { await_id } = question;
  try {
    await resumeFor(caller, { ...replyIn(question, result), run_id, await_id, mode: "async" });
  } catch (error) {
    if (!isTooLate(error)) throw error;
  }
}

/** The answers of a client, by the ids of their questions. */
export function responsesIn(params: JsonObject): JsonObject {
  return objectIn({ inputResponses: {}, ...params }, "inputResponses");
}

/** The reply in the result of an elicitation. */
function replyIn(question: OpenQuestionDetails, result: JsonValue | undefined): Reply {
  const { action = null, content = {} } = isJsonObject(result) ? result : {};
  if (action === "decline" || action === "cancel") return declined();
  if (action !== "accept" || !isJsonObject(content)) throw unfit("The answer is no result of an elicitation.");
  if (objectForm(schemaOf(question)) !== undefined) return { await_resume: content };
  const { [ANSWER]: answer } = content;
  if (answer === undefined) throw unfit(`content.${ANSWER}: expected an answer.`);
  return replyOf(answer);
}

/** The form for an answer: the fields of the schema, if all of them are flat, else one field. */
function formOf(question: OpenQuestionDetails): JsonObject {
  const schema = schemaOf(question);
  const field = schema && fieldOf(schema);
  const words = { type: "string", ...(schema && { description: describing(schema) }) };
  return objectForm(schema) ?? objectWith(ANSWER, field ?? words);
}

/** The form of an object whose fields are all flat. Undefined: the schema is no such object. */
function objectForm(schema: JsonObject | undefined): JsonObject | undefined {
  const { type, properties, required } = schema ?? {};
  if (type !== "object" || !isJsonObject(properties)) return undefined;
  const fields: [name: string, field: JsonObject][] = [];
  for (const [name, property] of Object.entries(properties)) {
    const field = isJsonObject(property) ? fieldOf(property) : undefined;
    if (field === undefined) return undefined;
    fields.push([name, field]);
  }
  return { type, properties: Object.fromEntries(fields), ...(Array.isArray(required) && { required }) };
}

const types: readonly unknown[] = ["string", "number", "integer", "boolean", "array"];
/** The keywords that a field may have. */
const keywords: ReadonlySet<string> = new Set([
  ...["type", "title", "description", "default", "enum", "enumNames", "oneOf"],
  ...["minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"],
]);
const formats: readonly unknown[] = ["email", "uri", "date", "date-time"];

/** A field of a form. Undefined: the schema is not flat. */
function fieldOf(schema: JsonObject): JsonObject | undefined {
  const { type, format, items, oneOf } = schema;
  if (!types.includes(type) || (oneOf !== undefined && !isTitled(oneOf))) return undefined;
  const field = Object.fromEntries(Object.entries(schema).filter(([name]) => keywords.has(name)));
  if (type !== "array") return formats.includes(format) ? { ...field, format: String(format) } : field;
  const choice = isJsonObject(items) ? choiceOf(items) : undefined;
  return choice && { ...field, items: choice };
}

/** What the items of a list are chosen from. */
function choiceOf({ type, enum: values, anyOf }: JsonObject): JsonObject | undefined {
  if (type === "string" && Array.isArray(values)) return { type, enum: values };
  return isTitled(anyOf) ? { anyOf } : undefined;
}

function isTitled(value: JsonValue | undefined): value is readonly JsonValue[] {
  return Array.isArray(value) && value.every((one) => isJsonObject(one) && typeof one["const"] === "string");
}

/** What a user reads of a schema that is no form. */
function describing(schema: JsonObject): string {
  const { $schema: _, ...rest } = schema;
  return `JSON that matches ${JSON.stringify(rest)}`.slice(0, MAX_DESCRIPTION);
}

const MAX_DESCRIPTION = 1_000;
