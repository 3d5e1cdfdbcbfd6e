import type { Store } from "../../core/ports.ts";
import type { Snapshot } from "../../core/snapshot.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame } from "./check.ts";
import { append, create, createEnded, forget, parts, runKey, write } from "./samples.ts";
import { continued, trimAll } from "./trim.ts";

const snapshot = (position: number, state = "{}"): Snapshot => ({ position, format: 1, state });

/** A check that only stores meet which keep snapshots. */
function snapshotCheck(name: string, run: (first: Required<Store>, second: Required<Store>) => Promise<void>) {
  return check(name, async ({ first, second }) => {
    expectSame(first.keepSnapshot === undefined, first.snapshot === undefined, "whether both methods are left out");
    if (first.snapshot !== undefined) await run(first as Required<Store>, second as Required<Store>);
  });
}

/** `snapshot` and `keepSnapshot`: folded states, which the library can make again. */
export const snapshotChecks: readonly StoreCheck[] = [
  snapshotCheck("snapshot: the last one of a run, as it was kept", async (first, second) => {
    const key = await create(first, 1);
    expectSame(await second.snapshot(key), undefined, "the snapshot of a new run");
    const state = JSON.stringify({ text: "\u0000 \ud800 \u{1f3bb} 'quoted'", long: "x".repeat(100_000) });
    await first.keepSnapshot(key, snapshot(1, state));
    expectSame(await second.snapshot(key), snapshot(1, state), "the snapshot");
    await second.keepSnapshot(key, { position: 7, format: 2, state: "[]" });
    expectSame(await first.snapshot(key), { position: 7, format: 2, state: "[]" }, "the snapshot that was kept later");
  }),

  snapshotCheck("snapshot: of the run alone", async (first) => {
    const key = await create(first, 1);
    const other = await create(first, 2);
    const elsewhere = await create(first, 1, { tenant: "other" });
    await first.keepSnapshot(key, snapshot(1));
    await first.keepSnapshot(other, snapshot(2));
    expectSame(await first.snapshot(key), snapshot(1), "the snapshot");
    expectSame(await first.snapshot(other), snapshot(2), "the snapshot of another run");
    expectSame(await first.snapshot(elsewhere), undefined, "that of a run of another tenant");
    await first.keepSnapshot(runKey(9), snapshot(1));
    expectSame(await first.snapshot(runKey(9)), undefined, "that of a run that does not exist");
    await create(first, 9);
    expectSame(await first.snapshot(runKey(9)), undefined, "that of a run that was created later");
  }),

  snapshotCheck("snapshot: goes with its run, and with the entries that are in it", async (first) => {
    const deleted = await createEnded(first, 1, 10);
    await first.keepSnapshot(deleted, snapshot(2));
    await first.delete([deleted]);
    expectSame(await first.snapshot(deleted), undefined, "the snapshot of a deleted run");
    await create(first, 1);
    expectSame(await first.snapshot(deleted), undefined, "that of a new run with its id");
    const kept = await create(first, 3);
    await append(first, kept, 1, write([...parts("a"), continued(2, 2), ...parts("b")]));
    await first.keepSnapshot(kept, snapshot(3));
    await trimAll(first, kept, 2);
    expectSame(await first.snapshot(kept), snapshot(3), "the snapshot behind what was trimmed");
    await first.keepSnapshot(kept, snapshot(1));
    await append(first, kept, 4, write([continued(4, 3)]));
    await trimAll(first, kept, 4);
    expectSame(await first.snapshot(kept), undefined, "the snapshot of what was trimmed");
    const pruned = await createEnded(first, 2, 10);
    await first.keepSnapshot(pruned, snapshot(2));
    await first.prune(forget);
    await create(first, 2);
    expectSame(await first.snapshot(pruned), undefined, "that of a new run with the id of a pruned one");
  }),
];
