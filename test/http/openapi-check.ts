import type { ValidateFunction } from "ajv/dist/2020.js";
import { Ajv2020 } from "ajv/dist/2020.js";
import { AgentRuntime } from "cadenza";
import type { AcpOptions } from "cadenza/http";
import { createAcpHandler } from "cadenza/http";
import { expect } from "vitest";

interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

interface Operation {
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Responses;
}

type Responses = Readonly<Record<string, { readonly content?: Readonly<Record<string, { readonly schema: object }>> }>>;

/** The OpenAPI document, as the service gives it. */
export const openApi = await documentOf({});

/** The document of a service with extensions. */
export const extendedOpenApi = await documentOf({ extensions: true });

const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema({ $id: "service", components: closed(extendedOpenApi.components) });
const compiled = new Map<string, ValidateFunction>();

async function documentOf(options: AcpOptions): Promise<OpenApi> {
  const handler = createAcpHandler(new AgentRuntime(), options);
  return (await (await handler(new Request("http://service/openapi.json"))).json()) as OpenApi;
}

/** The same schemas without additional keys, unless a schema allows them itself. */
function closed<T>(schema: T): T {
  if (typeof schema !== "object" || schema === null) return schema;
  if (Array.isArray(schema)) return schema.map(closed) as T;
  const inner = Object.entries(schema).map(([key, value]) => [key, key === "not" ? value : closed(value)]);
  const isOpen = !("properties" in schema) || "additionalProperties" in schema;
  return { ...(Object.fromEntries(inner) as T), ...(isOpen ? {} : { additionalProperties: false }) };
}

/** Checks that the OpenAPI document has this answer. */
export function checkResponse(
  method: string,
  path: string,
  status: number,
  headers: Headers,
  text: string,
  json: unknown,
  events: readonly { readonly data: unknown }[],
): void {
  expect(headers.get("x-content-type-options")).toBe("nosniff");
  const responses = responsesOf(method, path);
  const type = (headers.get("content-type") ?? "").split(";")[0] ?? "";
  if (responses === undefined || (status >= 400 && responses[status] === undefined)) {
    expect(status, text).toBeGreaterThanOrEqual(400);
    checkSchema({ $ref: "#/components/schemas/Error" }, json, text);
    return;
  }
  const response = responses[status];
  if (response !== undefined && response.content === undefined) {
    expect(text).toBe("");
    return;
  }
  const schema = response?.content?.[type]?.schema;
  expect(schema, `${method} ${path} gave ${status} ${type}: ${text.slice(0, 200)}`).toBeDefined();
  if (type === "text/event-stream")
    for (const { data } of events) checkSchema(schema ?? {}, data, JSON.stringify(data));
  else checkSchema(schema ?? {}, json, text);
}

function responsesOf(method: string, path: string): Responses | undefined {
  const wanted = (path.split("?")[0] ?? "").replace(/\/+$/, "").split("/");
  for (const [template, operations] of Object.entries(extendedOpenApi.paths)) {
    const segments = template.split("/");
    const fits =
      segments.length === wanted.length && segments.every((name, index) => name[0] === "{" || name === wanted[index]);
    if (fits) return operations[method.toLowerCase()]?.responses;
  }
  return undefined;
}

/** Checks a value against a schema that may refer to components of the document. */
export function checkSchema(schema: object, value: unknown, text: string): void {
  const key = JSON.stringify(schema);
  let validate = compiled.get(key);
  if (validate === undefined) {
    validate = ajv.compile(JSON.parse(key.replaceAll('"#/components', '"service#/components')) as object);
    compiled.set(key, validate);
  }
  validate(value);
  expect(validate.errors ?? [], text.slice(0, 500)).toEqual([]);
}
