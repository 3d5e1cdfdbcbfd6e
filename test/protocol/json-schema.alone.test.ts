import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import * as z from "zod";
import { agentManifestSchema } from "../../src/protocol/agent.ts";
import { eventSchema } from "../../src/protocol/event.ts";
import { componentSchemas } from "../../src/protocol/json-schema.ts";
import { runCreateRequestSchema, runResumeRequestSchema } from "../../src/protocol/requests.ts";
import { sessionDescriptorSchema } from "../../src/protocol/session.ts";
import { event, manifest, runCreateRequest, runResumeRequest, sessionDescriptor } from "./arbitraries.ts";

/* In a process of its own: it loads modules again. */

const components = componentSchemas();
const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema({ $id: "protocol", components: { schemas: components } });

function checkFits(component: string, value: unknown): void {
  ajv.validate({ $ref: `protocol#/components/schemas/${component}` }, value);
  expect(ajv.errors ?? []).toEqual([]);
}

describe("the JSON Schema of the protocol", () => {
  it("has a component for each resource, and two where requests and answers differ", () => {
    expect(Object.keys(components).sort()).toEqual(
      [
        ...["AgentDependency", "AgentManifest", "AgentName", "AgentsListResponse", "Annotations", "AwaitRequest"],
        ...["AwaitResume", "Capability", "CitationMetadata", "CitationMetadataInput", "Error", "ErrorEvent", "Event"],
        ...["GenericEvent", "Link", "Message", "MessageCompletedEvent", "MessageCreatedEvent", "MessageInput"],
        ...["MessagePart", "MessagePartEvent", "MessagePartInput", "MessageResume", "Metadata", "Person"],
        ...["PostedSession", "Run", "RunAwaitingEvent", "RunCancelledEvent", "RunCompletedEvent", "RunCreateRequest"],
        ...["RunCreatedEvent", "RunEventsListResponse", "RunFailedEvent", "RunId", "RunInProgressEvent", "RunMode"],
        ...["RunResumeRequest", "RunStatus", "RunsListResponse", "Session", "SessionId", "Status", "Timestamp"],
        ...["TrajectoryMetadata", "TrajectoryMetadataInput"],
      ].sort(),
    );
  });

  it("has the format of identifiers and times", () => {
    expect(components["RunId"]).toMatchObject({ type: "string", format: "uuid", pattern: expect.any(String) });
    expect(components["Timestamp"]).toMatchObject({ type: "string", format: "date-time", pattern: expect.any(String) });
    expect(Object.keys((components["Metadata"]?.["properties"] ?? {}) as object)).toHaveLength(16);
  });

  it.each([
    ["RunCreateRequest", runCreateRequestSchema, runCreateRequest],
    ["RunResumeRequest", runResumeRequestSchema, runResumeRequest],
  ] as const)("describes what clients send as %s, and its parsed form", (name, schema, arbitrary) => {
    fc.assert(
      fc.property(arbitrary, (written) => {
        checkFits(name, written);
        checkFits(name, schema.parse(written));
      }),
    );
  });

  it.each([
    ["Event", eventSchema, event],
    ["AgentManifest", agentManifestSchema, manifest],
    ["Session", sessionDescriptorSchema, sessionDescriptor],
  ] as const)("describes what the service gives as %s", (name, schema, arbitrary) => {
    fc.assert(fc.property(arbitrary, (written) => checkFits(name, schema.parse(written))));
  });

  it("stays out of zod's global registry", () => {
    expect(z.toJSONSchema(z.globalRegistry).schemas).toEqual({});
  });

  it("has its names once, also if the module is loaded twice", async () => {
    vi.resetModules();
    const copy = await import("../../src/protocol/requests.ts");
    expect(copy.runCreateRequestSchema).not.toBe(runCreateRequestSchema);
    expect(z.toJSONSchema(copy.runCreateRequestSchema, { io: "input" })).toMatchObject({ type: "object" });
  });
});
