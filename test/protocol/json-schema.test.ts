import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import * as z from "zod";
import { agentManifestSchema } from "../../src/protocol/agent.ts";
import { eventSchema } from "../../src/protocol/event.ts";
import { protocolRegistry } from "../../src/protocol/registry.ts";
import { runCreateRequestSchema, runResumeRequestSchema } from "../../src/protocol/requests.ts";
import { sessionDescriptorSchema } from "../../src/protocol/session.ts";
import { event, manifest, runCreateRequest, runResumeRequest, sessionDescriptor } from "./arbitraries.ts";

const options = { io: "input", metadata: protocolRegistry } as const;
const components: Record<string, z.core.JSONSchema.BaseSchema> = z.toJSONSchema(protocolRegistry, options).schemas;

describe("the JSON Schema of the protocol", () => {
  it("has a component for each resource", () => {
    expect(Object.keys(components).sort()).toEqual(
      [
        ...["AgentDependency", "AgentManifest", "AgentName", "AgentsListResponse", "Annotations", "AwaitRequest"],
        ...["AwaitResume", "Capability", "CitationMetadata", "Error", "ErrorEvent", "Event", "GenericEvent", "Link"],
        ...["Message", "MessageCompletedEvent", "MessageCreatedEvent", "MessagePart", "MessagePartEvent", "Metadata"],
        ...["Person", "PostedSession", "Run", "RunAwaitingEvent", "RunCancelledEvent", "RunCompletedEvent"],
        ...["RunCreateRequest", "RunCreatedEvent", "RunEventsListResponse", "RunFailedEvent", "RunId"],
        ...["RunInProgressEvent", "RunMode", "RunResumeRequest", "RunStatus", "RunsListResponse", "Session"],
        ...["SessionId", "Status", "TrajectoryMetadata"],
      ].sort(),
    );
  });

  it("says what may be left out, and the defaults", () => {
    const part = components["MessagePart"];
    expect(part?.required).toBeUndefined();
    expect(part?.properties?.["content_type"]).toMatchObject({ default: "text/plain" });
    expect(components["Message"]?.required).toEqual(["parts"]);
    expect(components["Message"]?.properties?.["created_at"]).toMatchObject({ anyOf: [{ format: "date-time" }, {}] });
    expect(components["RunCreateRequest"]?.required).toEqual(["agent_name", "input"]);
    expect(components["RunResumeRequest"]?.required).toEqual(["await_resume"]);
    expect(components["AwaitResume"]?.type).toBe("object");
    expect(components["RunId"]).toMatchObject({ type: "string", format: "uuid" });
    expect(components["Metadata"]?.properties).toHaveProperty("recommended_models");
    expect(Object.keys(components["Metadata"]?.properties ?? {})).toHaveLength(16);
  });

  it.each([
    ["Event", eventSchema, event],
    ["AgentManifest", agentManifestSchema, manifest],
    ["RunCreateRequest", runCreateRequestSchema, runCreateRequest],
    ["RunResumeRequest", runResumeRequestSchema, runResumeRequest],
    ["Session", sessionDescriptorSchema, sessionDescriptor],
  ] as const)("describes what is read and what is written as %s", (_name, schema, arbitrary) => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    const validate = ajv.compile(z.toJSONSchema(schema, options));
    fc.assert(
      fc.property(arbitrary, (written) => {
        for (const value of [written, schema.parse(written)]) {
          validate(value);
          expect(validate.errors ?? []).toEqual([]);
        }
      }),
    );
  });

  it("stays out of zod's global registry", () => {
    expect(z.toJSONSchema(z.globalRegistry).schemas).toEqual({});
  });

  it("has its names once, also if the module is there twice", async () => {
    vi.resetModules();
    const copy = await import("../../src/protocol/requests.ts");
    expect(copy.runCreateRequestSchema).not.toBe(runCreateRequestSchema);
    expect(z.toJSONSchema(copy.runCreateRequestSchema, { io: "input" })).toMatchObject({ type: "object" });
  });
});
