/** On Workers. A run lives as long as its request or its `waitUntil`. `npx wrangler dev examples/http/worker.ts` */
import { AgentRuntime } from "cadenza";
import { createAcpHandler } from "cadenza/http";

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});

const handler = createAcpHandler(runtime);

async function rest(runId: string): Promise<void> {
  for await (const _ of runtime.events(runId));
}

// biome-ignore lint/style/noDefaultExport: Workers ask for it.
export default {
  async fetch(request: Request, _: unknown, context: { waitUntil(rest: Promise<void>): void }): Promise<Response> {
    const response = await handler(request);
    if (response.status === 202) context.waitUntil(rest(response.headers.get("run-id") ?? ""));
    return response;
  },
};
