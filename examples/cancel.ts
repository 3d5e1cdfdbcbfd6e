/** Cancelling a run, and cleaning up. `npx tsx examples/cancel.ts` */
import { setTimeout as sleep } from "node:timers/promises";
import { AgentRuntime, defineAgent } from "cadenza";

export const crawler = defineAgent("crawler", async function* (_input, { signal }) {
  yield "Opened a browser.\n";
  try {
    for (let page = 1; ; page++) {
      yield `Read page ${page}.\n`;
      await sleep(50, undefined, { signal }); // pass the signal to fetch, a model, a timer
    }
  } finally {
    // Runs at each end of the run. What it yields is kept.
    yield "Closed the browser.\n";
  }
});

if (process.argv[1] === import.meta.filename) {
  const runtime = new AgentRuntime({ cancelGraceMs: 500 }).register(crawler);
  const { run_id } = await runtime.createRun({ agent_name: "crawler", input: "Go", mode: "async" });
  let parts = 0;
  for await (const event of runtime.events(run_id, { until: "end" })) {
    if (event.type === "message.part") process.stdout.write(event.part.content ?? "");
    if (event.type === "message.part" && ++parts === 4) {
      const { status } = await runtime.cancel(run_id);
      console.log(`-- ${status}`);
    }
  }
  console.log(`-- ${(await runtime.getRun(run_id)).status}`);
}
