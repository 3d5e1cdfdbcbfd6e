import { CadenzaError, MemoryStore } from "cadenza";
import type { Retention, RunKey, RunQuery, RunWrite, StoredRun } from "cadenza/store";
import type { Labels, RunStatus } from "../internals.ts";
import type { BrokenStore, Conflict } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

const SEVERAL = "list: with several statuses, in one order";
const LABELS = "list: with labels, the runs that have all of them with these values";
const ODD_LABELS = "list: labels of any text, and no two of them as one";
const PARENTS = "list: by parents, the direct sub-runs alone";

const EXAMINED = "list: of a number of runs to look at, the whole page or a refusal";
const TIMES = "list: by the time of creation";

/** Faults in `list`. */
export const listsFaults: readonly BrokenStore[] = [
  listing("list ignores the time from which runs were created", TIMES, ({ createdAfter: _, ...query }) => query),
  listing("list ignores the time before which runs were created", TIMES, ({ createdBefore: _, ...query }) => query),
  listing("list leaves out runs of the first time", TIMES, ({ createdAfter, ...query }) => ({
    ...query,
    createdAfter: createdAfter === undefined ? undefined : createdAfter + 1,
  })),
  listing("list takes runs of the last time", TIMES, ({ createdBefore, ...query }) => ({
    ...query,
    createdBefore: createdBefore === undefined ? undefined : createdBefore + 1,
  })),
  broken(
    "list by time goes by the time alone, and continues behind that of a run",
    "list: by the time of creation, where clocks disagree, each run once in the pages",
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        const { after, createdAfter, createdBefore, limit } = query;
        if (createdAfter === undefined && createdBefore === undefined) return super.list(query);
        const last = after === undefined ? undefined : super.find({ tenant: query.tenant, run_id: after });
        const found = super.list({ ...query, after: undefined, limit: 1_000 });
        const runs = found.toSorted((one, other) => other.created.at - one.created.at);
        return runs.filter(({ created }) => last === undefined || created.at < last.created.at).slice(0, limit);
      }
    },
  ),
  broken(
    "list gives the part of a page that it finds among the runs that it may look at",
    EXAMINED,
    class extends MemoryStore {
      override list({ most, ...query }: RunQuery): readonly StoredRun[] {
        const found = super.list(query);
        if (most === undefined || query.session_id !== undefined || query.parents !== undefined) return found;
        const { tenant } = query;
        const seen = super.list({ tenant, limit: most, offset: 0 }).map(({ key }) => key.run_id);
        return query.agent_name === "rare" ? found.filter(({ key }) => seen.includes(key.run_id)) : found;
      }
    },
  ),
  broken(
    "list refuses runs that an index selects, because it looks at others",
    EXAMINED,
    class extends MemoryStore {
      override list({ most, ...query }: RunQuery): readonly StoredRun[] {
        const { tenant } = query;
        const isFew = most === undefined || super.list({ tenant, limit: most + 1, offset: 0 }).length <= most;
        const found = super.list(query);
        if (isFew || found.length === query.limit || query.session_id !== undefined || query.parents !== undefined)
          return found;
        throw new CadenzaError("limit_reached", "Too many.", { limit: "maxExaminedRuns" });
      }
    },
  ),
  broken(
    "list refuses a session that has many runs",
    EXAMINED,
    class extends MemoryStore {
      override list({ most = Number.POSITIVE_INFINITY, ...query }: RunQuery): readonly StoredRun[] {
        const found = super.list(query);
        if (query.session_id === undefined || found.length <= most) return found;
        throw new CadenzaError("limit_reached", "Too many.", { limit: "maxExaminedRuns" });
      }
    },
  ),
  broken(
    "list refuses a page without the name of the limit",
    EXAMINED,
    class extends MemoryStore {
      override list({ most, ...query }: RunQuery): readonly StoredRun[] {
        if (most !== undefined && query.agent_name === "none") throw new CadenzaError("limit_reached", "Too many.");
        return super.list(query);
      }
    },
  ),
  broken(
    "list gives the oldest first",
    "list: the newest first, in pages",
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        return super
          .list({ ...query, limit: 1_000, offset: 0 })
          .toReversed()
          .slice(query.offset, query.offset + query.limit);
      }
    },
  ),
  broken(
    "list goes by the time of the entries",
    "list: the newest first, in pages",
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        const runs = super.list({ ...query, limit: 1_000, offset: 0 });
        return runs.toSorted((a, b) => b.created.at - a.created.at).slice(query.offset, query.offset + query.limit);
      }
    },
  ),
  broken(
    "list takes its page before it filters",
    "list: by agent, by session and by status, alone and together",
    class extends MemoryStore {
      override list({ statuses, ...query }: RunQuery): readonly StoredRun[] {
        return super.list(query).filter((run) => statuses === undefined || statuses.includes(run.head.status));
      }
    },
  ),
  broken(
    "list takes its page before it leaves sub-runs out",
    "list: with roots, sub-runs are left out before the page is taken",
    class extends MemoryStore {
      override list({ roots, ...query }: RunQuery): readonly StoredRun[] {
        return super.list(query).filter(({ created }) => roots !== true || created.parent === undefined);
      }
    },
  ),
  broken(
    "list keeps the status that a run began with",
    "list: the status is that of the last write",
    class extends MemoryStore {
      readonly #began = new Map<string, RunStatus>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#began.set(key.run_id, write.head.status);
        return super.create(key, write, idempotencyKey);
      }
      override list({ statuses, ...query }: RunQuery): readonly StoredRun[] {
        return super.list(query).filter((run) => hasBegunIn(this.#began.get(run.key.run_id), statuses));
      }
    },
  ),
  broken(
    "list takes an empty list of statuses for none",
    SEVERAL,
    class extends MemoryStore {
      override list({ statuses, ...query }: RunQuery): readonly StoredRun[] {
        return super.list(statuses?.length === 0 ? query : { ...query, statuses });
      }
    },
  ),
  broken(
    "list looks at the first status alone",
    SEVERAL,
    class extends MemoryStore {
      override list({ statuses, ...query }: RunQuery): readonly StoredRun[] {
        return super.list({ ...query, statuses: statuses?.slice(0, 1) });
      }
    },
  ),
  broken(
    "list gives one status after the other",
    SEVERAL,
    class extends MemoryStore {
      override list({ statuses, limit, offset, ...query }: RunQuery): readonly StoredRun[] {
        const of = (one: readonly RunStatus[] | undefined) =>
          super.list({ ...query, statuses: one, limit: 1_000, offset: 0 });
        const found = statuses === undefined ? of(undefined) : [...new Set(statuses)].flatMap((one) => of([one]));
        return found.slice(offset, offset + limit);
      }
    },
  ),
  broken(
    "list gives a run once for each status, also for a repeated one",
    SEVERAL,
    class extends MemoryStore {
      override list({ statuses, limit, offset, ...query }: RunQuery): readonly StoredRun[] {
        const all = super.list({ ...query, limit: 1_000, offset: 0 });
        const found = all.flatMap((run) =>
          statuses === undefined ? [run] : statuses.filter((one) => one === run.head.status).map(() => run),
        );
        return found.slice(offset, offset + limit);
      }
    },
  ),
  broken(
    "list ignores labels",
    LABELS,
    class extends MemoryStore {
      override list({ labels: _, ...query }: RunQuery): readonly StoredRun[] {
        return super.list(query);
      }
    },
  ),
  ...[
    ["list finds runs that have one of the labels", some] as const,
    ["list compares the names of labels alone", names] as const,
    ["list compares the values of labels alone", values] as const,
    ["list looks for the same labels and no others", same] as const,
  ].map(([fault, matches]) => broken(fault, LABELS, labelledBy(matches))),
  broken(
    "list takes its page before it looks at the labels",
    LABELS,
    class extends MemoryStore {
      override list({ labels, ...query }: RunQuery): readonly StoredRun[] {
        return super.list(query).filter((run) => every(run.created.labels ?? {}, labels ?? {}));
      }
    },
  ),
  broken(
    "list forgets the first label where fewer runs have another",
    LABELS,
    class extends MemoryStore {
      override list({ labels = {}, ...query }: RunQuery): readonly StoredRun[] {
        const { tenant } = query;
        const count = (label: Label) =>
          super.list({ tenant, labels: Object.fromEntries([label]), limit: 1_000, offset: 0 }).length;
        const [first, ...others] = Object.entries(labels);
        const forgets = first !== undefined && others.some((label) => count(label) < count(first));
        return super.list({ ...query, labels: forgets ? Object.fromEntries(others) : labels });
      }
    },
  ),
  broken(
    "list finds labels with those of all tenants",
    LABELS,
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        if (query.labels === undefined) return super.list(query);
        return ["acme", "other"].flatMap((tenant) => super.list({ ...query, tenant }));
      }
    },
  ),
  ...[
    ["labels are kept as names and values without a border", ([name, value]: Label) => name + value] as const,
    ["labels are kept with a colon as the border", ([name, value]: Label) => `${name}:${value}`] as const,
    ["labels are compared without their case", (label: Label) => label.join("\n").toLowerCase()] as const,
    ["labels are compared without spaces at their ends", (label: Label) => label.join("\n").trim()] as const,
    ["the text of labels ends at a NUL", (label: Label) => label.join("\n").replace(/\0.*/, "")] as const,
    [
      "labels go through UTF-8, which has no lone surrogates",
      (label: Label) => Buffer.from(label.join("\n")).toString(),
    ] as const,
  ].map(([fault, keyOf]) =>
    broken(
      fault,
      ODD_LABELS,
      labelledBy((labels, wanted) => {
        const keys = Object.entries(labels).map(keyOf);
        return Object.entries(wanted).every((label) => keys.includes(keyOf(label)));
      }),
    ),
  ),
  broken(
    "labels are objects, which have a `constructor`",
    ODD_LABELS,
    labelledBy((labels, wanted) =>
      Object.keys(wanted).every((name) => (name in {} ? true : labels[name] === wanted[name])),
    ),
  ),
  broken(
    "list ignores the parent",
    PARENTS,
    class extends MemoryStore {
      override list({ parents: _, ...query }: RunQuery): readonly StoredRun[] {
        return super.list(query);
      }
    },
  ),
  broken(
    "list gives the whole tree below a parent",
    PARENTS,
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        const { parents, ...all } = query;
        if (parents === undefined) return super.list(query);
        const children = super.list({ tenant: query.tenant, parents, limit: 1_000, offset: 0 });
        const below = children.flatMap(({ key }) =>
          this.list({ ...all, parents: [key.run_id], limit: 1_000, offset: 0 }),
        );
        return [...below, ...super.list(query)];
      }
    },
  ),
  broken(
    "list takes its page before it looks at the parent",
    PARENTS,
    class extends MemoryStore {
      override list({ parents, ...query }: RunQuery): readonly StoredRun[] {
        return super
          .list(query)
          .filter(({ created }) => parents === undefined || parents.includes(created.parent?.run_id ?? ""));
      }
    },
  ),
  broken(
    "list looks at the first parent alone",
    PARENTS,
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        return super.list({ ...query, parents: query.parents?.slice(0, 1) });
      }
    },
  ),
  broken(
    "list gives the sub-runs of one parent after the other",
    PARENTS,
    class extends MemoryStore {
      override list({ parents, ...query }: RunQuery): readonly StoredRun[] {
        if (parents === undefined) return super.list(query);
        return parents.flatMap((one) => super.list({ ...query, parents: [one] })).slice(0, query.limit);
      }
    },
  ),
  broken(
    "an empty list of parents is none",
    PARENTS,
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        return super.list(query.parents?.length === 0 ? { ...query, parents: undefined } : query);
      }
    },
  ),
  broken(
    "a parent is found with its sub-runs",
    PARENTS,
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        const found = super.list(query);
        const [run_id] = query.parents ?? [];
        const parent = run_id === undefined ? undefined : super.find({ tenant: query.tenant, run_id });
        return parent === undefined ? found : [...found, parent];
      }
    },
  ),
  broken(
    "the labels of a deleted run are kept for its id",
    "prune: a deleted run does not exist any more, nor does its idempotency key",
    class extends MemoryStore {
      readonly #kept = new Map<string, Labels>();
      override prune(retention: Retention): number {
        for (const { key, created } of super.list({ tenant: "acme", limit: 1_000, offset: 0 }))
          if (created.labels !== undefined) this.#kept.set(key.run_id, created.labels);
        return super.prune(retention);
      }
      override list({ labels, ...query }: RunQuery): readonly StoredRun[] {
        const found = super.list(query);
        if (labels === undefined) return found;
        return found.filter(({ key, created }) => every({ ...this.#kept.get(key.run_id), ...created.labels }, labels));
      }
    },
  ),
];

type Label = readonly [name: string, value: string];

/** A store that compares labels in its own way. */
function labelledBy(matches: (labels: Labels, wanted: Labels) => boolean): new () => MemoryStore {
  return class extends MemoryStore {
    override list({ labels, limit, offset, ...query }: RunQuery): readonly StoredRun[] {
      const all = super.list({ ...query, limit: 1_000, offset: 0 });
      const found = all.filter(({ created }) => labels === undefined || matches(created.labels ?? {}, labels));
      return found.slice(offset, offset + limit);
    }
  };
}

function every(labels: Labels, wanted: Labels): boolean {
  return Object.entries(wanted).every(([name, value]) => labels[name] === value);
}

function some(labels: Labels, wanted: Labels): boolean {
  const all = Object.entries(wanted);
  return all.length === 0 || all.some(([name, value]) => labels[name] === value);
}

/** A store that lists the runs of another query. */
function listing(fault: string, caughtBy: string, change: (query: RunQuery) => RunQuery): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        return super.list(change(query));
      }
    },
  );
}

function names(labels: Labels, wanted: Labels): boolean {
  return Object.keys(wanted).every((name) => Object.hasOwn(labels, name));
}

function values(labels: Labels, wanted: Labels): boolean {
  return Object.values(wanted).every((value) => Object.values(labels).includes(value));
}

function same(labels: Labels, wanted: Labels): boolean {
  const count = Object.keys(wanted).length;
  return count === 0 || (count === Object.keys(labels).length && every(labels, wanted));
}

function hasBegunIn(status: RunStatus | undefined, statuses: readonly RunStatus[] | undefined): boolean {
  return statuses === undefined || (status !== undefined && statuses.includes(status));
}
