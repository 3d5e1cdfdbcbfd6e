import { MemoryStore } from "cadenza";
import type { RunKey } from "cadenza/store";
import type { BrokenStore } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

type Snapshot = Parameters<MemoryStore["keepSnapshot"]>[1];

const last = "snapshot: the last one of a run, as it was kept";
const alone = "snapshot: of the run alone";
const gone = "snapshot: goes with its run, and with the entries that are in it";

/** A store that keeps snapshots by a text that it makes of a key. */
abstract class Keeping extends MemoryStore {
  protected readonly kept = new Map<string, Snapshot>();
  protected abstract textOf(key: RunKey): string;

  override snapshot(key: RunKey): Snapshot | undefined {
    return this.find(key) === undefined ? undefined : this.kept.get(this.textOf(key));
  }

  override keepSnapshot(key: RunKey, snapshot: Snapshot): void {
    if (this.find(key) !== undefined) this.kept.set(this.textOf(key), snapshot);
  }
}

/** Faults in `snapshot` and `keepSnapshot`. */
export const snapshotFaults: readonly BrokenStore[] = [
  broken(
    "the first snapshot of a run stays",
    last,
    class extends MemoryStore {
      override keepSnapshot(key: RunKey, snapshot: Snapshot): void {
        if (this.snapshot(key) === undefined) super.keepSnapshot(key, snapshot);
      }
    },
  ),
  broken(
    "a snapshot is cut",
    last,
    class extends MemoryStore {
      override keepSnapshot(key: RunKey, { state, ...snapshot }: Snapshot): void {
        super.keepSnapshot(key, { ...snapshot, state: state.slice(0, 65_535) });
      }
    },
  ),
  broken(
    "tenants share snapshots",
    alone,
    class extends Keeping {
      protected override textOf({ run_id }: RunKey): string {
        return run_id;
      }
    },
  ),
  broken(
    "a snapshot is kept for a run that does not exist",
    alone,
    class extends Keeping {
      protected override textOf({ tenant, run_id }: RunKey): string {
        return `${tenant}/${run_id}`;
      }

      override keepSnapshot(key: RunKey, snapshot: Snapshot): void {
        this.kept.set(this.textOf(key), snapshot);
      }
    },
  ),
  broken(
    "a snapshot outlives the entries that are in it",
    gone,
    class extends MemoryStore {
      override trim(key: RunKey, before: number): boolean {
        const snapshot = this.snapshot(key);
        super.trim(key, before);
        if (snapshot !== undefined) this.keepSnapshot(key, snapshot);
        return false;
      }
    },
  ),
  broken(
    "trim takes every snapshot",
    gone,
    class extends MemoryStore {
      override trim(key: RunKey, before: number): boolean {
        this.keepSnapshot(key, { position: 0, format: 0, state: "" });
        return super.trim(key, before);
      }
    },
  ),
  broken(
    "a snapshot outlives its run",
    gone,
    class extends Keeping {
      protected override textOf({ tenant, run_id }: RunKey): string {
        return `${tenant}/${run_id}`;
      }
    },
  ),
];
