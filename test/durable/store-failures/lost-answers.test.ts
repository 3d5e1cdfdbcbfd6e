import { MemoryStore } from "cadenza";
import { describe, expect, it } from "vitest";
import type { RunHead, RunKey } from "../../../src/core/ports.ts";
import { meaningOf } from "../../../src/durable/recovery/write-conflicts.ts";
import { lostError } from "../../../src/runtime/log/refusals.ts";
import type { Attempt } from "../../../src/runtime/log/run-write.ts";
import { Outage } from "../../../src/runtime/log/store-failures.ts";
import { FakeClock } from "../../harness/clock.ts";
import { created } from "../../harness/logs.ts";

const key: RunKey = { tenant: "", run_id: "00000000-0000-4000-8000-000000000001" };
const waiting: RunHead = {
  status: "awaiting",
  epoch: 0,
  owner: null,
  due_at: null,
  blocked: null,
  holds_slot: false,
  finished_at: null,
  takeovers: 0,
};

function claimBy(owner: string): Attempt {
  const head: RunHead = { ...waiting, owner, epoch: 1 };
  const expected = { epoch: 0, position: 1 };
  return { key, write: { entries: [], head }, session: undefined, expected, idempotencyKey: null };
}

describe("A claim whose answer was lost", () => {
  /** What a second try means, after the store has taken the claim of the process with this name. */
  async function secondTry(takenFrom: string): Promise<unknown> {
    const store = new MemoryStore();
    await store.create(key, { entries: [created()], head: waiting }, null);
    await store.append(key, { epoch: 0, position: 1 }, claimBy(takenFrom).write);
    const lost = claimBy("one");
    const again = claimBy("one");
    const conflict = await store.append(key, { epoch: 0, position: 1 }, again.write);
    if (conflict === undefined) throw new Error("the store has taken a claim twice");
    return meaningOf(store, conflict, again, [lost]);
  }

  it("is recognised when the store has written it", async () => {
    expect(await secondTry("one")).toMatchObject({ is: "recognised" });
  });

  it("is lost when the store has not, and another process has claimed the run under the same epoch", async () => {
    expect(await secondTry("two")).toMatchObject({ is: "lost" });
  });
});

it("A pause between two attempts is over when there is no next attempt", async () => {
  let holds = 0;
  const hold = () => {
    holds += 1;
    return () => {
      holds -= 1;
    };
  };
  const outage = new Outage(Object.assign(new FakeClock(), { hold }), lostError(key.run_id));
  let isOver = false;
  const pause = outage.pause().then(() => {
    isOver = true;
  });
  await Promise.resolve();
  expect({ isOver, holds }).toEqual({ isOver: false, holds: 1 });
  outage.end();
  await pause;
  expect({ isOver, holds }).toEqual({ isOver: true, holds: 0 });
});
