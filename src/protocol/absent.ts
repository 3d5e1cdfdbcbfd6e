import type * as z from "zod";
import { GIVEN, protocolRegistry } from "./registry.ts";

/*
 * Clients write `null` where they mean "not there". A known key whose value is null therefore counts as absent: it
 * takes the default if there is one, and otherwise the key is missing from what was read.
 */

/** `T` without null and undefined at the given keys, which stay optional. */
export type OmitAbsent<T, Key extends string> = {
  [Name in keyof T]: Name extends Key ? NonNullable<T[Name]> : T[Name];
};

/** Makes the last step of an object schema: leaves out those of the given keys that hold null or undefined. */
export function omitAbsent<const Key extends string>(...keys: readonly Key[]) {
  return <T extends { readonly [Name in Key]?: unknown }>(value: T): OmitAbsent<T, Key> => {
    const absent: readonly string[] = keys.filter((key) => value[key] == null && key in value);
    if (absent.length === 0) return value as OmitAbsent<T, Key>;
    const present: { [name: string]: unknown } = {};
    for (const [name, item] of Object.entries(value)) if (!absent.includes(name)) present[name] = item;
    return present as OmitAbsent<T, Key>;
  };
}

/** The schema of a key that may be absent or null and then has `fallback` as its value. */
export function withDefault<Schema extends z.ZodType>(schema: Schema, fallback: z.output<Schema>) {
  const nullish = schema.nullish();
  protocolRegistry.add<z.ZodType>(nullish, { default: fallback, [GIVEN]: "always" });
  return nullish.transform((value): z.output<Schema> => value ?? fallback);
}

/** The schema of a key for which null means something of its own; absent is read as null. */
export function orNull<Schema extends z.ZodType>(schema: Schema) {
  return given(schema.nullish(), "or-null").transform((value): z.output<Schema> | null => value ?? null);
}

/** Marks a key that clients may leave out or send as null, and that the service always sends. */
export function given<Schema extends z.ZodType>(schema: Schema, how: "always" | "or-null"): Schema {
  protocolRegistry.add<z.ZodType>(schema, { [GIVEN]: how });
  return schema;
}
