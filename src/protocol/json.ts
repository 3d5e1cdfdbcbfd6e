import * as z from "zod";
import { deferred } from "./registry.ts";

/** Any value that JSON can carry. */
export type JsonValue = string | number | boolean | null | readonly JsonValue[] | JsonObject;

/** A JSON object: `{ … }`, neither an array nor null. */
export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/**
 * A JSON value as a caller gives it. A value typed by an interface is no {@link JsonValue} to the compiler, since an
 * interface has no index signature. That it is JSON is checked when it is used.
 */
export type JsonInput = JsonValue | object;

/** `T` with every property and every list in it read-only, at any depth. */
export type DeepReadonly<T> = T extends (...parameters: never) => unknown
  ? T
  : T extends object
    ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
    : T;

/**
 * Whether a value is a plain object, that is neither null nor an array nor an instance of a class. Looks at the surface
 * only.
 */
export function isJsonObject(value: unknown): value is JsonObject {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/**
 * A JSON object with contents of the sender's choice. The same object is handed on: its contents are neither copied nor
 * checked.
 */
export const jsonObjectSchema = deferred({ type: "object" }, () =>
  z.unknown().transform((value, context): JsonObject => {
    if (isJsonObject(value)) return value;
    context.issues.push({ code: "invalid_type", expected: "object", input: value });
    return z.NEVER;
  }),
) as z.ZodType<JsonObject, JsonObject>;

/** A list of one kind of item, typed read-only. */
export function listOf<Output, Input>(item: z.ZodType<Output, Input>): z.ZodType<readonly Output[], readonly Input[]> {
  return z.array(item);
}
