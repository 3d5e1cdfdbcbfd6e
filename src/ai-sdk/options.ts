import { CadenzaError } from "../core/errors.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { StepRetry } from "../runtime/agent/agent-steps.ts";

/** How an agent uses the AI SDK. */
export interface AiSdkOptions {
  /**
   * Whether the text of a streamed call is emitted while it arrives, with the thoughts of the model, as trajectories, and
   * the sources that it names, as citations. Texts of calls that do not stream, and of calls that want JSON, are never
   * emitted. Default: true.
   */
  readonly show?: boolean | undefined;
  /**
   * How a model call is tried again: after an error that the AI SDK calls retryable, after a stream that breaks off, and
   * after one that is silent for `stallMs`. A `retry-after` of the response takes the place of the computed pause.
   * Default: 3 attempts, with pauses of up to 2, then 4 seconds.
   */
  readonly retry?: Partial<StepRetry> | undefined;
  /**
   * How long a stream may be silent before the attempt fails, in milliseconds. It is noticed between this time and twice
   * as much. Default: 300,000. `Infinity`: for ever.
   */
  readonly stallMs?: number | undefined;
  /** What is recorded beside the answers. */
  readonly record?:
    | {
        /**
         * Whether a model step holds what is new in its prompt. Without it only a hash of the prompt is kept. Default: true.
         */
        readonly prompts?: boolean | undefined;
      }
    | undefined;
}

/** The options with their defaults. */
export interface AiSdkSettings {
  readonly show: boolean;
  readonly retry: Partial<StepRetry>;
  readonly stallMs: number;
  readonly prompts: boolean;
}

const STALL_MS = 300_000;

/** Reads the options. Throws `invalid_argument` for an unknown or invalid one. */
export function readAiSdkOptions(options: AiSdkOptions): AiSdkSettings {
  checkKeys("options", options, ["show", "retry", "stallMs", "record"]);
  const { show = true, retry = {}, stallMs = STALL_MS, record = {} } = options;
  checkBoolean("options.show", show);
  checkKeys("options.retry", retry, ["attempts", "backoffMs", "factor", "maxBackoffMs", "when", "pauseMs"]);
  checkKeys("options.record", record, ["prompts"]);
  const { prompts = true } = record;
  checkBoolean("options.record.prompts", prompts);
  return { show, retry, stallMs, prompts };
}

/** Throws `invalid_argument` for what is no object, or has other keys. */
export function checkKeys(name: string, value: unknown, known: readonly string[]): void {
  if (!isJsonObject(value)) throw badArgument(name, "an object", value);
  const other = Object.keys(value).find((key) => !known.includes(key));
  if (other !== undefined) throw badArgument(`${name}.${other}`, `one of ${known.join(", ")}`, other);
}

/** The error for an invalid argument. */
export function badArgument(name: string, expected: string, received: unknown): CadenzaError {
  const what = typeof received === "string" ? JSON.stringify(received) : String(received);
  return new CadenzaError("invalid_argument", `${name}: expected ${expected}, received ${what}.`);
}

function checkBoolean(name: string, value: unknown): void {
  if (typeof value !== "boolean") throw badArgument(name, "true or false", value);
}
