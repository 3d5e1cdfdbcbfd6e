import type { AgentManifest } from "cadenza";
import fc from "fast-check";
import { describe, expect, expectTypeOf, it } from "vitest";
import type { Capability } from "../../src/protocol/agent.ts";
import { agentManifestSchema, agentNameSchema, agentStatusSchema, metadataSchema } from "../../src/protocol/agent.ts";
import type { AgentStatus, Metadata } from "../harness/internals.ts";
import { manifest, metadata } from "./arbitraries.ts";
import { changed, itAccepts, itRefuses } from "./tables.ts";

describe("the name of an agent", () => {
  itAccepts(agentNameSchema, [
    ["lower case", "echo"],
    ["underscores", "slow_echo"],
    ["dashes, digits and upper case", "Echo-2"],
    ["63 characters", "a".repeat(63)],
  ]);
  itRefuses(agentNameSchema, [
    ["an empty name", "", []],
    ["64 characters", "a".repeat(64), []],
    ["a dot", "a.b", []],
    ["a space", "a b", []],
    ["a slash", "a/b", []],
    ["an umlaut", "zürich", []],
    ["a line break at the end", "echo\n", []],
    ["null", null, []],
  ]);
});

describe("the figures of an agent", () => {
  const figures = { avg_run_tokens: 0, avg_run_time_seconds: 0.25, success_rate: 100 };

  itAccepts(agentStatusSchema, [
    ["no figure", {}],
    ["all figures", figures],
    ["null for a figure", { ...figures, avg_run_tokens: null }, { avg_run_time_seconds: 0.25, success_rate: 100 }],
    ["unknown keys, which are dropped", { ...figures, runs: 3 }, figures],
  ]);
  itRefuses(agentStatusSchema, [
    ["a negative count", { avg_run_tokens: -1 }, ["avg_run_tokens"]],
    ["a negative time", { avg_run_time_seconds: -0.1 }, ["avg_run_time_seconds"]],
    ["more than a hundred percent", { success_rate: 100.1 }, ["success_rate"]],
    ["a figure that is no number", { success_rate: Number.NaN }, ["success_rate"]],
    ["an infinite figure", { avg_run_tokens: Number.POSITIVE_INFINITY }, ["avg_run_tokens"]],
  ]);
});

describe("the manifest of an agent", () => {
  const least = { name: "echo", description: "", input_content_types: ["*/*"], output_content_types: ["*/*"] };

  itAccepts(agentManifestSchema, [
    ["a name alone", { name: "echo" }, least],
    [
      "null for everything else",
      {
        name: "echo",
        description: null,
        input_content_types: null,
        output_content_types: null,
        metadata: null,
        status: null,
      },
      least,
    ],
    ["everything", { ...least, metadata: { license: "MIT" }, status: { success_rate: 50 } }],
    ["unknown keys, which are dropped", { ...least, version: "1" }, least],
  ]);
  itRefuses(agentManifestSchema, [
    ["no name", {}, ["name"]],
    ["no input types", changed(least, { input_content_types: [] }), ["input_content_types"]],
    ["no output types", changed(least, { output_content_types: [] }), ["output_content_types"]],
    ["a single input type", changed(least, { input_content_types: "text/plain" }), ["input_content_types"]],
    ["metadata that is refused", changed(least, { metadata: { tags: 1 } }), ["metadata", "tags"]],
  ]);

  it("stays the same when it is parsed again", () => {
    fc.assert(
      fc.property(manifest, (written) => {
        const read = agentManifestSchema.parse(written);
        expect(agentManifestSchema.parse(read)).toStrictEqual(read);
      }),
    );
  });

  it("has types that are read-only", () => {
    expectTypeOf<AgentManifest["input_content_types"]>().toEqualTypeOf<readonly string[]>();
    expectTypeOf<AgentManifest["metadata"]>().toEqualTypeOf<Metadata | undefined>();
    expectTypeOf<AgentManifest>().toEqualTypeOf<Readonly<AgentManifest>>();
    expectTypeOf<{ success_rate: null }>().not.toExtend<AgentStatus>();
  });
});

