import type { Message, MessageInput, MessagePartInput } from "../protocol/message.ts";
import type { CallableAgent, SchemasByName } from "../runtime/agent/agent-schemas.ts";
import type { SchemaInput, StandardSchema } from "../runtime/agent/standard-schema.ts";

/** The name of one of the agents. */
export type NameOf<Known extends readonly CallableAgent[]> = Known[number]["name"];

/** The agent with a name. Without the type of the list, any agent. */
export type Named<Known extends readonly CallableAgent[], Name extends string> = string extends Known[number]["name"]
  ? CallableAgent
  : Extract<Known[number], { readonly name: Name }>;

/** What an agent is called with: the input of its schema, or without one a text, a part or messages. */
export type InputTo<Called extends CallableAgent> = Called["options"]["input"] extends infer Schema extends
  StandardSchema
  ? SchemaInput<Schema>
  : string | MessagePartInput | readonly MessageInput[];

/** What a call gives: the value that the agent has returned, as its schema takes it, or without one its messages. */
export type OutputOf<Called extends CallableAgent> = Called["options"]["output"] extends infer Schema extends
  StandardSchema
  ? SchemaInput<Schema>
  : readonly Message[];

type Questions<Called extends CallableAgent> = Called["options"]["questions"] extends infer Declared extends
  SchemasByName
  ? Declared
  : SchemasByName;

/** The name of a question that an agent declares. Any text, if it declares none. */
export type QuestionOf<Called extends CallableAgent> = keyof Questions<Called> & string;

/** The answer to a question. */
export type AnswerTo<Called extends CallableAgent, Name extends string> = string extends keyof Questions<Called>
  ? string | object
  : SchemaInput<Questions<Called>[Name]>;
