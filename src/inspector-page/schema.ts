import { decoded } from "./decoded.ts";

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

/** The most fields that a form shows at once. A schema with more is answered as JSON. */
const MOST_FIELDS = 200;
/** How many values of a choice count as one more field. */
const VALUES_OF_A_FIELD = 50;

/** The schema that a reference within the whole schema names; the schema itself if it is no such reference. */
export function resolved(schema: Schema, root: Schema): Schema {
  let at = schema;
  for (let hops = 0; at.$ref !== undefined && hops < 10; hops++) {
    const { $ref, ...beside } = at;
    at = { ...named($ref, root), ...beside };
  }
  return at;
}

/** The place in the whole schema that a schema stands for. It is the same object for all references to one place. */
function placeOf(schema: Schema, root: Schema): Schema {
  let at = schema;
  for (let hops = 0; at.$ref !== undefined && hops < 10; hops++) at = named(at.$ref, root);
  return at;
}

const NO_SCHEMA: Schema = {};

function named(reference: unknown, root: Schema): Schema {
  if (typeof reference !== "string") return NO_SCHEMA;
  const found = reference
    .replace(/^#\/?/, "")
    .split("/")
    .filter((part) => part !== "")
    .reduce<unknown>((value, part) => memberOf(value, decodePointer(part)), root);
  return isSchema(found) ? found : NO_SCHEMA;
}

function decodePointer(part: string): string {
  return decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
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

/**
 * How a form shows the schema of a field below others. `field`: at once. `behind add`: when the user asks for it, since a
 * field above has the same schema, or it is an object that may be left out. `json`: as one JSON text.
 */
export function shownAs(
  schema: Schema,
  root: Schema,
  above: readonly Schema[],
  isRequired: boolean,
): { readonly is: "field" | "behind add" | "json"; readonly within: readonly Schema[] } {
  const within = [...above, placeOf(schema, root)];
  if (isBehindAdd(schema, root, above, isRequired)) return { is: "behind add", within };
  if (above.length === 0 && isTooLarge(schema, root)) return { is: "json", within };
  return { is: "field", within };
}

function isBehindAdd(schema: Schema, root: Schema, above: readonly Schema[], isRequired: boolean): boolean {
  const { is } = fieldOf(resolved(schema, root));
  if (is === "object" && !isRequired) return true;
  return (is === "object" || is === "variants") && above.includes(placeOf(schema, root));
}

function isTooLarge(schema: Schema, root: Schema): boolean {
  return fieldsOf(schema, root, [], true, MOST_FIELDS + 1) > MOST_FIELDS;
}

/** How many fields are shown at once for a schema: all, or at least `enough`. */
function fieldsOf(schema: Schema, root: Schema, above: readonly Schema[], isRequired: boolean, enough: number): number {
  if (isBehindAdd(schema, root, above, isRequired)) return 1;
  const field = fieldOf(resolved(schema, root));
  const within = [...above, placeOf(schema, root)];
  if (field.is === "choice") return 1 + field.values.length / VALUES_OF_A_FIELD;
  if (field.is === "variants") {
    const { variants } = field;
    return 1 + variants.length / VALUES_OF_A_FIELD + fieldsOf(variants[0] ?? {}, root, within, true, enough - 1);
  }
  if (field.is !== "object") return 1;
  let fields = 1;
  for (const [, property, isNeeded] of field.properties) {
    if (fields >= enough) break;
    fields += fieldsOf(property, root, within, isNeeded, enough - fields);
  }
  return fields;
}

/** The value that a form begins with; undefined: none. */
export function firstValue(schema: Schema, root: Schema): unknown {
  if (isTooLarge(schema, root)) return resolved(schema, root).default;
  return firstWithin(schema, root, []);
}

function firstWithin(schema: Schema, root: Schema, above: readonly Schema[]): unknown {
  const at = resolved(schema, root);
  if (at.default !== undefined) return at.default;
  if (at.const !== undefined) return at.const;
  const field = fieldOf(at);
  if (field.is === "null") return null;
  if (field.is === "list") return [];
  const place = placeOf(schema, root);
  if (field.is !== "object" || above.includes(place)) return undefined;
  return Object.fromEntries(
    field.properties.flatMap(([name, property, isRequired]) => {
      const value = isRequired ? firstWithin(property, root, [...above, place]) : resolved(property, root).default;
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** The most values that are a button each. */
const MOST_PRESSES = 5;

/** A value for which one button is enough: of the whole answer, or of its one member that is needed. */
export interface Presses {
  /** The member; null: the answer is the value itself. */
  readonly member: string | null;
  /** What the member is called; null where the answer is the value. */
  readonly label: string | null;
  /** The schema of the values. */
  readonly schema: Schema;
  readonly values: readonly unknown[];
  /** The schema of the other members; null: there are none. */
  readonly rest: Schema | null;
}

/**
 * The buttons that answer at once; undefined: the form has one that sends it. An approval is given with its one yes-or-no,
 * whatever else the answer has.
 */
export function pressesOf(root: Schema, isApproval: boolean): Presses | undefined {
  const schema = resolved(root, root);
  const values = pressedIn(schema);
  if (values !== undefined) return { member: null, label: null, schema, values, rest: null };
  const { properties = {}, required = [] } = schema;
  const booleans = required.filter((name) => {
    const property = memberOf(properties, name);
    return isSchema(property) && fieldOf(resolved(property, root)).is === "boolean";
  });
  const [member] = isApproval && booleans.length === 1 ? booleans : required.length === 1 ? required : [];
  if (schema.type !== "object" || member === undefined || schema.anyOf || schema.oneOf || schema.allOf)
    return undefined;
  const wanted = memberOf(properties, member);
  const own = isSchema(wanted) ? resolved(wanted, root) : NO_SCHEMA;
  const ofMember = pressedIn(own);
  if (ofMember === undefined || own.default !== undefined) return undefined;
  const others = Object.fromEntries(Object.entries(properties).filter(([name]) => name !== member));
  const rest = { ...root, ...schema, properties: others, required: required.filter((name) => name !== member) };
  return {
    member,
    label: own.title ?? member,
    schema: own,
    values: ofMember,
    rest: Object.keys(others).length === 0 ? null : rest,
  };
}

function pressedIn(schema: Schema): readonly unknown[] | undefined {
  const field = fieldOf(schema);
  if (field.is === "boolean") return [true, false];
  const isShort =
    field.is === "choice" &&
    field.values.length <= MOST_PRESSES &&
    field.values.every((one) => typeof one === "string");
  return isShort ? field.values : undefined;
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
