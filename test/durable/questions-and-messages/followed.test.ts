import type { RunKey } from "cadenza/store";
import { expect, it } from "vitest";
import { inMemoryWithHints } from "../../harness/world/replicas.ts";

/* Readers of runs that other processes execute. */

it("a reader learns of what no hint has told, however many hints of other runs come", async () => {
  const { replicas, tell } = inMemoryWithHints();
  const { clock } = replicas;
  const busy: RunKey[] = [];
  // While the store is asked, a hint of another run comes, so that it is asked at once again.
  const web = replicas.start({ work: false }, (call, method) => {
    if (method !== "moved") return call();
    tell({ moved: busy });
    return new Promise<void>((resolve) => clock.setTimeout(resolve, 50)).then(call);
  });
  const worker = replicas.start();
  worker.runtime.register("agent", { durable: true }, async ([message], { sleep, ask }) => {
    await sleep(message?.parts[0]?.content === "long" ? "1h" : "3s");
    await ask("Well?");
  });
  web.runtime.declare({ name: "agent", durable: true });
  const read = async (input: string): Promise<readonly [RunKey, string[]]> => {
    const { run_id } = await worker.runtime.createRun({ agent_name: "agent", input, mode: "async" });
    const types: string[] = [];
    void (async () => {
      for await (const { type } of web.runtime.events(run_id)) types.push(type);
    })();
    return [{ tenant: "", run_id }, types];
  };
  const [hinted] = await read("long");
  busy.push(hinted);
  const [, types] = await read("short");
  await clock.advance(6_000);
  expect(types.at(-1)).toBe("run.awaiting");
});
