import { AgentRuntime } from "cadenza";
import { expect, it } from "vitest";

it("when a cancel ends a stream, the generator around it still runs its finally", async () => {
  const log: string[] = [];
  const runtime = new AgentRuntime();
  runtime.register("outer", async function* (_input, { signal }) {
    async function* stream() {
      yield "one";
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    }
    try {
      yield stream();
    } finally {
      log.push("finally");
    }
  });

  const events = runtime.createRun({ agent_name: "outer", input: "Hello", mode: "stream" });
  for await (const event of events) {
    if (event.type === "message.part") void runtime.cancel((await runtime.listRuns())[0]?.run_id ?? "");
  }

  expect(log).toEqual(["finally"]);
});
