/** The smallest agent: emits its input. `npx tsx examples/echo.ts [text]` */
import { AgentRuntime, defineAgent } from "cadenza";

export const echo = defineAgent("echo", async function* (input) {
  yield* input;
});

if (process.argv[1] === import.meta.filename) {
  const runtime = new AgentRuntime().register(echo);
  const request = { agent_name: "echo", input: process.argv[2] ?? "Hello" };

  const run = await runtime.createRun(request);
  console.log("sync:  ", run.status, JSON.stringify(run.output[0]?.parts[0]?.content));

  const accepted = await runtime.createRun({ ...request, mode: "async" });
  console.log("async: ", accepted.status);

  for await (const event of runtime.createRun({ ...request, mode: "stream" })) {
    console.log("stream:", event.id, event.type);
  }
}
