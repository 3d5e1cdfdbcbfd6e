import * as z from "zod";
import type { OmitAbsent } from "./absent.ts";
import { omitAbsent, withDefault } from "./absent.ts";
import type { DeepReadonly } from "./json.ts";
import { listOf } from "./json.ts";
import { deferred } from "./registry.ts";
import { timestampSchema } from "./timestamp.ts";
import { absoluteUrlSchema } from "./url.ts";

/** Name of an agent: 1 to 63 letters, digits, `_` or `-`, which is what the role `agent/<name>` can carry. */
export const agentNameSchema: z.ZodType<string, string> = deferred(
  { id: "AgentName", description: "Unique name of an agent." },
  () => z.string().regex(/^[A-Za-z0-9_-]{1,63}$/, "expected 1 to 63 letters, digits, _ or -"),
);

const personObject = deferred({ id: "Person", description: "An author or contributor." }, () =>
  z
    .object({ name: z.string(), email: z.string().nullish(), url: absoluteUrlSchema.nullish() })
    .transform(omitAbsent("email", "url")),
);

const linkObject = deferred({ id: "Link", description: "Where more about the agent is found." }, () =>
  z.object({
    type: z.enum(["source-code", "container-image", "homepage", "documentation"]),
    url: absoluteUrlSchema,
  }),
);

const dependencyObject = deferred(
  { id: "AgentDependency", description: "Another agent, a tool or a model that the agent needs." },
  () => z.object({ type: z.enum(["agent", "tool", "model"]), name: z.string() }),
);

const capabilityObject = deferred({ id: "Capability", description: "Something that the agent can do." }, () =>
  z.object({ name: z.string(), description: z.string() }),
);

const annotationsObject = deferred(
  { id: "Annotations", description: "Free-form, but for `beeai_ui`, whose form the clients check." },
  () =>
    z
      .looseObject({
        /** How the BeeAI platform shows the agent. */
        beeai_ui: z
          .looseObject({
            ui_type: z.enum(["chat", "hands-off"]),
            user_greeting: z.string().nullish(),
            display_name: z.string().nullish(),
            tools: z
              .array(
                z
                  .looseObject({ name: z.string(), description: z.string().nullish() })
                  .transform(omitAbsent("description")),
              )
              .nullish(),
          })
          .transform(omitAbsent("user_greeting", "display_name", "tools"))
          .nullish(),
      })
      .transform(omitAbsent("beeai_ui")),
);

/** An author or contributor (ACP 1.0). */
export interface Person extends Readonly<z.output<typeof personObject>> {}

/** Where more about the agent is found (ACP 1.0). */
export interface Link extends Readonly<z.output<typeof linkObject>> {}

/** Something that the agent needs (ACP 1.0). */
export interface AgentDependency extends Readonly<z.output<typeof dependencyObject>> {}

/** Something that the agent can do (ACP 1.0). */
export interface Capability extends Readonly<z.output<typeof capabilityObject>> {}

/** Free-form notes on an agent (ACP 1.0); the form of `beeai_ui` is that of ACP 1.0. */
export interface Annotations extends DeepReadonly<z.output<typeof annotationsObject>> {}

const annotationsSchema: z.ZodType<Annotations, z.input<typeof annotationsObject>> = annotationsObject;
const personSchema: z.ZodType<Person, z.input<typeof personObject>> = personObject;
const linkSchema: z.ZodType<Link, Link> = linkObject;
const dependencySchema: z.ZodType<AgentDependency, AgentDependency> = dependencyObject;
const capabilitySchema: z.ZodType<Capability, Capability> = capabilityObject;

function metadataShape() {
  const texts = listOf(z.string()).nullish();
  return {
    annotations: annotationsSchema.nullish(),
    /** Full documentation in Markdown. */
    documentation: z.string().nullish(),
    /** SPDX identifier. */
    license: z.string().nullish(),
    programming_language: z.string().nullish(),
    /** ISO 639-1 codes. */
    natural_languages: texts,
    framework: z.string().nullish(),
    capabilities: listOf(capabilitySchema).nullish(),
    domains: texts,
    tags: texts,
    /** In UTC, ending in `Z`. */
    created_at: timestampSchema.nullish(),
    /** In UTC, ending in `Z`. */
    updated_at: timestampSchema.nullish(),
    author: personSchema.nullish(),
    contributors: listOf(personSchema).nullish(),
    links: listOf(linkSchema).nullish(),
    dependencies: listOf(dependencySchema).nullish(),
    recommended_models: texts,
  };
}

type MetadataObject = z.ZodObject<ReturnType<typeof metadataShape>>;
type MetadataField = keyof ReturnType<typeof metadataShape>;

/** What an agent says of itself (ACP 1.0). All fields are optional. */
export interface Metadata extends Readonly<OmitAbsent<z.output<MetadataObject>, MetadataField>> {}

/**
 * Reads {@link Metadata}. Further keys are kept. The type does not name them, so that the compiler finds misspelt keys.
 */
export const metadataSchema: z.ZodType<Metadata, z.input<MetadataObject>> = deferred(
  { id: "Metadata", description: "What an agent says of itself." },
  () => {
    const shape = metadataShape();
    return z.looseObject(shape).transform(omitAbsent(...(Object.keys(shape) as MetadataField[])));
  },
);

const statusObject = deferred({ id: "Status", description: "Figures on the past runs of an agent." }, () =>
  z
    .object({
      /** Over the runs that reported their usage. */
      avg_run_tokens: z.number().min(0).nullish(),
      /** Without the time spent waiting for answers. */
      avg_run_time_seconds: z.number().min(0).nullish(),
      /** Percentage, 0 to 100. */
      success_rate: z.number().min(0).max(100).nullish(),
    })
    .transform(omitAbsent("avg_run_tokens", "avg_run_time_seconds", "success_rate")),
);

/** Figures on the past runs of an agent (ACP 1.0). A figure is absent until there is one. */
export interface AgentStatus extends Readonly<z.output<typeof statusObject>> {}

/** Reads an {@link AgentStatus}. */
export const agentStatusSchema: z.ZodType<AgentStatus, z.input<typeof statusObject>> = statusObject;

const manifestObject = deferred({ id: "AgentManifest", description: "The description of an agent." }, () => {
  const contentTypes: z.ZodType<readonly string[], readonly string[]> = z
    .array(z.string())
    .min(1, "expected at least one content type");
  return z
    .object({
      name: agentNameSchema,
      /** Default: empty. */
      description: withDefault(z.string(), ""),
      /** Media types that the agent reads; default: all. */
      input_content_types: withDefault(contentTypes, ["*/*"]),
      /** Media types that the agent writes; default: all. */
      output_content_types: withDefault(contentTypes, ["*/*"]),
      metadata: metadataSchema.nullish(),
      status: agentStatusSchema.nullish(),
    })
    .transform(omitAbsent("metadata", "status"));
});

/** The description of an agent (ACP 1.0). */
export interface AgentManifest extends Readonly<z.output<typeof manifestObject>> {}

/** Reads an {@link AgentManifest}. Defaults: an empty description, and content types that stand for all media types. */
export const agentManifestSchema: z.ZodType<AgentManifest, z.input<typeof manifestObject>> = manifestObject;
