import { expect, it } from "vitest";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

it.each([
  { on: "memory", durable: true },
  { on: "memory", durable: false },
  { on: "a file", durable: true },
  { on: "a file", durable: false },
])(
  "a run that begins later outlives its process, and is loaded at its time ($on, durable: $durable)",
  async ({ on, durable }) => {
    const replicas = on === "memory" ? inMemory() : onFile();
    const { clock } = replicas;
    const start = () => {
      const replica = replicas.start();
      replica.runtime.register("nightly", { durable }, () => "done");
      return replica;
    };
    const first = start();
    const startAt = clock.now() + 300_000;
    const request = { agent_name: "nightly", input: "", mode: "async" } as const;
    const options = { startAt, idempotencyKey: "2030-01-01" };
    const { run_id } = await first.runtime.createRun(request, options);
    expect((await first.runtime.createRun(request, options)).run_id).toBe(run_id);
    expect((await first.runtime.stats()).live).toEqual({});
    first.kill();

    const second = start();
    await clock.advance(299_000);
    expect((await second.runtime.getRun(run_id)).status).toBe("created");
    expect((await second.runtime.stats()).live).toEqual({});
    await clock.advance(5_000);
    expect((await second.runtime.getRun(run_id)).status).toBe("completed");
  },
);

it.each([
  { mode: "sync", durable: true },
  { mode: "sync", durable: false },
  { mode: "async", durable: true },
  { mode: "async", durable: false },
] as const)(
  "an agent is called once, also if its time comes before its run is stored ($mode, durable: $durable)",
  async ({ mode, durable }) => {
    const replicas = inMemory();
    const { clock } = replicas;
    const calls: string[] = [];
    const slow = replicas.start({}, async (call, method) => {
      if (method === "create") await new Promise<void>((resolve) => clock.setTimeout(resolve, 5_000));
      return call();
    });
    const fast = replicas.start();
    for (const [name, { runtime }] of Object.entries({ slow, fast }))
      runtime.register("nightly", { durable }, () => void calls.push(name));
    const options = { startAt: clock.now() + 1_000 };
    const creating = slow.runtime.createRun({ agent_name: "nightly", input: "", mode }, options);
    await clock.advance(20_000);
    const { run_id } = await creating;
    expect((await fast.runtime.getRun(run_id)).status).toBe("completed");
    expect(calls).toHaveLength(1);
  },
);
