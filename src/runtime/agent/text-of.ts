import type { Message } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";

/**
 * The text of a message, of messages such as an agent's input, or of the output of a run: its parts of plain text, joined.
 * Messages are separated by a line break. Parts with a name, as an agent's `output`, and parts of other content types are
 * left out.
 *
 * @example
 * ```ts
 * import { AgentRuntime, textOf } from "cadenza";
 *
 * const runtime = new AgentRuntime().register("greet", function* (input) {
 *   yield "Hello, ";
 *   yield `${textOf(input)}.`;
 * });
 * console.log(textOf(await runtime.createRun({ agent_name: "greet", input: "world" }))); // → Hello, world.
 * ```
 */
export function textOf(source: Run | Message | readonly Message[]): string {
  if ("parts" in source) return source.parts.map(partText).join("");
  const messages = "output" in source ? source.output : source;
  return messages
    .map(textOf)
    .filter((text) => text !== "")
    .join("\n");
}

function partText({ name, content_type, content_encoding, content }: Message["parts"][number]): string {
  const isText = (name ?? null) === null && content_type.startsWith("text/") && content_encoding === "plain";
  return isText ? (content ?? "") : "";
}
