/** A JSON Schema, as far as forms understand it. */
export interface Schema {
  readonly type?: string | readonly string[];
  readonly title?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly prefixItems?: readonly Schema[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly $ref?: string;
}

/** What a form shows for a schema. */
export type Field =
  | { readonly is: "object"; readonly properties: readonly (readonly [string, Schema, boolean])[] }
  | { readonly is: "list"; readonly items: Schema }
  | { readonly is: "choice"; readonly values: readonly unknown[] }
  | { readonly is: "variants"; readonly variants: readonly Schema[] }
  | { readonly is: "boolean" | "number" | "integer" | "text" | "long text" | "null" | "json" };

/** The schema that a reference within the whole schema names; the schema itself if it is no such reference. */
export function resolved(schema: Schema, root: Schema): Schema {
  let at = schema;
  for (let hops = 0; at.$ref !== undefined && hops < 10; hops++) {
    const { $ref, ...beside } = at;
    const found = $ref
      .replace(/^#\/?/, "")
      .split("/")
      .filter((part) => part !== "")
      .reduce<unknown>((value, part) => memberOf(value, decodePointer(part)), root);
    if (!isSchema(found)) return {};
    at = { ...found, ...beside };
  }
  return at;
}

function decodePointer(part: string): string {
  return decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null;
}

/** How a form shows a schema. What it does not understand is JSON, which the server checks. */
export function fieldOf(schema: Schema): Field {
  if (schema.const !== undefined) return { is: "choice", values: [schema.const] };
  if (Array.isArray(schema.enum)) return { is: "choice", values: schema.enum };
  const variants = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(variants) && variants.length > 0) return { is: "variants", variants };
  if (schema.allOf !== undefined) return { is: "json" };
  if (Array.isArray(schema.type))
    return { is: "variants", variants: (schema.type as readonly string[]).map((type) => ({ ...schema, type })) };
  switch (schema.type) {
    case "object":
      return schema.properties === undefined ? { is: "json" } : { is: "object", properties: propertiesOf(schema) };
    case "array":
      return isSchema(schema.items) && schema.prefixItems === undefined
        ? { is: "list", items: schema.items }
        : { is: "json" };
    case "boolean":
    case "number":
    case "integer":
    case "null":
      return { is: schema.type };
    case "string":
      return { is: schema.maxLength !== undefined && schema.maxLength > 200 ? "long text" : "text" };
    default:
      return { is: "json" };
  }
}

function propertiesOf({ properties = {}, required = [] }: Schema): readonly (readonly [string, Schema, boolean])[] {
  return Object.entries(properties).map(([name, schema]) => [name, schema, required.includes(name)] as const);
}

/** The value that a form begins with; undefined: none. */
export function firstValue(schema: Schema, root: Schema, depth = 0): unknown {
  const at = resolved(schema, root);
  if (at.default !== undefined) return at.default;
  if (at.const !== undefined) return at.const;
  const field = fieldOf(at);
  if (field.is === "null") return null;
  if (field.is === "list") return [];
  // A schema may contain itself.
  if (field.is !== "object" || depth > 5) return undefined;
  return Object.fromEntries(
    field.properties.flatMap(([name, property, isRequired]) => {
      const value = isRequired ? firstValue(property, root, depth + 1) : resolved(property, root).default;
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** The member of a value; undefined if it has none of that name. */
export function memberOf(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

/** An object with another member. One without a value is left out. */
export function withMember(
  before: unknown,
  name: string,
  change: (before: unknown) => unknown,
): Record<string, unknown> {
  const members = Object.entries(isObject(before) ? before : {}).filter(([key]) => key !== name);
  const next = change(memberOf(before, name));
  return Object.fromEntries(next === undefined ? members : [...members, [name, next]]);
}

export function listIn(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
