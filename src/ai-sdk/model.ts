import { inBackground, onceAborted } from "../core/background.ts";
import type { Logger } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import type { StepRetry, StepScope } from "../runtime/agent/agent-steps.ts";
import { RecordedChunks, shownIn, streamOf } from "./chunks.ts";
import { decode, encode } from "./codec.ts";
import type { Chunk, ModelCall, SdkModel } from "./model-types.ts";
import type { AiSdkSettings } from "./options.ts";
import { badArgument } from "./options.ts";
import type { PromptRecord } from "./prompts.ts";
import { Prompts } from "./prompts.ts";
import type { SdkContext } from "./sdk-context.ts";
import { joined } from "./sdk-context.ts";
import { BrokenStreamError, errorOfStream, isRetryable, retryAfter, withoutMark } from "./sdk-errors.ts";

/** The name of the steps in which models are called. */
const STEP = "model";

const RETRY: StepRetry = { attempts: 3, backoffMs: 2_000, factor: 2, when: isRetryable, pauseMs: retryAfter };

/** A model call as it is recorded. */
interface RecordedCall {
  readonly model: { readonly provider: string; readonly id: string };
  readonly prompt: PromptRecord;
  /** The chunks of a stream, or the result of a call that does not stream. */
  readonly answer: unknown;
}

/** Calls models in steps. */
export class ModelSteps {
  readonly #context: SdkContext;
  readonly #settings: AiSdkSettings;
  readonly #prompts: Prompts;
  /** How many calls had another prompt than the recorded one. */
  differences = 0;

  constructor(context: SdkContext, settings: AiSdkSettings) {
    this.#context = context;
    this.#settings = settings;
    this.#prompts = new Prompts(settings.prompts);
  }

  /** A model whose calls are steps. It keeps the version of the interface of its provider. */
  of(model: SdkModel): SdkModel {
    if (typeof model !== "object" || typeof model?.doStream !== "function")
      throw badArgument("model", 'a model object, such as gateway("provider/model")', model);
    const { specificationVersion, provider, modelId } = model;
    return {
      specificationVersion,
      provider,
      modelId,
      get supportedUrls() {
        return model.supportedUrls;
      },
      doGenerate: async (call) =>
        (await this.#call(model, call, undefined, (within) => generated(model, within))) as object,
      doStream: async (call) => ({
        stream: streamOf(
          (await this.#call(model, call, this.#settings.stallMs, this.#streamed(model, call))) as Chunk[],
        ),
      }),
    };
  }

  /** Calls the model in a step, and gives the recorded answer. */
  async #call(
    model: SdkModel,
    call: ModelCall,
    stallMs: number | undefined,
    body: (call: ModelCall, step: StepScope) => Promise<unknown>,
  ): Promise<unknown> {
    const prompt = this.#prompts.next(call.prompt);
    const record = async (step: StepScope): Promise<unknown> => {
      const answer = await body({ ...call, abortSignal: joined(step.signal, call.abortSignal) }, step);
      return encode({ model: { provider: model.provider, id: model.modelId }, prompt, answer });
    };
    // Who compares the code of two versions sees by it that the prompt is another.
    const compared = Object.assign(record, { digest: prompt.hash });
    const recorded = await this.#context
      .step(STEP, compared, { stallMs, retry: { ...RETRY, ...this.#settings.retry } })
      .catch((error: unknown) => {
        throw withoutMark(error);
      });
    const { answer, prompt: before } = decode(recorded) as RecordedCall;
    if (before.hash !== prompt.hash) this.#differs();
    const usage = usageIn(answer);
    if (usage !== undefined) this.#context.usage.add(usage);
    return answer;
  }

  #streamed(model: SdkModel, call: ModelCall) {
    const isShown = this.#settings.show && call.responseFormat?.type !== "json";
    return (within: ModelCall, step: StepScope): Promise<readonly Chunk[]> =>
      drained(model, within, step, isShown ? step.emit : undefined, this.#context.logger);
  }

  #differs(): void {
    this.differences += 1;
    this.#context.logger.warn("A replayed model call has another prompt than the recorded one.", {
      run_id: this.#context.run_id,
    });
  }
}

/** Calls a model, and gives its result without what only concerns the transport. */
async function generated(model: SdkModel, call: ModelCall): Promise<unknown> {
  const { request: _request, response, ...result } = await model.doGenerate(call);
  if (response === undefined) return result;
  const {
    headers: _headers,
    body: _body,
    ...kept
  } = response as { readonly headers?: unknown; readonly body?: unknown };
  return { ...result, response: kept };
}

/** Reads the stream of a model to its end, at the pace of the provider. `show`: gets what it shows while it arrives. */
async function drained(
  model: SdkModel,
  call: ModelCall,
  step: StepScope,
  show: StepScope["emit"] | undefined,
  logger: Logger,
): Promise<readonly Chunk[]> {
  const signal = call.abortSignal as AbortSignal;
  const { stream } = await model.doStream(call);
  const reader = stream.getReader();
  const stop = (): void => inBackground(logger, reader.cancel(signal.reason).catch(ignore));
  const stopListening = onceAborted(logger, signal, stop);
  const chunks = new RecordedChunks();
  let last: Chunk | undefined;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (signal.aborted) throw signal.reason;
      if (done) break;
      step.progress();
      if (value.type === "error") throw (value as Chunk & { readonly error: unknown }).error;
      const shown = shownIn(value);
      if (show !== undefined && shown !== undefined) await show(shown);
      chunks.add(value);
      if (value.type === "finish") last = value;
    }
    if (last === undefined) throw new BrokenStreamError("The model's stream ended early.");
    return chunks.list;
  } catch (error) {
    stop();
    throw signal.aborted ? signal.reason : errorOfStream(error);
  } finally {
    stopListening();
  }
}

/** The usage in a recorded answer. Undefined if the provider has counted nothing. */
function usageIn(answer: unknown): object | undefined {
  const chunks = Array.isArray(answer) ? answer : [answer];
  const { usage } = chunks.findLast((chunk) => chunk?.usage !== undefined) ?? {};
  const counted = [usage?.inputTokens, usage?.outputTokens].map((count) => count?.total ?? count);
  return counted.some((count) => typeof count === "number") ? usage : undefined;
}
