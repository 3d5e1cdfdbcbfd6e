import { MemoryStore } from "cadenza";
import { describe, expect, it } from "vitest";
import type { RunHead, RunKey } from "../../src/core/ports.ts";
import { meaningOf } from "../../src/durable/recovery/write-conflicts.ts";
import { localOwnership } from "../../src/runtime/log/local-ownership.ts";
import type { Ownership } from "../../src/runtime/log/ownership.ts";
import type { Outcome } from "../../src/runtime/log/run-write.ts";
import { RunWriter } from "../../src/runtime/log/run-writer.ts";
import { StoreClock } from "../../src/runtime/log/store-clock.ts";
import { FakeClock } from "../harness/clock.ts";
import { created } from "../harness/logs.ts";
import { hookedStore } from "../harness/store-proxy.ts";

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
const claimed = (owner: string): RunHead => ({ ...waiting, owner, epoch: 1 });
const batch = { entries: [], session: undefined };

function attemptOf(head: RunHead) {
  return { key, write: { entries: [], head }, batch, expected: { epoch: 0, position: 1 }, idempotencyKey: null };
}

/** A writer on a store that fails to answer the next write, and has written it or not. */
async function withLostAnswer(isWritten: boolean) {
  const store = new MemoryStore();
  await store.create(key, { entries: [created()], head: waiting }, null);
  let isLost = true;
  const failing = hookedStore((call, method) => {
    if (method !== "append" || !isLost) return call();
    isLost = false;
    if (isWritten) void call();
    throw new Error("no answer");
  }, store);
  const ownership: Ownership = {
    ...localOwnership,
    onConflict: async (conflict, attempt, failed) => (await meaningOf(failing, conflict, attempt, failed)) as Outcome,
  };
  const clock = new StoreClock(new FakeClock(), failing);
  const writer = new RunWriter({ store: failing, clock, hold: () => () => {} }, key, ownership);
  expect(await writer.write(attemptOf(claimed("one")))).toMatchObject({ is: "failed" });
  return { store, writer };
}

it("A pause between two attempts is over when there is no next attempt", async () => {
  const { writer } = await withLostAnswer(false);
  let isOver = false;
  const pause = writer.pause().then(() => {
    isOver = true;
  });
  await Promise.resolve();
  expect(isOver).toBe(false);
  writer.end();
  await pause;
  expect(isOver).toBe(true);
});

describe("A claim whose answer was lost", () => {
  it("is recognised when the store has written it", async () => {
    const { writer } = await withLostAnswer(true);
    expect(await writer.write(attemptOf(claimed("one")))).toMatchObject({ is: "recognised" });
  });

  it("is lost when the store has not, and another process has claimed the run under the same epoch", async () => {
    const { store, writer } = await withLostAnswer(false);
    await store.append(key, { epoch: 0, position: 1 }, { entries: [], head: claimed("two") });
    expect(await writer.write(attemptOf(claimed("one")))).toMatchObject({ is: "lost" });
  });

  it("is written when the store has not, and no other process has claimed the run", async () => {
    const { writer } = await withLostAnswer(false);
    expect(await writer.write(attemptOf(claimed("one")))).toBe(undefined);
  });
});
