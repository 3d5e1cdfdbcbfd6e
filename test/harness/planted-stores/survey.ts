import { MemoryStore } from "cadenza";
import type {
  Backlog,
  LiveCount,
  LogTail,
  RunKey,
  StoredRun,
  SurveyPage,
  SurveyQuery,
  WorkerLease,
} from "cadenza/store";
import type { BrokenStore } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

const PAGES = "survey: the runs of all tenants, the newest first, each once in pages of any size";
const CONTINUED = "survey: a page continues behind a run that is deleted, while others are added";
const CONDITIONS = "survey: by every condition, and by several";
const CENSUS = "census: counts live runs by agent, version and status";
const COUNTS = "census, backlog: live runs are counted up to a thousand and one";
const LIVING = "living: the owners whose lease lasts, also those without runs";
const WORKERS = "workers: each owner with its lease and the number of its live runs";

/** Faults in `survey`, `tails`, `census`, `backlog` and `workers`. */
export const surveyFaults: readonly BrokenStore[] = [
  surveying("survey gives the runs of the first tenant alone", PAGES, (query) => ({ tenant: "", ...query })),
  surveying("survey ignores the tenant", CONDITIONS, ({ tenant: _, ...query }) => query),
  surveying("survey ignores the version", CONDITIONS, ({ version: _, ...query }) => query),
  surveying("survey ignores the statuses", CONDITIONS, ({ statuses: _, ...query }) => query),
  surveying("survey ignores the labels", CONDITIONS, ({ labels: _, ...query }) => query),
  surveying("survey ignores the beginning of the id", CONDITIONS, ({ idPrefix: _, ...query }) => query),
  surveying("survey gives sub-runs among roots", CONDITIONS, ({ roots: _, ...query }) => query),
  surveying("survey ignores the time", CONDITIONS, ({ createdAfter: _, ...query }) => query),
  broken(
    "survey counts runs to find the next page",
    CONTINUED,
    class extends MemoryStore {
      override survey({ after = 0, ...query }: SurveyQuery): SurveyPage<StoredRun> {
        const { runs } = super.survey({ ...query, limit: 10_000 });
        const end = after + query.limit;
        return { runs: runs.slice(after, end), next: end < runs.length ? end : null };
      }
    },
  ),
  broken(
    "of many runs whose ids begin alike, survey gives those with the lowest ids",
    "survey: rare runs among many are found in some page",
    class extends MemoryStore {
      override survey(query: SurveyQuery): SurveyPage<StoredRun> {
        if (query.idPrefix === undefined) return super.survey(query);
        const all = super.survey({ idPrefix: query.idPrefix, limit: 10_000 }).runs.map(({ key }) => key.run_id);
        const lowest = new Set(all.toSorted().slice(0, 1_000));
        const { runs, next } = super.survey(query);
        return { runs: runs.filter(({ key }) => lowest.has(key.run_id)), next };
      }
    },
  ),
  broken(
    "survey ends with the first page that is not full",
    "survey: rare runs among many are found in some page",
    class extends MemoryStore {
      override survey(query: SurveyQuery): SurveyPage<StoredRun> {
        const { agent_name, ...others } = query;
        const { runs, next } = super.survey({ ...others, limit: agent_name === undefined ? query.limit : 1_000 });
        const found = runs.filter(({ created }) => agent_name === undefined || created.agent_name === agent_name);
        if (found.length < query.limit) return { runs: found, next: null };
        return agent_name === undefined ? { runs, next } : super.survey(query);
      }
    },
  ),
  broken(
    "tails gives the first entries",
    "tails: the last entries of each run, in the order of the runs",
    class extends MemoryStore {
      override tails(runs: readonly RunKey[], count: number): readonly (LogTail | undefined)[] {
        return runs.map((key) => {
          const entries = super.read(key, 0, count);
          return entries && { from: 0, entries };
        });
      }
    },
  ),
  broken(
    "census takes all versions together",
    CENSUS,
    class extends MemoryStore {
      override census(): readonly LiveCount[] {
        return super.census().map((count) => ({ ...count, version: null }));
      }
    },
  ),
  broken(
    "census counts no more than a thousand runs",
    COUNTS,
    class extends MemoryStore {
      override census(): readonly LiveCount[] {
        return super.census().map((count) => ({ ...count, runs: Math.min(count.runs, 1_000) }));
      }
    },
  ),
  broken(
    "backlog takes due runs for waiting ones where it counts many",
    COUNTS,
    class extends MemoryStore {
      override backlog(): readonly Backlog[] {
        return super.backlog().map((one) => (one.due > 1_000 ? { ...one, waiting: one.due } : one));
      }
    },
  ),
  broken(
    "workers leaves out owners without runs",
    WORKERS,
    class extends MemoryStore {
      override workers(): readonly WorkerLease[] {
        return super.workers().filter(({ runs }) => runs > 0);
      }
    },
  ),
  broken(
    "living leaves out owners without runs",
    LIVING,
    class extends MemoryStore {
      override living(): readonly string[] {
        const idle = this.workers().filter(({ runs }) => runs === 0);
        return super.living().filter((owner) => !idle.some((one) => one.owner === owner));
      }
    },
  ),
  broken(
    "living keeps owners whose lease has ended",
    LIVING,
    class extends MemoryStore {
      override living(): readonly string[] {
        return this.workers().map(({ owner }) => owner);
      }
    },
  ),
  broken(
    "workers leaves out owners without a lease",
    WORKERS,
    class extends MemoryStore {
      override workers(): readonly WorkerLease[] {
        return super.workers().filter(({ until }) => until !== null);
      }
    },
  ),
];

/** A store whose `survey` gets another query. */
function surveying(fault: string, caughtBy: string, change: (query: SurveyQuery) => SurveyQuery): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override survey(query: SurveyQuery): SurveyPage<StoredRun> {
        return super.survey(change(query));
      }
    },
  );
}
