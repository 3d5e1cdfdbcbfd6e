import { CadenzaError } from "cadenza";
import { expect, it } from "vitest";
import { never } from "../../harness/promises.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Calls of a store that never answer, or whose answer no reader would get. */

it("a renewal of the lease that the store never answers is asked again, and no run is lost by it", async () => {
  const replicas = inMemory();
  let renewals = 0;
  const first = replicas.start({}, (call, method) => {
    if (method !== "renew") return call();
    renewals += 1;
    return renewals === 3 ? never() : call();
  });
  const done: string[] = [];
  const register = ({ runtime, clock }: typeof first, name: string): void => {
    runtime.register("agent", { durable: true }, async (_input, { step }) => {
      for (const key of ["one", "two"]) {
        await step(key, () => new Promise((resolve) => clock.setTimeout(() => resolve(1), 3_000)));
        done.push(`${name} ${key}`);
      }
    });
  };
  register(first, "first");
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  register(replicas.start(), "second");
  await replicas.clock.advance(10_000);
  expect(renewals).toBeGreaterThan(10);
  expect((await first.runtime.getRun(run_id)).status).toBe("completed");
  expect(done).toEqual(["first one", "first two"]);
  expect(first.said.filter(({ message }) => message === "The store failed to renew the lease.")).not.toEqual([]);
});

it("a reader of a run whose first entry becomes unreadable gets an error, and does not wait", async () => {
  const replicas = onFile();
  let isDamaged = false;
  const first = replicas.start();
  const reader = replicas.start({ work: false }, (call, method) => {
    if (method === "find" && isDamaged) throw new CadenzaError("store_failed", "Entry 0 cannot be read.", { run_id });
    return call();
  });
  first.runtime.register("agent", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
  reader.runtime.declare({ name: "agent", durable: true });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
  const reading = (async () => {
    for await (const _ of reader.runtime.events(run_id, { until: "end" }));
  })().catch((error: unknown) => error);
  await replicas.clock.advance(1_000);
  isDamaged = true;
  const { head, position } = (await first.store.find({ tenant: "", run_id })) ?? {};
  if (head === undefined || position === undefined) throw new Error("The run is missing.");
  await first.store.append(
    { tenant: "", run_id },
    { epoch: head.epoch, position },
    { entries: [], head: { ...head, epoch: head.epoch + 1 } },
  );
  let error: unknown;
  void reading.then((thrown) => {
    error = thrown;
  });
  await replicas.clock.advance(5_000);
  expect(CadenzaError.is(error) && [error.code, error.run_id]).toEqual(["store_failed", run_id]);
});
