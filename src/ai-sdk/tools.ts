import type { StepScope } from "../runtime/agent/agent-steps.ts";
import { decode, encode } from "./codec.ts";
import { badArgument, checkKeys } from "./options.ts";
import { askForApproval, askForResult } from "./questions.ts";
import type { SdkContext } from "./sdk-context.ts";
import { joined } from "./sdk-context.ts";
import { textOfError } from "./sdk-errors.ts";
import type { ApproveOptions, SdkJson, SdkTool, ToolCallOptions, ToolModelOutput, ToolsOptions } from "./tool-types.ts";
import { partOf, preliminaryOf } from "./trajectory.ts";

/** How a tool call has ended, as its step records it. */
type Outcome =
  /** A tool that has returned undefined leaves it out. */
  | { readonly output?: unknown }
  | { readonly error: string }
  /** It was not approved. */
  | { readonly denied: { readonly reason?: string | undefined } };

/** The names of the options that hold functions of the tool's input. */
const APPROVE_KEYS = ["when", "question", "timeoutMs", "default"];

/** What the AI SDK gets as the output of a call that was not approved. */
class Denied {
  readonly type = "execution-denied";
  readonly reason?: string;

  constructor(reason: string | undefined) {
    if (reason !== undefined) this.reason = reason;
  }
}

/** Calls tools in steps, and asks before it calls them. */
export class ToolSteps {
  readonly #context: SdkContext;
  /** The tools that run agents. */
  readonly agentTools = new WeakSet<object>();

  constructor(context: SdkContext) {
    this.#context = context;
  }

  /** The tools as the AI SDK gets them. Throws `invalid_argument` for invalid options. */
  of(
    tools: Readonly<Record<string, SdkTool>>,
    options: ToolsOptions<Record<string, SdkTool>>,
  ): Record<string, SdkTool> {
    checkKeys("options", options, ["approve", "direct"]);
    const { approve = {}, direct = [] } = options;
    for (const name of [...Object.keys(approve), ...direct])
      if (!Object.hasOwn(tools, name)) throw badArgument("options", `names of the given tools`, name);
    for (const [name, given] of Object.entries(approve))
      if (typeof given !== "boolean") checkKeys(`options.approve.${name}`, given, APPROVE_KEYS);
    return Object.fromEntries(
      Object.entries(tools).map(([name, tool]) => [
        name,
        // The provider calls this tool itself, in the step of the model.
        tool.execute === undefined && tool.type?.startsWith("provider") === true
          ? tool
          : this.#tool(name, tool, approve[name], direct.includes(name)),
      ]),
    );
  }

  #tool(name: string, tool: SdkTool, given: boolean | ApproveOptions | undefined, isDirect: boolean): SdkTool {
    const { needsApproval, ...rest } = tool;
    const approve = approvalOf(given ?? needsApproval);
    const uses = new ToolUses(this.#context, name, tool, approve, isDirect || this.agentTools.has(tool));
    return {
      ...rest,
      execute: (input: unknown, options: ToolCallOptions) => uses.call(input, options),
      toModelOutput: ({ output, input, toolCallId }: ModelOutputOptions) =>
        output instanceof Denied ? { ...output } : uses.forModel(output, input, toolCallId),
    };
  }
}

interface ModelOutputOptions {
  readonly output: unknown;
  readonly input: unknown;
  readonly toolCallId: string;
}

/** The calls of one tool. */
class ToolUses {
  readonly #context: SdkContext;
  readonly #name: string;
  readonly #tool: SdkTool;
  readonly #approve: ApproveOptions | undefined;
  readonly #isDirect: boolean;

  constructor(
    context: SdkContext,
    name: string,
    tool: SdkTool,
    approve: ApproveOptions | undefined,
    isDirect: boolean,
  ) {
    this.#context = context;
    this.#name = name;
    this.#tool = tool;
    this.#approve = approve;
    this.#isDirect = isDirect;
  }

