import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { Client } from "./client.ts";
import { inProcess } from "./mounts.ts";
import { extendedOpenApi, openApi } from "./openapi-check.ts";
import { makeWorld } from "./world.ts";

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly tags: readonly string[];
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly schema: object;
  }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<Record<string, { readonly description: string }>>;
}

interface Component {
  readonly properties: Readonly<Record<string, object>>;
  readonly required?: readonly string[];
}

/** The properties of a component that may be null. */
function nullable(component: Component | undefined): readonly string[] {
  return Object.entries(component?.properties ?? {})
    .filter(([, property]) => JSON.stringify(property).includes('"null"'))
    .map(([name]) => name);
}

interface Document {
  readonly openapi: string;
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

describe.each([
  { extensions: false, given: openApi, count: 13 },
  { extensions: true, given: extendedOpenApi, count: 15 },
])("the OpenAPI document, extensions $extensions", ({ extensions, given, count }) => {
  const document = given as unknown as Document;
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );

  it("has the required fields of OpenAPI 3.1", () => {
    expect(document.openapi).toMatch(/^3\.1\.\d$/);
    expect(document.info).toMatchObject({ title: expect.any(String), version: expect.any(String) });
    expect(new Set(operations.map(({ operation }) => operation.operationId)).size).toBe(operations.length);
    for (const { operation } of operations) {
      for (const [status, response] of Object.entries(operation.responses)) {
        expect(status).toMatch(/^([1-5]\d\d|default)$/);
        expect(response.description).not.toBe("");
      }
    }
  });

  it("declares every name in a path, and no other", () => {
    for (const { path, operation } of operations) {
      const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === "path");
      expect(declared.map(({ name }) => `{${name}}`)).toEqual(path.match(/\{\w+\}/g) ?? []);
      for (const { required } of declared) expect(required).toBe(true);
    }
  });

  it("has no broken references", () => {
    const references = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map(
      ([, reference]) => reference ?? "",
    );
    expect(references.length).toBeGreaterThan(30);
    for (const reference of references)
      expect(document.components.schemas).toHaveProperty(reference.split("/").at(-1) ?? "");
    for (const reference of references) expect(reference).toMatch(/^#\/components\/schemas\/\w+$/);
  });

  it("has schemas that are JSON Schema 2020-12", () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    for (const [name, schema] of Object.entries(document.components.schemas)) {
      expect(ajv.validateSchema(schema), name).toBe(true);
      expect(name).toMatch(/^[A-Za-z0-9._-]+$/);
      expect(schema).not.toHaveProperty("$id");
    }
  });

  it("has every key that is always present as required, and null only where the service gives null", () => {
    const { Run, AgentManifest, Message, MessagePart } = document.components.schemas as Record<string, Component>;
    expect(Object.keys(Run?.properties ?? {}).sort()).toEqual([...(Run?.required ?? [])].sort());
    expect(nullable(Run)).toEqual(["await_request", "error", "finished_at"]);
    expect(AgentManifest?.required).toEqual(["name", "description", "input_content_types", "output_content_types"]);
    expect(nullable(AgentManifest)).toEqual([]);
    expect([...(Message?.required ?? [])].sort()).toEqual(["completed_at", "created_at", "parts", "role"]);
    expect(nullable(Message)).toEqual(["completed_at"]);
    expect(MessagePart?.required).toEqual(["content_type", "content_encoding"]);
    expect(nullable(MessagePart)).toEqual([]);
  });

  it("lets clients leave out keys with a default, and send null for them", () => {
    const { RunCreateRequest, MessageInput, MessagePartInput } = document.components.schemas as Record<
      string,
      Component
    >;
    expect(RunCreateRequest?.required).toEqual(["agent_name", "input"]);
    expect(nullable(RunCreateRequest)).toEqual(["session_id", "session", "mode"]);
    expect(MessageInput?.required).toEqual(["parts"]);
    expect(MessagePartInput?.required).toBeUndefined();
    expect(MessagePartInput?.properties["content_type"]).toMatchObject({ default: "text/plain" });
  });

  it("has a component twice only where requests and answers differ", () => {
    const names = Object.keys(document.components.schemas);
    const twice = names.filter((name) => names.includes(`${name}Input`));
    expect(twice.sort()).toEqual(["CitationMetadata", "Message", "MessagePart", "TrajectoryMetadata"]);
    expect(JSON.stringify(document)).not.toContain("x-given");
  });

  it("has every endpoint of the service, and no other", async () => {
    const client = new Client(await inProcess.open(makeWorld(), { extensions }));
    for (const { path, method } of operations) {
      const real = path
        .replace(/\{(message_)?name\}/, "missing")
        .replace(/\{\w+\}/, "11111111-1111-4111-8111-111111111111");
      const reply = await client.send(method.toUpperCase(), real, {
        headers: { "content-type": "application/json" },
        body: method === "post" ? {} : undefined,
      });
      expect(reply.text).not.toMatch(/path_not_found|method_not_allowed/);
    }
    expect(operations).toHaveLength(count);
  });

  it("has the URL of the service", async () => {
    const servers = async (options: object, below = "") => {
      const place = await inProcess.open(makeWorld(), options);
      return (await new Client({ ...place, base: place.base + below }).get("/openapi.json")).json["servers"];
    };
    expect(await servers({})).toEqual([{ url: "/" }]);
    expect(await servers({ basePath: "acp/" }, "/acp")).toEqual([{ url: "/acp" }]);
    expect(await servers({ baseUrl: "https://a.example/b/" })).toEqual([{ url: "https://a.example/b" }]);
  });
});
