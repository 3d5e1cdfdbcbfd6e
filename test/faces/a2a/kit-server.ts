import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Message } from "cadenza";
import { AgentError, AgentRuntime, defineAgent } from "cadenza";
import { createA2aNodeListener } from "cadenza/a2a";

/*
 * The server that the official compatibility kit of A2A tests. What the agent does is said by the beginning of the id of
 * the message, as the scenarios of the kit have it. It prints its address, and serves until its input is closed.
 */

const file = { name: "output.txt", content_type: "text/plain" };

const tested = defineAgent(
  "tck",
  { description: "Does what the compatibility kit asks for.", inputContentTypes: ["text/*", "application/json"] },
  async function* (input, { ask, signal }) {
    const id = idOf(input.at(-1));
    const is = (prefix: string): boolean => id.startsWith(`tck-${prefix}`);
    if (is("artifact-text")) yield "Generated text content";
    else if (is("artifact-file-url")) yield { ...file, content_url: "https://example.com/output.txt" };
    else if (is("artifact-file")) yield { ...file, content: "aGVsbG8=", content_encoding: "base64" };
    else if (is("artifact-data"))
      yield { content_type: "application/json", content: JSON.stringify({ key: "value", count: 42 }) };
    else if (is("input-required")) {
      for (let said = id; said.startsWith("tck-input-required"); ) said = idOf((await ask("More?")) as Message);
    } else if (is("reject-task")) throw new AgentError("rejected", "rejected");
    else if (is("stream-artifact-file")) yield { ...file, content: "aGVsbG8=", content_encoding: "base64" };
    else if (is("stream-artifact-chunked")) {
      yield "chunk-1 ";
      yield "chunk-2";
    } else if (id.startsWith("test-resubscribe-message-id"))
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 4_000);
        signal.addEventListener("abort", () => {
          clearTimeout(timer);
          resolve();
        });
      });
    else yield is("stream-") ? "Stream hello from TCK" : "Hello from TCK";
  },
);

function idOf(message: Message | undefined): string {
  return String(message?.parts[0]?.["chat_message_id"] ?? "");
}

const server = createServer(createA2aNodeListener(new AgentRuntime({ agents: [tested] }), { root: "tck" }));
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}\n`);
});
process.stdin.on("end", () => process.exit(0)).resume();