  /** Calls the tool, and keeps the call in the transcript. Throws what the tool throws, without its class. */
  async call(input: unknown, options: ToolCallOptions): Promise<unknown> {
    const outcome = await this.#outcome(input, options);
    const id = options.toolCallId;
    const { forModel, output } = await this.#read(outcome, input, id);
    // A tool may end after the run was stopped. Then its call is not kept.
    if (this.#context.signal.aborted) throw this.#context.signal.reason;
    await this.#context.emit({ role: "agent", parts: [partOf({ id, name: this.#name, input, output, forModel })] });
    if ("error" in outcome) throw new Error(outcome.error);
    return "denied" in outcome ? new Denied(outcome.denied.reason) : outcome.output;
  }

  async forModel(output: unknown, input: unknown, toolCallId: string): Promise<ToolModelOutput> {
    const { toModelOutput } = this.#tool;
    if (toModelOutput !== undefined)
      return (await toModelOutput({ output, input, toolCallId } as never)) as ToolModelOutput;
    if (typeof output === "string") return { type: "text", value: output };
    return { type: "json", value: (output === undefined ? null : output) as SdkJson };
  }

  async #outcome(input: unknown, options: ToolCallOptions): Promise<Outcome> {
    const call = { id: options.toolCallId, name: this.#name, input };
    if (this.#approve !== undefined && (await this.#needsApproval(this.#approve, input, options))) {
      const { approved, reason } = await askForApproval(this.#context, call, this.#approve);
      if (!approved) return { denied: { reason } };
    }
    if (this.#tool.execute === undefined)
      return { output: await askForResult(this.#context, call, this.#tool.outputSchema) };
    try {
      if (this.#isDirect) return { output: await lastOf(this.#execute(input, options)) };
      return decode(await this.#context.step(stepName(call), (step) => this.#inStep(step, input, options))) as Outcome;
    } catch (error) {
      // What stops the run is no result of the tool.
      if (this.#context.signal.aborted) throw error;
      return { error: textOfError(error) };
    }
  }

  /** The call as the body of a step. An error of the tool is its result, since the model is to see it. */
  async #inStep(step: StepScope, input: unknown, options: ToolCallOptions): Promise<unknown> {
    const given = {
      ...options,
      abortSignal: joined(step.signal, options.abortSignal),
      idempotencyKey: step.idempotencyKey,
    };
    try {
      const show = (output: unknown): Promise<void> =>
        step.emit(preliminaryOf({ id: options.toolCallId, name: this.#name, input, output }));
      return { output: encode(await lastOf(this.#execute(input, given), show)) };
    } catch (error) {
      if (step.signal.aborted) throw error;
      return { error: textOfError(error) };
    }
  }

  #execute(input: unknown, options: ToolCallOptions): unknown {
    return this.#tool.execute?.(input as never, options as never);
  }

  /** A function decides in a step, so that a replay comes to the same decision. */
  async #needsApproval({ when }: ApproveOptions, input: unknown, options: ToolCallOptions): Promise<boolean> {
    if (when === undefined) return true;
    const name = `${stepName({ id: options.toolCallId, name: this.#name })} approval`;
    return this.#context.step(name, async () => Boolean(await when(input as never, options)));
  }

  async #read(outcome: Outcome, input: unknown, id: string): Promise<{ forModel: ToolModelOutput; output?: unknown }> {
    if ("error" in outcome) return { forModel: { type: "error-text", value: outcome.error } };
    if (!("denied" in outcome))
      return { forModel: await this.forModel(outcome.output, input, id), output: outcome.output };
    const { reason } = outcome.denied;
    return { forModel: { type: "execution-denied", ...(reason !== undefined && { reason }) } };
  }
}

/** When a tool asks, and how. Undefined: it does not. */
function approvalOf(given: SdkTool["needsApproval"] | ApproveOptions): ApproveOptions | undefined {
  if (given === undefined || given === false) return undefined;
  if (given === true) return {};
  return typeof given === "function" ? { when: given as never } : given;
}

function stepName({ name, id }: { readonly name: string; readonly id: string }): string {
  return `${name} ${id}`;
}

/** The result of a tool: of a generator the last value. `show` gets all values of a generator. */
async function lastOf(result: unknown, show?: (value: unknown) => Promise<void>): Promise<unknown> {
  if (typeof result !== "object" || result === null || !(Symbol.asyncIterator in result)) return result;
  let last: unknown;
  for await (const value of result as AsyncIterable<unknown>) {
    last = value;
    await show?.(value);
  }
  return last;
}
