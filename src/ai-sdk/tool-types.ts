/* Tools as far as they are used: those of `ai` 6 and 7, told structurally, since nothing here imports `ai`. */

/** A tool. */
export interface SdkTool {
  readonly type?: string | undefined;
  readonly title?: string | undefined;
  readonly outputSchema?: unknown;
  readonly needsApproval?: boolean | ((input: never, options: never) => unknown) | undefined;
  readonly execute?: ((input: never, options: never) => unknown) | undefined;
  readonly toModelOutput?: ((options: never) => unknown) | undefined;
}

/** How a tool is called. */
export interface ToolCallOptions {
  readonly toolCallId: string;
  readonly abortSignal?: AbortSignal | undefined;
}

/** What a model gets as the result of a tool call. */
export type ToolModelOutput =
  | { type: "text"; value: string }
  | { type: "json"; value: SdkJson }
  | { type: "error-text"; value: string }
  | { type: "execution-denied"; reason?: string }
  | { type: "content"; value: { type: "text"; text: string }[] };

/** JSON as the types of the AI SDK have it. */
export type SdkJson = null | string | number | boolean | { [key: string]: SdkJson } | SdkJson[];

/** The answer to the question whether a tool may be called. */
export interface Approval {
  readonly approved: boolean;
  readonly reason?: string | undefined;
}

/** When and how a tool asks before it is called. */
export interface ApproveOptions<Input = never> {
  /** Whether this call needs an approval. Called in a step, so that a replay does not call it. Default: each does. */
  readonly when?: ((input: Input, options: ToolCallOptions) => boolean | PromiseLike<boolean>) | undefined;
  /** The question. Default: it names the tool and its input. */
  readonly question?: ((input: Input) => string) | undefined;
  /** How long the question may be answered, in milliseconds. Default: the runtime's `awaitTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** The answer when the question expires. Default, with `timeoutMs`: it is not approved. */
  readonly default?: Approval | undefined;
}

/** How the tools of an agent are called. */
export interface ToolsOptions<Tools> {
  /**
   * Which tools ask before they are called, by name. `true`: each call asks. `false`: none does, whatever `needsApproval`
   * of the tool says. Default: `needsApproval` of each tool.
   */
  readonly approve?: { readonly [Name in keyof Tools]?: boolean | ApproveOptions<InputOf<Tools[Name]>> } | undefined;
  /**
   * The names of tools that are not called in a step, because they ask, run agents, sleep or use steps themselves. They
   * are called again in a replay. The tools of `agentTool` need not be named. Default: none.
   */
  readonly direct?: readonly (keyof Tools & string)[] | undefined;
}

type InputOf<Tool> = Tool extends { execute?: infer Execute } ? FirstOf<Execute> : never;
/** Distributes over `undefined`, and over the `never` of tools without a function. */
type FirstOf<Execute> = Execute extends (input: infer Input, options: never) => unknown ? Input : never;
