import { setImmediate as inNextTurn } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Entry, Store } from "cadenza/store";
import { expect, it } from "vitest";
import { readers } from "../../harness/long-logs/long-logs.ts";
import { withMembers } from "../../harness/port-proxy.ts";
import { openDatabase, withFile } from "../../harness/sqlite-files.ts";

/** As many entries may be read without a turn of the event loop, and one more page of the reader. */
const MOST = 1_024 + 256;
const STEPS = 3_000;
/** About how many characters may be read without one: as many as a turn has, and what a store reads at once. */
const MOST_CHARACTERS = (256 + 512 + 100) * 1_024;
const LARGE = 100_000;
const LARGE_STEPS = 60;

/**
 * A store that answers at once, and how much of its logs was read between two turns of the event loop, at most. With
 * `looks`: or was looked at again.
 */
function counted(
  store: Store,
  sizeOf: (entry: Entry) => number,
  counts: "reads" | "looks",
): { readonly store: Store; readonly longest: () => number } {
  let longest = 0;
  let size = 0;
  const inTurn = new Set<string>();
  const note = (name: string, its: number): void => {
    if (inTurn.size === 0)
      setImmediate(() => {
        inTurn.clear();
        size = 0;
      });
    if (!inTurn.has(name)) size += its;
    inTurn.add(name);
    longest = Math.max(longest, size);
  };
  /** An entry that tells who looks at its type, as each pass over a log does. */
  const watched = (entry: Entry, name: string, its: number): Entry => {
    const { type } = entry;
    return Object.defineProperty({ ...entry }, "type", {
      enumerable: true,
      get: () => {
        note(name, its);
        return type;
      },
    });
  };
  const read: Store["read"] = (key, from, limit) => {
    const entries = store.read(key, from, limit) as readonly Entry[] | undefined;
    return entries?.map((entry, index) => {
      const name = `${from + index}`;
      const its = sizeOf(entry);
      note(name, its);
      return counts === "looks" ? watched(entry, name, its) : entry;
    });
  };
  return {
    // Without snapshots, which would spare most of the reading.
    store: withMembers(store, { read, snapshot: () => undefined }),
    longest() {
      const found = longest;
      longest = 0;
      return found;
    },
  };
}

it.each([
  {
    of: "many entries",
    most: MOST,
    sizeOf: () => 1,
    counts: "looks" as const,
    steps: STEPS,
    result: (n: number) => String(n),
    but: [] as readonly string[],
  },
  {
    of: "large entries",
    most: MOST_CHARACTERS,
    sizeOf: (entry: Entry) => JSON.stringify(entry).length,
    counts: "reads" as const,
    steps: LARGE_STEPS,
    result: () => "x".repeat(LARGE),
    // A stream has turns by the number of entries alone.
    but: ["details", "events"],
  },
])("a log of $of is read with turns of the event loop for other work, in each call that reads it", async (log) => {
  await withFile(async (file) => {
    const open = (store: Store): AgentRuntime => {
      const runtime = new AgentRuntime({ store });
      return runtime.register("long", { durable: true }, async (_input, { step, ask }) => {
        const numbers = Array.from({ length: log.steps }, (_, n) => n);
        if (log.steps === STEPS) await Promise.all(numbers.map((n) => step("count", () => log.result(n))));
        else for (const n of numbers) await step("count", () => log.result(n));
        return ask("Is that all?");
      });
    };
    const first = open(new SqliteStore(openDatabase(file), { closeDatabase: true }));
    const { run_id } = await first.createRun({ agent_name: "long", input: "" });
    await first.close();

    const opened = new SqliteStore(openDatabase(file), { closeDatabase: true });
    const { store, longest } = counted(opened, log.sizeOf, log.counts);
    const runtime = open(store);
    for (const [name, read] of Object.entries(readers)) {
      if (log.but.includes(name)) continue;
      await read({ runtime, store, run_id });
      await inNextTurn();
      const most = longest();
      expect(most, `${name}: what was read`).toBeGreaterThan(0);
      expect(most, `${name}: what was read in one turn`).toBeLessThanOrEqual(log.most);
    }
    await runtime.close();
  });
});
