import type { Issue } from "../../core/errors.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";

/**
 * A schema of any validation library that implements Standard Schema, version 1 (zod, valibot, arktype, …). `Input` is
 * what it reads, and `Output` what it gives.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => MaybePromise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** Converts the schema to JSON Schema, if the library implements Standard JSON Schema. */
    readonly jsonSchema?:
      | { readonly input: (options: { readonly target: string }) => Record<string, unknown> }
      | undefined;
  };
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What a schema reads. */
export type SchemaInput<Schema> = Schema extends StandardSchema<infer Input, unknown> ? Input : never;

/** What a schema gives. */
export type SchemaOutput<Schema> = Schema extends StandardSchema<unknown, infer Output> ? Output : never;

/** A valid value, or the issues of an invalid one. `failed`: the schema itself has failed, and has judged nothing. */
export type Validated =
  | { readonly value: unknown }
  | { readonly issues: readonly Issue[]; readonly failed?: "threw" | "late" | undefined };

/** Where a schema is called: how long it may take, and where its own failures go. */
export interface SchemaHost {
  readonly logger: Logger;
  /** Of the logged line. */
  readonly about?: object | undefined;
  /** Undefined: the caller limits the time. */
  readonly clock?: Clock | undefined;
}

/** One of the two functions below. */
export type Validate = typeof validateFirst;

/** How long a schema may take for one value, in milliseconds. It is less than the time that answers are waited for. */
const VALIDATION_MS = 5_000;
/** How often a schema that throws is asked about a value that the run has accepted. */
const ATTEMPTS = 3;

/**
 * The output of the first valid candidate. If none is valid, the issues of the first one. It neither throws nor rejects:
 * a schema that does, or that does not settle in time, makes the value invalid, and the logger gets the error.
 */
export function validateFirst(
  schema: StandardSchema,
  candidates: readonly unknown[],
  host: SchemaHost,
): MaybePromise<Validated> {
  return validateFrom(schema, candidates, host, 1, 0, undefined);
}

/**
 * As {@link validateFirst}, for a value that the run has accepted. A schema that fails is called again, because the
 * failure would count as what the agent did.
 */
export function validateAccepted(
  schema: StandardSchema,
  candidates: readonly unknown[],
  host: SchemaHost,
): MaybePromise<Validated> {
  return validateFrom(schema, candidates, host, ATTEMPTS, 0, undefined);
}

function validateFrom(
  schema: StandardSchema,
  candidates: readonly unknown[],
  host: SchemaHost,
  attempts: number,
  from: number,
  first: Validated | undefined,
): MaybePromise<Validated> {
  let invalid = first;
  for (let index = from; index < candidates.length; index++) {
    const outcome = validateOne(schema, candidates[index], host, attempts);
    if (isPromise(outcome))
      return outcome.then((later) =>
        isDecided(later) ? later : validateFrom(schema, candidates, host, attempts, index + 1, worse(invalid, later)),
      );
    if (isDecided(outcome)) return outcome;
    invalid = worse(invalid, outcome);
  }
  return invalid ?? { issues: [] };
}

/** Whether no other candidate is looked at. A schema that does not settle would take the same time again. */
function isDecided(outcome: Validated): boolean {
  return "value" in outcome || outcome.failed === "late";
}

/** The first of two outcomes that are not valid. A failure of the schema says more than its verdict on another value. */
function worse(one: Validated | undefined, other: Validated): Validated {
  return one === undefined || ("failed" in other && !("failed" in one)) ? other : one;
}

function validateOne(
  schema: StandardSchema,
  value: unknown,
  host: SchemaHost,
  attempts: number,
): MaybePromise<Validated> {
  const failed = (error: unknown): MaybePromise<Validated> => {
    const outcome = failure(error, "threw", host);
    return attempts > 1 ? validateOne(schema, value, host, attempts - 1) : outcome;
  };
  try {
    const result = ask(schema, value);
    if (!isPromise(result)) return readResult(result);
    // Other libraries bring promises of their own, whose `then` may throw or return nothing.
    const settled = Promise.resolve(result).then(readResult);
    return inTime(settled, host.clock).then(
      (outcome) => outcome ?? failure(new Error(`It has not settled within ${VALIDATION_MS} ms.`), "late", host),
      failed,
    );
  } catch (error) {
    return failed(error);
  }
}

