import type { MaybePromise } from "../../core/promises.ts";

/* The types of `context.step`. */

/** See `context.step`. */
export type Step = StepMethod["step"];

/**
 * Declared as a method, because methods are checked bivariantly: a {@link DurableStep}, which accepts fewer functions,
 * is a `Step` too.
 */
interface StepMethod {
  step<Result>(name: string, fn: (step: StepScope) => MaybePromise<Result>, options?: StepOptions): Promise<Result>;
}

/**
 * As {@link Step}. A result that JSON would lose or change makes the step fail. It does not compile either, if its type
 * shows the problem.
 */
export type DurableStep = <Result>(
  name: string,
  fn: (step: StepScope) => MaybePromise<Result & Recordable<Result>>,
  options?: StepOptions,
) => Promise<Result>;

/**
 * The type itself, if its values survive JSON unchanged. A class without methods cannot be told from a plain object.
 */
export type Recordable<Value> = unknown extends Value
  ? Value
  : Value extends string | number | boolean | null | undefined
    ? Value
    : Value extends void
      ? Value
      : Value extends bigint | symbol | AnyFunction
        ? NotRecordable
        : Value extends readonly unknown[]
          ? { [Index in keyof Value]: undefined extends Value[Index] ? NotRecordable : Recordable<Value[Index]> }
          : HasMethods<Value> extends true
            ? NotRecordable
            : { [Key in keyof Value]: Recordable<Value[Key]> };

/** The text in the compiler's error for a step result that JSON would lose. */
type NotRecordable = "JSON would lose this, and the result of a durable step is recorded as JSON";
type AnyFunction = (...parameters: never) => unknown;
/** Dates, maps, sets, buffers and all other instances of classes have methods. */
type HasMethods<Value> = true extends { [Key in keyof Value]-?: IsFunction<NonNullable<Value[Key]>> }[keyof Value]
  ? true
  : false;
type IsFunction<Member> = [Member] extends [never] ? false : Member extends AnyFunction ? true : false;

/** The argument of a step's function. */
export interface StepScope {
  /** The step's key within the run, such as `fetch figures#2`. It is the same on every attempt. */
  readonly key: string;
  /**
   * A UUID for the other side, which tells a further attempt from a further step by it. It is computed from the run's id
   * and the step's key: the same on every attempt, also after a crash, and different for every other step of any run.
   */
  readonly idempotencyKey: string;
  /** 1 for the first attempt. After a crash it continues from the attempt that was interrupted. */
  readonly attempt: number;
  /**
   * The signal of the run. With `timeoutMs` or `stallMs`, a signal of this attempt, which aborts with the run's signal
   * too, and with `step_timeout` when the time is over.
   */
  readonly signal: AbortSignal;
  /**
   * Emits a part, a message or an object while the step runs, for example each token of a model's answer. After the
   * attempt's `timeoutMs` nothing is emitted.
   */
  readonly emit: (value: unknown) => Promise<void>;
  /** Says that the attempt makes progress, for the limit `stallMs`. Each call of `emit` says so too. */
  readonly progress: () => void;
}

/** How a step is run. */
export interface StepOptions {
  /**
   * Whether a durable step that a crash has interrupted throws `step_interrupted` instead of running again. Default:
   * false.
   */
  readonly once?: boolean | undefined;
  /**
   * How long one attempt may take, in milliseconds. After that the attempt's signal aborts, and the attempt fails with
   * `step_timeout`, also if the function continues. What the function still emits or returns is dropped. The attempt is
   * repeated like any other that fails. Default: `Infinity`.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * How long one attempt may go on without a call of `emit` or `progress`, in milliseconds. It fails between this time
   * and twice as much after the last call, as it does after `timeoutMs`. Default: `Infinity`.
   */
  readonly stallMs?: number | undefined;
  /** How the function is tried again when an attempt fails. Default: one attempt. */
  readonly retry?: StepRetry | undefined;
  /**
   * The limit that each attempt waits for, one of the `stepLimits` of the runtime. What it waits is no part of `timeoutMs`
   * and `stallMs`. Default: none.
   */
  readonly limit?: string | undefined;
}

/**
 * How a step is tried again. The pause after attempt n is `backoffMs * factor ** (n - 1)`, and at most `maxBackoffMs`.
 * Of this, a part between the half and the whole is waited, which differs for each run, step and attempt, so that runs
 * that failed together do not try again together.
 */
export interface StepRetry {
  /**
   * How many attempts there are, a whole number from 1 on. A step that a crash has interrupted has all of them again.
   */
  readonly attempts: number;
  /** The longest pause after the first attempt, in milliseconds. Default: 0, and then there are no pauses. */
  readonly backoffMs?: number | undefined;
  /** By how much the pause grows with each attempt, from 1 on. Default: 2. */
  readonly factor?: number | undefined;
  /** The longest pause, in milliseconds. Default: 60,000, or `backoffMs` if that is more. */
  readonly maxBackoffMs?: number | undefined;
  /**
   * Whether an attempt that failed with this error is repeated. The function is not asked after the last attempt. If it
   * throws, the step fails with what it throws. It must not return a promise. Default: every error is repeated.
   */
  readonly when?: ((error: unknown) => boolean) | undefined;
  /**
   * The pause that an error asks for, in milliseconds, such as the `retry-after` of a response. It takes the place of the
   * computed pause, and is at most `maxBackoffMs`. Undefined: the computed pause. What it throws counts as
   * undefined, and so does an answer that is no number from 0 on. Default: no error asks for a pause.
   */
  readonly pauseMs?: ((error: unknown) => number | undefined) | undefined;
}
