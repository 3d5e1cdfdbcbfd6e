import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { never } from "../promises.ts";
import { openDatabase } from "../sqlite-files.ts";
import { hookedStore } from "../store-proxy.ts";

/** How many runs are created at once. */
export const AT_ONCE = 50;
const DAY_MS = 86_400_000;
export const shortLease = { leaseMs: 2_000, heartbeatMs: 600, scanMs: 1_000, evictAfterMs: 1_000 };

/** What is counted of the agents of a process. */
export interface Seen {
  completed: number;
  firstAt: number;
  lastAt: number;
  /** How often a body began for a run. */
  readonly begun: Map<string, number>;
}

/** A process on a file, with agents that work or hang. */
export function open(file: string, mode: "works" | "hangs", durability: object = shortLease, slowerMs = 0) {
  const sqlite = new SqliteStore(openDatabase(file), { closeDatabase: true });
  const store = slowerMs === 0 ? sqlite : slower(sqlite, slowerMs);
  const limits = { maxLiveRuns: 100_000 };
  const runtime = new AgentRuntime({ store: durable(store, durability), limits });
  const seen: Seen = { completed: 0, firstAt: 0, lastAt: 0, begun: new Map() };
  const onCompleted = (): void => {
    seen.lastAt = Date.now();
    seen.completed += 1;
  };
  runtime.on("run.completed", onCompleted);
  runtime.register("steps", { durable: true }, async (_input, { step, run_id }) => {
    const result = await step("work", () => {
      seen.firstAt ||= Date.now();
      seen.begun.set(run_id, (seen.begun.get(run_id) ?? 0) + 1);
      return mode === "works" ? 1 : never();
    });
    return `${result}`;
  });
  runtime.register("asks", { durable: true }, async (input, { ask, now }) => {
    const until = Number(input[0]?.parts[0]?.content);
    const timeoutMs = until === 0 ? DAY_MS : Math.max(1, until - now());
    const answer = await ask("Well?", { timeoutMs, default: { late: true } });
    seen.firstAt ||= Date.now();
    return JSON.stringify(answer);
  });
  const close = async (): Promise<void> => {
    await runtime.close({ drainMs: 0 });
    await store.close();
  };
  return { runtime, seen, close };
}

/** The same store, with each write to a run delayed by `ms`. */
function slower(store: Store, ms: number): Store {
  const slow = ["append", "create", "claim"];
  return hookedStore((call, method) => {
    if (!slow.includes(method)) return call();
    return new Promise((resolve) => setTimeout(resolve, ms)).then(call);
  }, store);
}

/** Creates runs, which have begun when it resolves. */
export async function createMany(
  runtime: AgentRuntime,
  agent_name: string,
  count: number,
  input: string,
): Promise<void> {
  let left = count;
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (left-- > 0) await runtime.createRun({ agent_name, input, mode: "async" });
    }),
  );
  // The accepted runs begin, and go on until they wait.
  await new Promise((resolve) => setTimeout(resolve, 500));
}
