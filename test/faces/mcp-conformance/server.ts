import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { AgentContext } from "cadenza";
import { AgentError, AgentRuntime, defineAgent } from "cadenza";
import { createMcpNodeListener } from "cadenza/mcp";
import * as z from "zod";

/*
 * The tools that the official conformance runner calls, as agents. It prints its address, and serves until its input is
 * closed.
 */

const nothing = z.object({});
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const image = { name: "pixel.png", content_type: "image/png", content: PIXEL, content_encoding: "base64" } as const;
const blob = {
  name: "resource",
  content_type: "application/octet-stream",
  content: "aGk=",
  content_encoding: "base64",
} as const;
const named = z.object({ name: z.string() });

const schema2020 = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  $defs: {
    address: {
      $anchor: "addressDef",
      type: "object",
      properties: { street: { type: "string" }, city: { type: "string" } },
    },
  },
  properties: {
    name: { type: "string" },
    address: { $ref: "#/$defs/address" },
    contactMethod: { type: "string", enum: ["phone", "email"] },
    phone: { type: "string" },
    email: { type: "string" },
  },
  allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
  if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
  // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
  then: { required: ["phone"] },
  else: { required: ["email"] },
  additionalProperties: false,
};

/** Registers an agent that takes no arguments. */
function tool(name: string, call: (context: AgentContext) => unknown): void {
  const options = { input: nothing, description: `The conformance tool ${name}.` };
  runtime.register(defineAgent(name, options).run(((_: unknown, context: AgentContext) => call(context)) as never));
}

const runtime = new AgentRuntime();
tool("test_simple_text", () => "This is a simple text response for testing.");
tool("test_image_content", () => image);
tool("test_audio_content", () => ({ ...image, name: "silence.wav", content_type: "audio/wav" }));
tool("test_embedded_resource", () => blob);
tool("test_multiple_content_types", async function* () {
  yield "Multiple content types test:";
  yield image;
  yield blob;
});
tool("test_error_handling", () => {
  throw new AgentError("declared", "This tool intentionally returns an error for testing");
});
tool("test_tool_with_progress", async ({ emit }) => {
  for (const progress of [1, 50, 100]) await emit({ progress, total: 100 } as never);
  return "Done.";
});
tool("test_elicitation", ({ ask }) =>
  asked(ask, "Please answer", z.object({ username: z.string(), email: z.string() })),
);
tool("test_elicitation_sep1034_defaults", ({ ask }) =>
  asked(
    ask,
    "Please check",
    z.object({
      name: z.string().default("John Doe"),
      age: z.int().default(30),
      score: z.number().default(95.5),
      status: z.enum(["active", "inactive", "pending"]).default("active"),
      verified: z.boolean().default(true),
    }),
  ),
);
tool("test_elicitation_sep1330_enums", ({ ask }) => {
  const options = ["option1", "option2", "option3"] as const;
  const values = ["value1", "value2", "value3"] as const;
  const titled = values.map((value, index) => ({ const: value, title: `Option ${index + 1}` }));
  const legacy = ["opt1", "opt2", "opt3"] as const;
  return asked(
    ask,
    "Please choose",
    withJsonSchema(
      z.object({
        untitledSingle: z.enum(options),
        titledSingle: z.enum(values),
        legacyEnum: z.enum(legacy),
        untitledMulti: z.array(z.enum(options)),
        titledMulti: z.array(z.enum(values)),
      }),
      {
        type: "object",
        properties: {
          untitledSingle: { type: "string", enum: options },
          titledSingle: { type: "string", oneOf: titled },
          legacyEnum: { type: "string", enum: legacy, enumNames: ["Option One", "Option Two", "Option Three"] },
          untitledMulti: { type: "array", items: { type: "string", enum: options } },
          titledMulti: { type: "array", items: { anyOf: titled } },
        },
      },
    ),
  );
});
tool("test_input_required_result_elicitation", async ({ ask }) => {
  const { name } = (await ask("What is your name?", { name: "user_name", schema: named })) as { name: string };
  return `Hello, ${name}!`;
});
tool("test_input_required_result_request_state", async ({ ask }) => {
  await ask("Please confirm", { name: "confirm", schema: z.object({ ok: z.boolean() }) });
  return "state-ok";
});
tool("test_input_required_result_tampered_state", async ({ ask }) => {
  await ask("Please confirm", { name: "confirm", schema: z.object({ ok: z.boolean() }) });
  return "state-ok";
});
tool("test_input_required_result_multi_round", async ({ ask }) => {
  const { name } = (await ask("Step 1: What is your name?", { name: "step1", schema: named })) as { name: string };
  const schema = z.object({ color: z.string() });
  const { color } = (await ask("Step 2: What is your favorite color?", { name: "step2", schema })) as { color: string };
  return `${name} likes ${color}.`;
});
tool("test_input_required_result_capabilities", async ({ ask }) => {
  const { name } = (await ask("What is your name?", { name: "user_name", schema: named })) as { name: string };
  return `Hello, ${name}!`;
});
tool("test_streaming_elicitation", async function* ({ ask }) {
  yield "Asking.";
  yield await asked(ask, "What is your name?", named);
});
tool("test_logging_tool", () => "Done.");
tool("test_missing_capability", async ({ ask }) => asked(ask, "Needs a form", named));