const complete = {
  annotations: { team: "travel", nested: { a: null } },
  documentation: "# Booking",
  license: "Apache-2.0",
  programming_language: "TypeScript",
  natural_languages: ["en", "de"],
  framework: "Cadenza",
  capabilities: [{ name: "Booking", description: "Books trains." }],
  domains: ["travel"],
  tags: ["Chat", "my-tag"],
  created_at: "2026-01-01T00:00:00Z",
  updated_at: "2026-01-31T12:00:00.123456Z",
  author: { name: "Ada", email: "ada@example.com", url: "https://example.com/ada" },
  contributors: [{ name: "Bob" }],
  links: [{ type: "source-code", url: "https://example.com/repository.git" }],
  dependencies: [{ type: "tool", name: "timetable" }],
  recommended_models: ["llama3.3"],
};

describe("metadata", () => {
  itAccepts(metadataSchema, [
    ["nothing", {}],
    ["all sixteen fields", complete],
    ["null for every field", Object.fromEntries(Object.keys(complete).map((key) => [key, null])), {}],
    ["unknown keys", { cost_center: 7, note: null }],
    ["a person with nulls", { author: { name: "Ada", email: null, url: null } }, { author: { name: "Ada" } }],
    ["an invalid e-mail address", { author: { name: "Ada", email: "ada at home" } }],
    ["each type of link", { links: ["source-code", "container-image", "homepage", "documentation"].map(linkTo) }],
    ["each type of dependency", { dependencies: ["agent", "tool", "model"].map((type) => ({ type, name: "x" })) }],
    [
      "hints for the user interface",
      { annotations: { beeai_ui: { ui_type: "chat", tools: [{ name: "search" }], color: 1 } } },
    ],
    [
      "nulls in hints for the user interface",
      {
        annotations: {
          beeai_ui: {
            ui_type: "hands-off",
            user_greeting: null,
            display_name: null,
            tools: [{ name: "a", description: null }],
          },
        },
      },
      { annotations: { beeai_ui: { ui_type: "hands-off", tools: [{ name: "a" }] } } },
    ],
    [
      "no hints for the user interface",
      { annotations: { beeai_ui: null, team: null } },
      { annotations: { team: null } },
    ],
  ]);

  itRefuses(metadataSchema, [
    ["null", null, []],
    ["a list", [], []],
    ["annotations in a list", { annotations: [] }, ["annotations"]],
    ["documentation that is no text", { documentation: 1 }, ["documentation"]],
    ["a single language", { natural_languages: "en" }, ["natural_languages"]],
    ["a tag that is no text", { tags: ["a", 1] }, ["tags", 1]],
    ["a capability without a description", { capabilities: [{ name: "a" }] }, ["capabilities", 0, "description"]],
    ["a creation time that is a day", { created_at: "2026-01-31" }, ["created_at"]],
    ["an update time that is only a date", { updated_at: "2026-01-31" }, ["updated_at"]],
    ["an author without a name", { author: { email: "a@b.c" } }, ["author", "name"]],
    ["an author with a relative URL", { author: { name: "Ada", url: "/ada" } }, ["author", "url"]],
    ["an unknown type of link", { links: [{ type: "blog", url: "https://a.b/" }] }, ["links", 0, "type"]],
    ["a relative link", { links: [{ type: "homepage", url: "a.b" }] }, ["links", 0, "url"]],
    ["an unknown type of dependency", { dependencies: [{ type: "database", name: "a" }] }, ["dependencies", 0, "type"]],
    [
      "an unknown user interface",
      { annotations: { beeai_ui: { ui_type: "form" } } },
      ["annotations", "beeai_ui", "ui_type"],
    ],
  ]);

  it("keeps every key, and stays the same when it is parsed again", () => {
    fc.assert(
      fc.property(metadata, (written) => {
        const read = metadataSchema.parse(written);
        expect(metadataSchema.parse(read)).toStrictEqual(read);
        const present = Object.keys(written).filter((key) => key === "x_unknown" || written[key] !== null);
        expect(Object.keys(read).sort()).toEqual(present.sort());
      }),
    );
  });

  it("has a type that is read-only and finds a misspelt field", () => {
    expectTypeOf<keyof Metadata>().toEqualTypeOf<keyof typeof complete>();
    expectTypeOf<Metadata["capabilities"]>().toEqualTypeOf<readonly Capability[] | undefined>();
    expectTypeOf<Metadata>().toEqualTypeOf<Readonly<Metadata>>();
    expectTypeOf<{ license: undefined }>().not.toExtend<Metadata>();
  });
});

function linkTo(type: string) {
  return { type, url: "https://example.com/" };
}
