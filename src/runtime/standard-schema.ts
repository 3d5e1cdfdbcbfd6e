import type { Issue } from "../core/errors.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import type { JsonObject } from "../protocol/json.ts";

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

/** A valid value, or the issues of an invalid one. */
export type Validated = { readonly value: unknown } | { readonly issues: readonly Issue[] };

/** The output of the first valid candidate. If none is valid, the issues of the first one. */
export function validateFirst(
  schema: StandardSchema,
  candidates: readonly unknown[],
  from = 0,
  issuesBefore?: readonly Issue[],
): MaybePromise<Validated> {
  let issues = issuesBefore;
  for (let index = from; index < candidates.length; index++) {
    const result = schema["~standard"].validate(candidates[index]);
    if (isPromise(result)) {
      return result.then((later) =>
        later.issues === undefined
          ? { value: later.value }
          : validateFirst(schema, candidates, index + 1, issues ?? later.issues.map(readIssue)),
      );
    }
    if (result.issues === undefined) return { value: result.value };
    issues ??= result.issues.map(readIssue);
  }
  return { issues: issues ?? [] };
}

/** The schema as JSON Schema (draft 2020-12), or undefined if its library cannot convert it. */
export function jsonSchemaOf(schema: StandardSchema): JsonObject | undefined {
  try {
    return schema["~standard"].jsonSchema?.input({ target: "draft-2020-12" }) as JsonObject | undefined;
  } catch {
    // Some schemas have no JSON Schema (a transformation, a bigint). The question is asked without one.
    return undefined;
  }
}

/** Whether a value is a Standard Schema. Those of arktype are functions. */
export function isStandardSchema(value: unknown): value is StandardSchema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return "~standard" in value && typeof (value["~standard"] as { validate?: unknown } | null)?.validate === "function";
}

function readIssue({ message, path = [] }: StandardIssue): Issue {
  return {
    message,
    path: path
      .map((step) => (typeof step === "object" ? step.key : step))
      .map((key) => (typeof key === "number" ? key : String(key))),
  };
}
