import * as z from "zod";

/**
 * What a schema of this folder tells the generator of JSON Schema about itself: its component name, a sentence, and
 * further keywords.
 */
export interface SchemaNote {
  readonly id?: string;
  readonly description?: string;
  readonly [keyword: string]: unknown;
}

/**
 * Marks a key that clients may leave out or send as null, and that is in everything that the service sends: `always`
 * with a value, or `or-null`. Other such keys are left out of what the service sends while they have no value. The
 * keyword is removed from every document.
 */
export const GIVEN = "x-given";

/** The address of a component in an OpenAPI document. */
export function componentRef(id: string): string {
  return `#/components/schemas/${id}`;
}

/**
 * The component names and descriptions of all protocol schemas. `componentSchemas` makes their JSON Schema.
 *
 * It is a registry of its own because zod's global one is shared by the whole process: names such as `Message` or
 * `Error` would collide there with those of the host application, and with a second copy of this module.
 */
export const protocolRegistry = z.registry<SchemaNote>();

/**
 * Gives a schema its note, and builds it on first use: to build all schemas takes longer than to load the rest of the
 * library. zod asks for the schema several times, so it is cached.
 */
export function deferred<Schema extends z.ZodType>(note: SchemaNote, build: () => Schema): z.ZodLazy<Schema> {
  let built: Schema | undefined;
  const schema = z.lazy(() => {
    built ??= build();
    return built;
  });
  protocolRegistry.add<z.ZodType>(schema, note);
  return schema;
}
