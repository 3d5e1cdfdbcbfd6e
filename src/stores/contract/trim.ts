import type { ContinuedEntry, Entry } from "../../core/log.ts";
import type { RunKey, Store } from "../../core/ports.ts";
import { behind } from "../../core/positions.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import { append, create, createEnded, ended, over, parts, runKey, write } from "./samples.ts";

/** `trim`: the deletion of earlier generations of a run. */
export const trimChecks: readonly StoreCheck[] = [
  check("trim: the first entry and all from a generation on stay, in their places", async ({ first, second }) => {
    const key = await create(first, 1);
    await append(first, key, 1, write(parts("a", "b")));
    await append(first, key, 3, write([...parts("c"), continued(4, 2), ...parts("d")]));
    await append(first, key, 6, write(parts("e")));
    const before = await walk(first, key);
    await trimAll(second, key, 4);
    const kept = before.filter(({ position }) => position === 0 || position >= 4);
    expectSame(await walk(first, key), kept, "the log");
    expectSame((await first.find(key))?.position, 7, "the length of the log");
    for (const { position, entry } of kept)
      expectSame(await first.read(key, position, 1), [entry], `the entry at ${position}`);
    for (const position of [1, 2, 3])
      expectSame((await first.read(key, position, 1))?.[0]?.type, "continued", `what is read from ${position} on`);
    expectSame(await first.read(key, 7, 5), [], "what is read behind the last entry");
    await append(first, key, 7, write(parts("f")));
    expectSame((await walk(second, key)).at(-1)?.position, 7, "the position of an entry that is added");
    expectSame(await second.trim(key, 4), false, "whether more are left");
    expectSame((await walk(second, key)).length, kept.length + 1, "the number of entries");
  }),

  check("trim: another generation, later", async ({ first }) => {
    const key = await create(first, 1);
    await append(first, key, 1, write([...parts("a"), continued(2, 2), ...parts("b"), continued(4, 3), ...parts("c")]));
    await trimAll(first, key, 2);
    expectSame(await positionsIn(first, key), [0, 2, 3, 4, 5], "the positions after the first time");
    await append(first, key, 6, write([continued(6, 4)]));
    await trimAll(first, key, 6);
    expectSame(await positionsIn(first, key), [0, 6], "the positions after the second time");
    await trimAll(first, key, 4);
    expectSame(await positionsIn(first, key), [0, 6], "the positions after one that comes late");
  }),

  check("trim: in parts, and between two of them the log has a beginning and an end", async ({ first, second }) => {
    const key = await create(first, 1);
    let position = 1;
    for (let n = 0; n < 300; n++) {
      await append(first, key, position, write(parts(...["a", "b", "c", "d", "e"].map((text) => `${text}${n}`))));
      position += 5;
    }
    await append(first, key, position, write([continued(position, 2), ...parts("z")]));
    const whole = await walk(first, key);
    for (let isMore = true; isMore; ) {
      isMore = await first.trim(key, position);
      const left = await walk(second, key);
      const beginning = left.filter((one) => one.position < position);
      expectSame(beginning, whole.slice(0, beginning.length), "the beginning of the log");
      expectSame(left.slice(beginning.length), whole.slice(-2), "the end of the log");
    }
    expectSame(await positionsIn(second, key), [0, position, position + 1], "the positions in the end");
  }),

  check("trim: nothing of other runs, and nothing of a run that does not exist", async ({ first, second }) => {
    for (const n of [1, 2]) {
      const key = await create(first, n);
      await append(first, key, 1, write([...parts("a"), continued(2, 2), ...parts("b")]));
    }
    const other = await walk(first, runKey(2));
    await trimAll(second, runKey(1), 2);
    expectSame(await walk(second, runKey(2)), other, "the log of another run");
    expectSame(await first.trim(runKey(9), 5), false, "what it answers for a run that does not exist");
    expectSame(await first.find(runKey(9)), undefined, "the run that does not exist");
  }),

  check("trim: the last entries of a run are told with their position", async ({ first }) => {
    const key = await create(first, 1);
    await append(first, key, 1, write(parts("a", "b")));
    await append(first, key, 3, write([continued(3, 2), ...parts("c")]));
    await trimAll(first, key, 3);
    for (const count of [1, 2, 9]) {
      const [tail] = await first.tails([key], count);
      expectSame(tail?.from, count === 1 ? 4 : 3, `the position of the first of the last ${count}`);
      expectSame(tail?.entries.length, Math.min(count, 2), `how many the last ${count} are`);
    }
  }),

  check("trim: a run is deleted with all that is left, and its id can be used again", async ({ first, second }) => {
    const key = await create(first, 1);
    await append(first, key, 1, write([...parts("a"), continued(2, 2)]));
    await append(first, key, 3, write([ended()], { head: over() }));
    await trimAll(first, key, 2);
    expectSame(await second.delete([key]), 1, "how many were deleted");
    expectSame(await second.read(key, 0, 9), undefined, "the log of the deleted run");
    await createEnded(first, 1, NOW);
    expectSame(await positionsIn(second, key), [0, 1], "the positions in the log of the new run");
  }),
];

export function continued(position: number, generation: number): ContinuedEntry {
  return { type: "continued", at: NOW, generation, position, events: position, started_at: NOW };
}

export async function trimAll(store: Store, key: RunKey, before: number): Promise<void> {
  while (await store.trim(key, before));
}

/** All entries of a log with their positions, some at a time. */
async function walk(store: Store, key: RunKey): Promise<readonly { position: number; entry: Entry }[]> {
  const all: { position: number; entry: Entry }[] = [];
  for (let at = 0; ; ) {
    const entries = (await store.read(key, at, 7)) ?? [];
    if (entries.length === 0) return all;
    for (const entry of entries) {
      at = behind(at, entry);
      all.push({ position: at - 1, entry });
    }
  }
}

async function positionsIn(store: Store, key: RunKey): Promise<readonly number[]> {
  return (await walk(store, key)).map(({ position }) => position);
}
