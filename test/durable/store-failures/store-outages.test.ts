import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/* The store of several processes fails for longer than their leases last, and works again. */

const LEASE_MS = 1_000;

/** Processes on a store that can be down. Each has one agent, whose step ends when the test says so. */
function open(count: number) {
  const replicas = inMemory();
  const finish = deferred();
  let isDown = false;
  let hang: Promise<void> | undefined;
  const hook: Hook = (call) => {
    if (hang !== undefined) return hang.then(call);
    if (isDown) throw new Error("the store is down");
    return call();
  };
  const start = (): Replica => {
    const replica = replicas.start({}, hook);
    replica.runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
      await step("work", () => finish.promise);
      return JSON.stringify(await ask("Well?"));
    });
    return replica;
  };
  const processes = Array.from({ length: count }, start);
  return {
    clock: replicas.clock,
    processes,
    start,
    finish: finish.resolve,
    async create({ runtime }: Replica): Promise<string> {
      return (await runtime.createRun({ agent_name: "agent", input: "", mode: "async" })).run_id;
    },
    async outage(ms: number): Promise<void> {
      isDown = true;
      await replicas.clock.advance(ms);
      isDown = false;
    },
    /** No call is answered until the returned function is called. */
    hang(): () => void {
      const gate = deferred();
      hang = gate.promise;
      return () => {
        hang = undefined;
        gate.resolve();
      };
    },
    async head(run_id: string) {
      return (await processes.at(-1)?.store.find({ tenant: "", run_id }))?.head;
    },
  };
}

describe("after an outage of the store", () => {
  it.each([1.2, 2.5, 20])("of %f leases no living process is taken over from", async (leases) => {
    const { clock, processes, create, outage, head, finish } = open(3);
    const ids: string[] = [];
    for (const process of processes) {
      ids.push(await create(process));
      // Their heartbeats come at different times.
      await clock.advance(70);
    }
    await clock.advance(2 * LEASE_MS);
    const owners = await Promise.all(ids.map(async (run_id) => (await head(run_id))?.owner));
    await outage(leases * LEASE_MS);
    await clock.advance(3 * LEASE_MS);
    const heads = await Promise.all(ids.map(head));
    expect(heads.map((one) => [one?.owner, one?.takeovers])).toEqual(owners.map((owner) => [owner, 0]));
    finish();
    await clock.advance(LEASE_MS);
    expect((await Promise.all(ids.map(head))).map((one) => one?.status)).toEqual(ids.map(() => "awaiting"));
  });

  it("the runs of a process that died in it are taken over", async () => {
    const { clock, processes, create, outage, head, finish } = open(2);
    const [dying, other] = processes as [Replica, Replica];
    const run_id = await create(dying);
    const before = await create(other);
    await clock.advance(LEASE_MS);
    finish();
    dying.kill();
    await outage(2.5 * LEASE_MS);
    await clock.advance(LEASE_MS);
    expect(await head(run_id)).toMatchObject({ status: "awaiting", takeovers: 0 });
    expect(await head(before)).toMatchObject({ status: "awaiting" });
  });

  it("a process that begins in it takes nothing from those that live", async () => {
    const { clock, processes, create, outage, head, start } = open(1);
    const run_id = await create(processes[0] as Replica);
    await clock.advance(2 * LEASE_MS);
    const owner = (await head(run_id))?.owner;
    const over = outage(2.5 * LEASE_MS);
    start();
    await over;
    await clock.advance(2 * LEASE_MS);
    expect(await head(run_id)).toMatchObject({ owner, takeovers: 0 });
  });

  it("a cancel of a run whose owner has not renewed its lease yet takes nothing from it", async () => {
    const { clock, processes, create, outage, head } = open(2);
    const [owner, other] = processes as [Replica, Replica];
    const run_id = await create(owner);
    await clock.advance(2 * LEASE_MS);
    await outage(2.5 * LEASE_MS);
    await other.runtime.cancel(run_id);
    await clock.advance(2 * LEASE_MS);
    expect(await head(run_id)).toMatchObject({ status: "cancelled", takeovers: 0, epoch: 1 });
  });
});

describe("close", () => {
  it.each([0, 500])("does not wait for a store that does not answer (drainMs: %i)", async (drainMs) => {
    const { clock, processes, create, hang } = open(1);
    const [{ runtime, said }] = processes as [Replica];
    const run_id = await create(processes[0] as Replica);
    await clock.advance(100);
    const answer = hang();
    let report: unknown;
    void runtime.close({ drainMs }).then((value) => {
      report = value;
    });
    await clock.advance(9_900);
    expect(report).toBeUndefined();
    await clock.advance(drainMs + 200);
    expect(report).toMatchObject({ left: [{ run_id, agent_name: "agent" }] });
    expect(said.filter(({ level, message }) => level === "error" && /did not answer/.test(message))).toHaveLength(1);
    answer();
  });

  it("closes the store also if it has failed to release what this process owns", async () => {
    const replicas = inMemory();
    const called: string[] = [];
    const { runtime } = replicas.start({}, (call, method) => {
      called.push(method);
      if (method === "release") throw new Error("the store is down");
      return call();
    });
    runtime.register("agent", { durable: true }, () => "done");
    await runtime.close();
    expect(called.slice(-2)).toEqual(["release", "close"]);
  });
});
