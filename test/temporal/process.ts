import { setTimeout as after } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Waker } from "cadenza/store";
import Database from "libsql";
import { temporalWaker } from "../../examples/temporal/waker.ts";

/*
 * A process of the test: `web`, which accepts and executes nothing, or `worker`. It is told by messages what to create,
 * and tells what happens.
 */

const [role, file = "", address = "", namespace = "", fates = "", scanMs] = process.argv.slice(2);
const tell = (report: object): void => {
  process.send?.(report);
};

const waker = faulty(temporalWaker({ address, namespace }), fates.split(","));
const durability = { leaseMs: 2_000, heartbeatMs: 500, scanMs: Number(scanMs), waker };
const store = new SqliteStore(new Database(file), { closeDatabase: true, durability });
const runtime = new AgentRuntime(role === "web" ? { store, work: false } : { store });

if (role === "web") runtime.declare({ name: "work", durable: true });
else
  runtime.register("work", { durable: true }, async (input, { step, sleep }) => {
    const name = input[0]?.parts[0]?.content;
    for (const part of ["first", "second", "third"]) {
      await step(part, async () => {
        tell({ begun: `${name}/${part}` });
        await after(300);
      });
      // The store has the result of the step.
      tell({ done: `${name}/${part}` });
    }
    await sleep(500);
    return "Done.";
  });

process.on("message", async (order: { readonly create?: string }) => {
  if (order.create === undefined) {
    await runtime.close();
    process.exit(0);
  }
  const { status } = await runtime.createRun({ agent_name: "work", input: order.create });
  tell({ ended: order.create, status });
});
tell({ ready: role });

/** Loses, doubles and delays wake-ups, in turn. */
function faulty(good: Waker, turns: readonly string[]): Waker {
  let count = 0;
  return {
    start: (look, capacity) => good.start(look, capacity),
    stop: () => good.stop(),
    async wake(key, at, hint) {
      const fate = turns[count++ % turns.length];
      if (fate === "lost") return;
      await good.wake(key, fate === "late" ? at + 2_500 : at, hint);
      if (fate === "twice") await good.wake(key, at, hint);
    },
  };
}