runtime.register(
  defineAgent("greet", { input: named, description: "Greets." }).run(({ name }) => `Hello, ${name}!`),
  defineAgent("slow_compute", { input: z.object({ seconds: z.number().default(1) }) }).run(
    async ({ seconds }, { sleep }) => {
      if (seconds > 0) await sleep(seconds * 1_000);
      return "Computed.";
    },
  ),
  defineAgent("failing_job", { input: z.looseObject({}) }).run(() => {
    throw new AgentError("declared", "The job has failed.");
  }),
  defineAgent("protocol_error_job", { input: z.looseObject({}) }).run(() => {
    throw new Error("broken");
  }),
  defineAgent("confirm_delete", { input: z.looseObject({}) }).run(async (_input, { ask }) => {
    const schema = z.object({ confirm: z.boolean() });
    const { confirm } = await ask("Delete?", { name: "confirm", schema });
    return confirm ? "Deleted." : "Kept.";
  }),
  defineAgent("multi_input", { input: z.looseObject({}) }).run(async (_input, { ask }) => {
    const answers = await Promise.all([
      ask("Your name?", { name: "name", schema: named }),
      ask("Your name at work?", { name: "alias", schema: named }),
    ]);
    return JSON.stringify(answers);
  }),
  defineAgent("test_tool_with_task", { input: z.looseObject({}) }).run(async (_input, { ask }) => {
    const { name } = await ask("What is your name?", { name: "user_name", schema: named });
    return `Hello, ${name}!`;
  }),
);

async function asked(ask: AgentContext["ask"], question: string, schema: z.ZodType): Promise<string> {
  return `Elicitation completed: action=accept, content=${JSON.stringify(await ask(question, { schema } as never))}`;
}

/** A schema that says another JSON Schema of itself. */
function withJsonSchema(schema: z.ZodType, described: object): z.ZodType {
  const standard = { ...schema["~standard"], jsonSchema: { input: () => described, output: () => described } };
  return { "~standard": standard } as never;
}

runtime.register(
  defineAgent("json_schema_2020_12_tool", {
    input: withJsonSchema(z.looseObject({}), schema2020),
    description: "A schema.",
  }).run(() => "Done."),
);

runtime.register(
  defineAgent("test_header", { input: z.object({ region: z.string().meta({ "x-mcp-header": "Region" }) }) }).run(
    ({ region }) => region,
  ),
);

const listener = createMcpNodeListener(runtime, {
  basePath: "/mcp",
  allowedHosts: ["localhost", "127.0.0.1"],
  tasks: {
    slow_compute: "optional",
    failing_job: "required",
    protocol_error_job: "optional",
    confirm_delete: "optional",
    multi_input: "optional",
    test_tool_with_task: "answered",
  },
  pollIntervalMs: 100,
});
const server = createServer(listener);
server.listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => {
  process.stdout.write(`http://localhost:${(server.address() as AddressInfo).port}/mcp\n`);
});
