/* A model as far as it is used: that of a provider for `ai` 5, 6 or 7, told structurally, since nothing here imports `ai`. */

/** A model of a provider. */
export interface SdkModel {
  readonly specificationVersion: string;
  readonly provider: string;
  readonly modelId: string;
  readonly supportedUrls: unknown;
  doGenerate(call: ModelCall): PromiseLike<Generated>;
  doStream(call: ModelCall): PromiseLike<Streamed>;
}

/** What a model is called with. */
export interface ModelCall {
  readonly prompt: readonly unknown[];
  readonly responseFormat?: { readonly type: string } | undefined;
  readonly abortSignal?: AbortSignal | undefined;
}

/** The answer to a call that does not stream. */
interface Generated {
  readonly response?: object | undefined;
  readonly request?: unknown;
}

/** The answer to a call that streams. */
interface Streamed {
  readonly stream: ReadableStream<Chunk>;
}

/** A chunk of a stream. */
export interface Chunk {
  readonly type: string;
}

/**
 * What {@link AiSdk.model} gives for a model: an object with the members that the AI SDK needs, for the version of the
 * AI SDK that the model is for.
 */
export type RecordedModel<Model> = Model extends SdkModel ? Pick<Model, keyof SdkModel> : never;

/** The model itself, or what the compiler shows for one that cannot be recorded. */
export type ModelArgument<Model> = string extends Model
  ? ModelAsText
  : Model extends string
    ? ModelAsText
    : Model extends SdkModel
      ? Model
      : SdkModel;

/** The text in the compiler's error for a model that is given as text. */
type ModelAsText = { readonly 'give a model object, such as gateway("provider/model")': never };
