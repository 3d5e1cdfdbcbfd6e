import { exactJson } from "../../core/exact-json.ts";
import type { HttpOptions, HttpSettings } from "../../http/options.ts";
import { bad, checkKeys, MIB, readHttpOptions } from "../../http/options.ts";
import type { Call } from "../../http/service.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";

/** How agents are served over A2A. Every property may be left out. */
export interface A2aOptions extends HttpOptions {
  /**
   * The agent whose card is also at `/.well-known/agent-card.json` below the base path, where clients look that know the
   * host alone. Default: none.
   */
  readonly root?: string | undefined;
  /**
   * Fields of all agent cards. A field here replaces the field of the same name that an agent gives: for example
   * `version`, `provider`, `iconUrl`, `securitySchemes` and `securityRequirements`. Default: none.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   * import { createA2aHandler } from "cadenza/a2a";
   *
   * const securitySchemes = { token: { httpAuthSecurityScheme: { scheme: "Bearer" } } };
   * const securityRequirements = [{ schemes: { token: { list: [] } } }];
   * const handler = createA2aHandler(new AgentRuntime(), { card: { securitySchemes, securityRequirements } });
   * console.log(typeof handler); // → function
   * ```
   */
  readonly card?: JsonObject | undefined;
}

/** The options with their defaults. */
export interface A2aSettings extends HttpSettings {
  readonly root: string | undefined;
  readonly card: JsonObject;
}

/** A request of A2A while it is answered. Its first parameter is the name of the agent. */
export type A2aCall = Call<A2aSettings>;

/** Clients send files in their messages. */
const limits = { maxBodyBytes: 10 * MIB };

/** Reads the options of a handler. Throws `invalid_argument` for an invalid one. */
export function readA2aOptions(options: A2aOptions): A2aSettings {
  const settings = readHttpOptions(options, ["root", "card"], limits);
  const { root, card = {} } = options;
  if (root !== undefined && (typeof root !== "string" || root === "")) throw bad("root", "the name of an agent");
  return { ...settings, root, card: readCard(card) };
}

/** The fields that a card may have, each with a value of its type. */
const cardFields: JsonObject = {
  ...{ name: "", description: "", version: "", documentationUrl: "", iconUrl: "" },
  ...{ supportedInterfaces: [], defaultInputModes: [], defaultOutputModes: [], skills: [] },
  ...{ securityRequirements: [], signatures: [], capabilities: {}, provider: {}, securitySchemes: {} },
};

function readCard(card: JsonObject): JsonObject {
  if (!isJsonObject(card)) throw bad("card", "an object");
  checkKeys("options.card", card, Object.keys(cardFields));
  const fields = exactJson(card, ({ path }) => bad(["card", ...path].join("."), "a value of JSON")) as JsonObject;
  for (const [name, value] of Object.entries(fields)) {
    const type = typeOf(cardFields[name]);
    if (typeOf(value) !== type) throw bad(`card.${name}`, `a value of type ${type}`);
  }
  return fields;
}

function typeOf(value: JsonValue | undefined): string {
  return Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
}
