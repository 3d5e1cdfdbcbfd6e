import { CadenzaError } from "../../core/errors.ts";
import type { AgentManifest } from "../../protocol/agent.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import { jsonPart } from "../../protocol/message.ts";
import { textPart } from "../chat/parts.ts";

/** The argument of an agent without a schema: what the user says. */
const MESSAGE = "message";
/** The argument that holds the input of an agent whose schema describes no object. */
const INPUT = "input";

const anyMessage = objectWith(MESSAGE, { type: "string", description: "What the agent is told." });

/** The tool that an agent is. `isModern`: whether its output may be of any type. */
export function toolOf(agent: AgentManifest, isModern: boolean): JsonObject {
  const { name, description, metadata } = agent;
  const title = metadata?.annotations?.beeai_ui?.display_name;
  const output = schemaIn(agent, "output");
  const isShown = output !== undefined && (isModern || isObjectSchema(output));
  return {
    name,
    ...(typeof title === "string" && { title }),
    description: description === "" ? `The agent ${name}.` : description,
    inputSchema: inputSchemaOf(agent),
    ...(isShown && { outputSchema: output }),
  };
}

/** The schema of the arguments of a tool. */
export function inputSchemaOf(agent: AgentManifest): JsonObject {
  const input = schemaIn(agent, "input");
  if (input === undefined) return anyMessage;
  return isObjectSchema(input) ? input : objectWith(INPUT, input);
}

/** The schema of an object with one field. */
export function objectWith(name: string, schema: JsonObject): JsonObject {
  return { type: "object", properties: { [name]: schema }, required: [name] };
}

/** The input of a run for the arguments of a call. Throws `invalid_input`. */
export function inputOf(agent: AgentManifest, values: JsonObject): MessagePart {
  const input = schemaIn(agent, "input");
  if (input !== undefined) return jsonPart(isObjectSchema(input) ? values : (values[INPUT] ?? null));
  const message = values[MESSAGE];
  if (typeof message === "string") return textPart(message);
  throw new CadenzaError("invalid_input", `${MESSAGE}: expected a string.`);
}

/** A schema that an agent declares, from its manifest. */
function schemaIn({ metadata }: AgentManifest, name: "input" | "output"): JsonObject | undefined {
  const schemas = metadata?.annotations?.["cadenza"];
  const schema = isJsonObject(schemas) ? schemas[name] : undefined;
  return isJsonObject(schema) ? schema : undefined;
}

function isObjectSchema({ type }: JsonObject): boolean {
  return type === "object";
}
