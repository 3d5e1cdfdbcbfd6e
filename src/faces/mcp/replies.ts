import { CadenzaError } from "../../core/errors.ts";
import { resumeFor } from "../../http/claims.ts";
import { RpcError } from "../../http/json-rpc.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { replyIn } from "./elicitation.ts";
import type { McpCall } from "./options.ts";
import { objectIn } from "./peer.ts";

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
    if (!CadenzaError.is(error) || !tooLate.has(error.code)) throw error;
  }
}

/** Why a question is not open any more. */
const tooLate: ReadonlySet<string> = new Set(["answer_conflict", "not_awaiting", "run_cancelling", "run_finished"]);

/** The answers of a client, by the ids of their questions. */
export function responsesIn(params: JsonObject): JsonObject {
  return objectIn({ inputResponses: {}, ...params }, "inputResponses");
}
