import * as z from "zod";
import { detailedEventsSchema, messageReceiptSchema, runDeclineRequestSchema, runDetailsSchema } from "./extensions.ts";
import type { JsonObject, JsonValue } from "./json.ts";
import { isJsonObject } from "./json.ts";
import { componentRef, GIVEN, protocolRegistry } from "./registry.ts";
import { runCreateRequestSchema } from "./requests.ts";

/** The components that clients send. Those inside them are found by reference. */
const inputs = ["RunCreateRequest", "RunResumeRequest"];
/** The components that the service sends. Those inside them are found by reference. */
const outputs = ["AgentsListResponse", "RunsListResponse", "RunEventsListResponse", "Session", "Error"];
/** The components that are not part of ACP. */
const extensions = {
  inputs: ["RunDeclineRequest"],
  outputs: ["RunDetails", "RunDetailedEventsListResponse", "MessageReceipt"],
};

/**
 * The JSON Schema (2020-12) of everything that is sent and received, by component name, made from the schemas that read
 * it. What a client may leave out or send as null is always present, or never null, in what the service sends. A
 * component that differs in this way between requests and answers exists twice: `Message` is in answers, `MessageInput`
 * in requests. `extended` adds the components that are not part of ACP.
 */
export function componentSchemas(extended = false): Readonly<Record<string, JsonObject>> {
  const all = readSchemas();
  const sent = reachable(all, extended ? [...inputs, ...extensions.inputs] : inputs);
  const given = reachable(all, extended ? [...outputs, ...extensions.outputs] : outputs);
  const differing = new Set([...sent].filter((name) => given.has(name) && differs(all, name)));
  const inputName = (name: string): string => (differing.has(name) ? `${name}Input` : name);
  return Object.fromEntries([
    ...[...given].map((name) => [name, asGiven(schemaOf(all, name))] as const),
    ...[...sent].map((name) => [inputName(name), asSent(schemaOf(all, name), inputName)] as const),
  ]);
}

type Schemas = ReadonlyMap<string, JsonObject>;

/** All components as they are read, with the keyword `GIVEN`. */
function readSchemas(): Schemas {
  // Schemas are built on first use. This uses all of them.
  const all = [runCreateRequestSchema, runDeclineRequestSchema, runDetailsSchema, messageReceiptSchema];
  for (const schema of [...all, detailedEventsSchema])
    z.toJSONSchema(schema, { io: "input", metadata: protocolRegistry });
  const { schemas } = z.toJSONSchema(protocolRegistry, { io: "input", metadata: protocolRegistry, uri: componentRef });
  // In OpenAPI the place of a component is its id.
  return new Map(Object.entries(schemas).map(([id, { $id: _, $schema: __, ...schema }]) => [id, schema as JsonObject]));
}

function schemaOf(all: Schemas, name: string): JsonObject {
  const schema = all.get(name);
  if (schema === undefined) throw new TypeError(`There is no component ${name}.`);
  return schema;
}

/** Components, and all that they refer to. */
function reachable(all: Schemas, names: readonly string[]): ReadonlySet<string> {
  const found = new Set(names);
  for (const name of found) {
    const references = JSON.stringify(schemaOf(all, name)).matchAll(/"\$ref":"[^"]*\/(\w+)"/g);
    for (const [, reference = ""] of references) found.add(reference);
  }
  return found;
}

/** Whether a component, or one that it refers to, differs between requests and answers. */
function differs(all: Schemas, name: string): boolean {
  return [...reachable(all, [name])].some((part) => {
    const schema = schemaOf(all, part);
    return JSON.stringify(asGiven(schema)) !== JSON.stringify(asSent(schema, (id) => id));
  });
}

function asSent(schema: JsonObject, nameOf: (id: string) => string): JsonObject {
  return mapped(schema, ({ [GIVEN]: _, ...rest }) => {
    const { $ref } = rest;
    return typeof $ref === "string" ? { ...rest, $ref: componentRef(nameOf($ref.replace(/^.*\//, ""))) } : rest;
  });
}

function asGiven(schema: JsonObject): JsonObject {
  return mapped(schema, ({ [GIVEN]: _, default: __, ...rest }) => {
    const { properties, required = [] } = rest;
    if (!isJsonObject(properties)) return rest;
    const isGiven = ([, property]: [string, JsonValue]) => isJsonObject(property) && property[GIVEN] !== undefined;
    const names = [
      ...(required as readonly string[]),
      ...Object.entries(properties)
        .filter(isGiven)
        .map(([name]) => name),
    ];
    return {
      ...rest,
      properties: mapValues(properties, withoutNull),
      ...(names.length > 0 && { required: names }),
    };
  });
}

/** The schema of a property without null, unless null has a meaning in what the service sends. */
function withoutNull(property: JsonObject): JsonObject {
  const { type, anyOf, ...rest } = property;
  if (property[GIVEN] === "or-null") return property;
  if (Array.isArray(type)) {
    const [first = "null", ...others] = type.filter((name) => name !== "null");
    return { ...property, type: others.length === 0 ? first : [first, ...others] };
  }
  if (!Array.isArray(anyOf)) return property;
  const [first, ...others] = anyOf.filter((one: JsonObject) => one["type"] !== "null");
  return others.length === 0 ? { ...rest, ...first } : { ...rest, anyOf: [first, ...others] };
}

/** A copy of a schema in which it, and then each schema in it, has been changed. */
function mapped(schema: JsonObject, change: (schema: JsonObject) => JsonObject): JsonObject {
  const inner = (value: JsonValue): JsonValue => (isJsonObject(value) ? mapped(value, change) : value);
  const changed = Object.entries(change(schema)).map(([keyword, value]) => {
    if (keyword === "properties" && isJsonObject(value))
      return [keyword, mapValues(value, (one) => mapped(one, change))];
    return [keyword, Array.isArray(value) ? value.map(inner) : inner(value)];
  });
  return Object.fromEntries(changed) as JsonObject;
}

function mapValues(properties: JsonObject, change: (property: JsonObject) => JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(properties).map(([name, property]) => [name, change(property as JsonObject)]),
  );
}
