import { setImmediate as inNextTurn } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { SqliteStore } from "cadenza/sqlite";
import type { Entry, Store } from "cadenza/store";
import { record } from "cadenza/testing";
import { expect, it } from "vitest";
import { withMembers } from "../../harness/port-proxy.ts";
import { openDatabase, withFile } from "../../harness/sqlite-files.ts";

/** As many entries may be read without a turn of the event loop, and one more page of the reader. */
const MOST = 1_024 + 256;
const STEPS = 3_000;

/** A store that answers at once, and how many of its entries were looked at between two turns of the event loop, at most. */
function counted(store: Store): { readonly store: Store; longest(): number } {
  let longest = 0;
  const inTurn = new Set<string>();
  const note = (entry: string): void => {
    if (inTurn.size === 0) setImmediate(() => inTurn.clear());
    inTurn.add(entry);
    longest = Math.max(longest, inTurn.size);
  };
  /** An entry that tells who looks at its type, as each pass over a log does. */
  const watched = (entry: Entry, name: string): Entry => {
    const { type } = entry;
    return Object.defineProperty({ ...entry }, "type", {
      enumerable: true,
      get: () => {
        note(name);
        return type;
      },
    });
  };
  const read: Store["read"] = (key, from, limit) => {
    const entries = store.read(key, from, limit) as readonly Entry[] | undefined;
    return entries?.map((entry, index) => {
      note(`${from + index}`);
      return watched(entry, `${from + index}`);
    });
  };
  return {
    store: withMembers(store, { read }),
    longest() {
      const found = longest;
      longest = 0;
      return found;
    },
  };
}

it("a long log is read with turns of the event loop for other work, in each call that reads it", async () => {
  await withFile(async (file) => {
    const open = (store: Store): AgentRuntime => {
      const runtime = new AgentRuntime({ store });
      return runtime.register("long", { durable: true }, async (_input, { step, ask }) => {
        await Promise.all(Array.from({ length: STEPS }, (_, n) => step("count", () => n)));
        return ask("Is that all?");
      });
    };
    const first = open(new SqliteStore(openDatabase(file), { closeDatabase: true }));
    const { run_id } = await first.createRun({ agent_name: "long", input: "" });
    await first.close();

    const { store, longest } = counted(new SqliteStore(openDatabase(file), { closeDatabase: true }));
    const runtime = open(store);
    const admin = createAdmin(runtime);
    const readers: Readonly<Record<string, () => Promise<unknown>>> = {
      getRun: () => runtime.getRun(run_id),
      listRuns: () => runtime.listRuns(),
      details: async () => {
        for await (const { type } of runtime.events(run_id, { detail: true })) if (type === "run.awaiting") return;
      },
      transcript: () => runtime.transcript(run_id),
      timeline: () => admin.timeline(run_id),
      cassette: () => record(store, run_id),
      events: async () => {
        for await (const { type } of runtime.events(run_id)) if (type === "run.awaiting") return;
      },
      resume: () => runtime.resume({ run_id, await_resume: { ok: true } }),
    };
    for (const [name, read] of Object.entries(readers)) {
      await read();
      await inNextTurn();
      const most = longest();
      expect(most, `${name}: entries that were looked at`).toBeGreaterThan(0);
      expect(most, `${name}: entries that were looked at in one turn`).toBeLessThanOrEqual(MOST);
    }
    await runtime.close();
  });
});
