import type { JsonObject } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { AgentInput, AgentOutput, CallableAgent } from "../runtime/agent/agent-schemas.ts";
import type { StandardSchema } from "../runtime/agent/standard-schema.ts";
import { ModelSteps } from "./model.ts";
import type { ModelArgument, RecordedModel, SdkModel } from "./model-types.ts";
import type { AiSdkOptions } from "./options.ts";
import { badArgument, checkKeys, readAiSdkOptions } from "./options.ts";
import { schemaOf } from "./questions.ts";
import type { ApprovalMessage, SdkResult, SdkStreamedResult } from "./results.ts";
import { answerApprovals, consumed } from "./results.ts";
import type { SdkContext } from "./sdk-context.ts";
import type { MessagesOptions, SdkMessage } from "./sdk-messages.ts";
import { sdkMessages } from "./sdk-messages.ts";
import type { SdkTool, ToolsOptions } from "./tool-types.ts";
import { ToolSteps } from "./tools.ts";

/** The AI SDK within a run. Made by {@link aiSdk}. */
export interface AiSdk {
  /**
   * The model with its calls as steps. The text of streamed calls is emitted while it arrives, and their usage is added to
   * the run's. Throws `invalid_argument` for a model that is given as text: `gateway("provider/model")` gives a model.
   */
  model<Model>(model: ModelArgument<Model> & Model): RecordedModel<Model>;
  /**
   * The tools with their calls as steps. Each call becomes a trajectory part of the run's output. Those that need an
   * approval ask before the step, and those without `execute` ask for their result. Throws `invalid_argument` for options
   * that name other tools.
   */
  tools<Tools extends object>(tools: Tools, options?: ToolsOptions<Tools>): Tools;
  /**
   * Messages of a run or a session as messages of the AI SDK, with the tool calls in them. A file becomes a text with its
   * address, unless `fileOrigins` names the origin. Throws `invalid_argument` for an invalid option.
   */
  messages(messages: readonly Message[], options?: MessagesOptions): SdkMessage[];
  /**
   * Reads the result of `streamText` to its end. Rejects with the error of a model call that has failed, and when a call
   * was aborted or the run is stopped. The promises of the result, such as `result.text`, resolve in these cases too, with
   * what came before, so await this first.
   */
  consume(result: SdkStreamedResult): Promise<void>;
  /**
   * Asks for the approvals that a call of the AI SDK has ended with, all at once, and resolves with the message for the
   * next call. Resolves with undefined if there are none. Tools of `sdk.tools` ask by themselves.
   */
  approvals(result: SdkResult): Promise<ApprovalMessage | undefined>;
  /** A tool that runs an agent, as `context.call` does. Its questions are shown by this run. */
  agentTool<Called extends CallableAgent>(
    agent: Called,
    options: { readonly description: string },
  ): {
    description: string;
    inputSchema: StandardSchema<AgentToolInput<Called>>;
    execute: (input: AgentToolInput<Called>, options: unknown) => Promise<AgentOutput<Called>>;
  };
  /** In a replay: how many model calls had another prompt than the recorded one. The recorded answers were used. */
  readonly differences: number;
}

/** What a model gives to a tool that runs an agent: the input of the agent's schema, or without one a text. */
type AgentToolInput<Called extends CallableAgent> = Called["options"]["input"] extends StandardSchema
  ? AgentInput<Called>
  : { readonly text: string };

const textSchema = /* @__PURE__ */ schemaOf<{ readonly text: string }>(
  { type: "object", properties: { text: { type: "string" } }, required: ["text"], additionalProperties: false },
  (value) =>
    isJsonObject(value) && typeof value["text"] === "string"
      ? { value: { text: value["text"] } }
      : { issues: [{ message: "expected a text" }] },
);

/**
 * Makes the AI SDK (`ai` 6 and 7) part of a run: model calls and tool calls become steps of the agent, so that a run that
 * goes on after a crash repeats none that is finished. Call it once in an agent function. Throws `invalid_argument` for an
 * invalid option.
 *
 * @example
 * ```ts
 * import { streamText } from "ai";
 * import { aiSdk } from "cadenza/ai-sdk";
 * import { defineAgent } from "cadenza";
 *
 * export const poet = (model: Exclude<Parameters<typeof streamText>[0]["model"], string>) =>
 *   defineAgent("poet", { durable: true }, async (input, context) => {
 *     const sdk = aiSdk(context);
 *     const result = streamText({ model: sdk.model(model), messages: sdk.messages(input), onError: () => {} });
 *     await sdk.consume(result); // the text is emitted while it arrives
 *   });
 * ```
 */
export function aiSdk(context: SdkContext, options: AiSdkOptions = {}): AiSdk {
  const models = new ModelSteps(context, readAiSdkOptions(options));
  const toolSteps = new ToolSteps(context);
  return {
    model: <Model>(model: ModelArgument<Model> & Model) => models.of(model as SdkModel) as RecordedModel<Model>,
    tools: <Tools extends object>(tools: Tools, given: ToolsOptions<Tools> = {}) =>
      toolSteps.of(tools as Record<string, SdkTool>, given as ToolsOptions<Record<string, SdkTool>>) as Tools,
    messages: sdkMessages,
    consume: (result) => consumed(context, result),
    approvals: (result) => answerApprovals(context, result),
    agentTool: (agent, given) => {
      checkKeys("options", given, ["description"]);
      const made = {
        description: given.description,
        inputSchema: agent.options.input ?? textSchema,
        execute: (input: unknown) =>
          context.call(agent, (agent.options.input === undefined ? (input as JsonObject)["text"] : input) as never),
      };
      toolSteps.agentTools.add(made);
      return made as never;
    },
    get differences() {
      return models.differences;
    },
  };
}

/**
 * The idempotency key of a tool call, for the function of a tool in {@link AiSdk.tools}: a UUID that is the same on every
 * attempt at the call and different for every other call. Throws `invalid_argument` for the options of another tool.
 *
 * @param options the second argument of the tool's `execute`
 */
export function idempotencyKeyOf(options: object): string {
  const { idempotencyKey } = options as { readonly idempotencyKey?: unknown };
  if (typeof idempotencyKey === "string") return idempotencyKey;
  throw badArgument("options", "the options of a tool that sdk.tools calls in a step", "others");
}
