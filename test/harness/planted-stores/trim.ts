import { MemoryStore } from "cadenza";
import type { Entry, LogTail, RunKey } from "cadenza/store";
import type { BrokenStore } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

const kept = "trim: the first entry and all from a generation on stay, in their places";
const later = "trim: another generation, later";
const parts = "trim: in parts, and between two of them the log has a beginning and an end";
const others = "trim: nothing of other runs, and nothing of a run that does not exist";
const told = "trim: the last entries of a run are told with their position";

/** A store that hides entries of runs that were trimmed, as if they were deleted. */
class Hiding extends MemoryStore {
  protected readonly hidden = new Map<string, Set<number>>();

  protected hide({ run_id }: RunKey, from: number, to: number): void {
    const hidden = this.hidden.get(run_id) ?? new Set();
    for (let position = from; position < to; position++) hidden.add(position);
    this.hidden.set(run_id, hidden);
  }

  override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
    const hidden = this.hidden.get(key.run_id);
    if (hidden === undefined) return super.read(key, from, limit);
    const all = super.read(key, 0, Number.MAX_SAFE_INTEGER);
    return all?.filter((_, position) => position >= from && !hidden.has(position)).slice(0, limit);
  }
}

/** A store whose `trim` deletes entries from a position on, and so many too many. */
function wrongly(what: string, from: number, tooMany: number): BrokenStore {
  return broken(
    what,
    kept,
    class extends Hiding {
      override trim(key: RunKey, before: number): boolean {
        this.hide(key, from, before + tooMany);
        return false;
      }
    },
  );
}

/** Faults in `trim`. */
export const trimFaults: readonly BrokenStore[] = [
  broken(
    "trim deletes nothing",
    kept,
    class extends MemoryStore {
      override trim(): boolean {
        return false;
      }
    },
  ),
  wrongly("trim deletes the first entry", 0, 0),
  wrongly("trim deletes the beginning of the generation", 1, 1),
  wrongly("trim leaves an entry before the generation", 1, -1),
  broken(
    "what is trimmed later comes back with an earlier generation",
    later,
    class extends Hiding {
      override trim(key: RunKey, before: number): boolean {
        this.hidden.delete(key.run_id);
        this.hide(key, 1, before);
        return false;
      }
    },
  ),
  broken(
    "trim deletes the first entries first",
    parts,
    class extends Hiding {
      override trim(key: RunKey, before: number): boolean {
        const to = Math.min(before, (this.hidden.get(key.run_id)?.size ?? 0) + 500);
        this.hide(key, 1, to);
        return to < before;
      }
    },
  ),
  broken(
    "trim deletes the entries of all runs",
    others,
    class extends Hiding {
      override trim(_key: RunKey, before: number): boolean {
        for (const { key } of this.survey({ limit: 99 }).runs) this.hide(key, 1, before);
        return false;
      }
    },
  ),
  broken(
    "tails counts the entries that are left",
    told,
    class extends MemoryStore {
      override tails(runs: readonly RunKey[], count: number): readonly (LogTail | undefined)[] {
        return super.tails(runs, count).map((tail) => tail && { ...tail, from: Math.min(tail.from, 1) });
      }
    },
  ),
];