/**
 * Schemas of zod try to parse at once, and drop the promise of a check that turns out to be asynchronous. If that promise
 * rejects, nothing handles it, and Node ends the process. So each parse of such a schema is begun as an asynchronous one.
 */
function ask(schema: StandardSchema & Partial<ZodSchema>, value: unknown): MaybePromise<StandardResult<unknown>> {
  const { vendor, validate } = schema["~standard"];
  if (vendor !== "zod" || schema.safeParseAsync === undefined) return validate(value);
  const parse = async (): Promise<StandardResult<unknown>> => {
    const parsed = await schema.safeParseAsync?.(value);
    return parsed?.success === true ? { value: parsed.data } : { issues: parsed?.error.issues ?? [] };
  };
  // Version 3 has nothing that is only asynchronous where it has to be.
  if (schema._zod === undefined) return parse();
  const read = schema._zod.run({ value, issues: [] }, { async: true });
  // Only the methods for users say what is wrong in words.
  if (isPromise(read)) return read.then((later) => (later.issues.length === 0 ? { value: later.value } : parse()));
  return read.issues.length === 0 ? { value: read.value } : validate(value);
}

/** What a schema of zod has of its own, in each version and in its small variant. */
interface ZodSchema {
  safeParseAsync(
    value: unknown,
  ): Promise<
    | { readonly success: true; readonly data: unknown }
    | { readonly success: false; readonly error: { readonly issues: readonly StandardIssue[] } }
  >;
  /** Since version 4. Its methods for users, such as `safeParseAsync`, call this. */
  readonly _zod?: {
    run(value: Payload, context: { readonly async: boolean }): MaybePromise<Payload>;
  };
}

interface Payload {
  readonly value: unknown;
  readonly issues: readonly unknown[];
}

/** The error of a schema may tell secrets of the host, and so is not for the client. */
function failure(error: unknown, failed: "threw" | "late", { logger, about }: SchemaHost): Validated {
  logger.warn("A schema failed to validate a value.", { ...about, error });
  return { issues: [{ path: [], message: "The value cannot be validated, because its schema failed." }], failed };
}

/** Resolves with undefined when the time is over. */
function inTime<T>(settled: Promise<T>, clock: Clock | undefined): Promise<T | undefined> {
  if (clock === undefined) return settled;
  let stop: (() => void) | undefined;
  const late = new Promise<undefined>((resolve) => {
    stop = clock.setTimeout(() => resolve(undefined), VALIDATION_MS);
  });
  return Promise.race([settled, late]).finally(() => stop?.());
}

function readResult(result: StandardResult<unknown>): Validated {
  const { issues } = result;
  if (issues === undefined) {
    if (!("value" in result)) throw new TypeError("It gave neither a value nor issues.");
    return { value: result.value };
  }
  return { issues: issues.map(readIssue) };
}

/** The JSON Schema (draft 2020-12) of a schema, as text. Undefined: its library cannot convert it. */
export function jsonSchemaOf(schema: StandardSchema): string | undefined {
  try {
    return JSON.stringify(schema["~standard"].jsonSchema?.input({ target: "draft-2020-12" }));
  } catch {
    // Some schemas have no JSON Schema (a transformation, a bigint). The question is asked without one.
    return undefined;
  }
}

/** Whether a value is a Standard Schema. A schema of arktype is a function. */
export function isStandardSchema(value: unknown): value is StandardSchema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return "~standard" in value && typeof (value["~standard"] as { validate?: unknown } | null)?.validate === "function";
}

function readIssue({ message, path = [] }: StandardIssue): Issue {
  return {
    message: String(message),
    path: path
      .map((step) => (typeof step === "object" ? step.key : step))
      .map((key) => (typeof key === "number" ? key : String(key))),
  };
}
