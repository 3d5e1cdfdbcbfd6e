import { MemoryStore } from "cadenza";
import type { Expected, RunKey, RunPosition, RunPost, RunWrite, StoredRun, TakeRequest } from "cadenza/store";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken, refusal } from "./broken-store.ts";

const leaves = "inbox: an owner that leaves is refused as `arrived` unless it takes all, and nothing changes";

/** Faults in what is written to runs that other processes execute. */
export const inboxFaults: readonly BrokenStore[] = [
  broken(
    "a post goes into the log of an owner",
    "inbox: a post to a run with an owner lies in its inbox, and its log and head stay",
    class extends MemoryStore {
      override post(key: RunKey, post: RunPost): Conflict {
        const run = this.find(key);
        if (run === undefined || run.head.owner === null || post.status !== undefined) return super.post(key, post);
        const { head, position } = run;
        return refusal(super.append(key, { epoch: head.epoch, position }, { entries: post.entries, head }));
      }
    },
  ),
  broken(
    "a post goes into the inbox of another tenant's run",
    "inbox: a run of another tenant with the same id has an inbox of its own",
    class extends MemoryStore {
      override post(key: RunKey, post: RunPost): Conflict {
        const foreign = { ...key, tenant: "acme" };
        return super.post(this.find(foreign, "with inbox")?.inbox === undefined ? key : foreign, post);
      }
    },
  ),
  found("an empty inbox is given", "inbox: a run for which nothing has arrived has none", (run) => ({
    inbox: [],
    ...run,
  })),
  broken(
    "what has arrived hinders the owner",
    "inbox: the owner writes as if nothing had arrived",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const run = this.find(key, "with inbox");
        if (run?.inbox === undefined) return super.append(key, expected, write);
        return { conflict: "changed", epoch: run.head.epoch, position: run.position + 1 };
      }
    },
  ),
  taking("a write takes all that is there", "inbox: a write takes what it names, and leaves the rest in order", {
    when: ({ head }) => head.owner !== null,
  }),
  broken(
    "a refused write takes what it names",
    "inbox: a refused write takes nothing",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        const answer = super.append(key, expected, write);
        const run = this.find(key);
        if (answer?.conflict !== "changed" || run === undefined || write.takes === undefined) return answer;
        const { head, position } = run;
        super.append(key, { epoch: head.epoch, position }, { entries: [], head, takes: write.takes });
        return answer;
      }
    },
  ),
  taking("an owner that leaves takes what it does not know", leaves, {
    when: ({ head, takes }) => head.owner === null && head.finished_at === null && takes !== "all",
  }),
  taking("an owner that leaves takes all with it", "inbox: an owner that leaves with `all` leaves it in the log", {
    when: ({ takes }) => takes === "all",
  }),
  broken(
    "what has arrived for a dead owner is lost",
    "inbox: it goes to the end of the log with a dead owner, by take and by claim",
    class extends MemoryStore {
      override take(request: TakeRequest): readonly StoredRun[] {
        return super.take(request).map((run) => ({ ...run, position: 1 }));
      }
    },
  ),
  broken(
    "a cancel is not seen before its owner has it",
    "inbox: a run with an owner is cancelling once a cancel has arrived, until it ends",
    class extends MemoryStore {
      override post(key: RunKey, { status, ...post }: RunPost): Conflict {
        return super.post(
          key,
          status === undefined || this.find(key)?.head.owner === null ? { ...post, status } : post,
        );
      }
    },
  ),
  taking("a run ends without its cancel", "inbox: a run cannot end before a cancel that has arrived is taken", {
    when: ({ head }) => head.finished_at !== null,
  }),
  broken(
    "what is left goes behind the end of a log",
    "inbox: what arrives as a run ends stays in its inbox, and is deleted with it",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        return super.append(key, expected, write.head.finished_at === null ? write : { ...write, takes: "all" });
      }
    },
  ),
  broken(
    "moved looks at logs alone",
    "inbox: `moved` gives what has arrived, and each run without it once",
    class extends MemoryStore {
      override moved(known: readonly RunPosition[]): readonly RunPosition[] {
        return super.moved(known).filter(({ inbox }) => inbox === undefined);
      }
    },
  ),
  found(
    "an inbox is given from its end",
    "inbox: posts of one process keep their order, whatever else is written",
    (run) => (run.inbox === undefined ? run : { ...run, inbox: run.inbox.toReversed() }),
  ),
];

/** A store that gives another run with its inbox. */
function found(fault: string, caughtBy: string, change: (run: StoredRun) => StoredRun): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
        const run = super.find(key, how);
        return run === undefined || how === undefined ? run : change(run);
      }
    },
  );
}

/** A store in which some writes take all that has arrived, whatever they name. */
function taking(fault: string, caughtBy: string, { when }: { when: (write: RunWrite) => boolean }): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        if (!when(write)) return super.append(key, expected, write);
        const takes = this.find(key, "with inbox")?.inbox?.map(({ id }) => id);
        return super.append(key, expected, { ...write, takes });
      }
    },
  );
}
