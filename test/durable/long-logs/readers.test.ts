import type { StreamedEvent } from "cadenza";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { afterAll, beforeAll, expect, it } from "vitest";
import { withMembers } from "../../harness/port-proxy.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

const GENERATIONS = 40;
const STEPS = 60;

/** How many entries of logs were read. */
let read = 0;
let runtime: AgentRuntime;
let run_id = "";
let last = 0;

beforeAll(async () => {
  const store = new SqliteStore(openDatabase(":memory:"), { closeDatabase: true });
  const counted = withMembers(store, {
    read(key, from, limit) {
      const entries = store.read(key, from, limit);
      read += entries?.length ?? 0;
      return entries;
    },
    persistent: true,
  });
  runtime = new AgentRuntime({ store: counted });
  runtime.register("long", { durable: true }, async (_input, { continueAsNew, emit, generation, step }) => {
    for (let n = 0; n < STEPS; n++) await step("count", () => n);
    await emit(`word ${generation}`);
    return generation < GENERATIONS ? continueAsNew() : "over";
  });
  ({ run_id } = await runtime.createRun({ agent_name: "long", input: "" }));
  ({ last_event_id: last } = await runtime.details(run_id));
});
afterAll(() => runtime.close());

/** The events after one, at most so many. */
async function events(after: number, most: number): Promise<readonly StreamedEvent[]> {
  const found: StreamedEvent[] = [];
  for await (const event of runtime.events(run_id, { after, until: "now" })) if (found.push(event) === most) break;
  return found;
}

it("a reader that comes back in the middle of many generations reads no more than two of them", async () => {
  const all = await events(0, Number.POSITIVE_INFINITY);
  expect(all.map(({ id }) => id)).toEqual(Array.from({ length: last }, (_, index) => index + 1));
  expect(all.length).toBeGreaterThan(3 * GENERATIONS);

  const costs: number[] = [];
  // What was said in the first generation lies at the beginning of the log.
  for (let after = 4; after < last; after++) {
    read = 0;
    await events(after, 1);
    costs.push(read);
    expect(await events(after, 9), `what comes after ${after}`).toEqual(all.slice(after, after + 9));
  }
  // One entry of each generation in between, one generation, and what a reader reads at once.
  expect(Math.max(...costs)).toBeLessThan(2 * GENERATIONS + 3 * STEPS + 256);
});
