import { MemoryStore } from "cadenza";
import type { Entry, Expected, RunKey, RunQuery, RunWrite, SessionKey, StoredRun, StoredSession } from "cadenza/store";
import type { BrokenStore, Conflict, Written } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

/** Faults in `read` and `find`, and between tenants. */
export const readsFaults: readonly BrokenStore[] = [
  broken(
    "read gives one entry too many",
    "read: any range of the log, also across several writes",
    class extends MemoryStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        return super.read(key, from, limit + 1);
      }
    },
  ),
  broken(
    "read takes whole writes",
    "read: any range of the log, also across several writes",
    class extends MemoryStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        return super.read(key, from - (from % 3), limit);
      }
    },
  ),
  broken(
    "read gives an empty list for a run that is not there",
    "read: an empty list beyond the end, and undefined for a missing run",
    class extends MemoryStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] {
        return super.read(key, from, limit) ?? [];
      }
    },
  ),
  broken(
    "read gives undefined beyond the end",
    "read: an empty list beyond the end, and undefined for a missing run",
    class extends MemoryStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        const entries = super.read(key, from, limit);
        return entries?.length === 0 ? undefined : entries;
      }
    },
  ),
  broken(
    "text goes through UTF-8, which has no lone surrogates",
    "read: every JSON value is returned unchanged",
    class extends MemoryStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        return super
          .read(key, from, limit)
          ?.map((entry) => JSON.parse(JSON.stringify(entry).replaceAll("\\ud800", "�")));
      }
    },
  ),
  broken(
    "objects are copied by assignment, which loses a key `__proto__`",
    "read: every JSON value is returned unchanged",
    class extends MemoryStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        return super.read(key, from, limit)?.map((entry) => assigned(entry) as Entry);
      }
    },
  ),
  broken(
    "a text column holds 65,535 characters",
    "read: a text of a mebibyte is returned whole",
    class extends MemoryStore {
      override read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
        return super.read(key, from, limit)?.map((entry) => {
          if (entry.type !== "emitted" || entry.kind !== "part") return entry;
          return { ...entry, part: { ...entry.part, content: String(entry.part.content).slice(0, 65_535) } };
        });
      }
    },
  ),
  broken(
    "find ignores the tenant",
    "tenants: a run of another tenant does not exist",
    class extends MemoryStore {
      override find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
        return super.find(key, how) ?? super.find({ ...key, tenant: "acme" }, how);
      }
    },
  ),
  broken(
    "append ignores the tenant",
    "tenants: a run of another tenant does not exist",
    class extends MemoryStore {
      override append(key: RunKey, expected: Expected, write: RunWrite): Written {
        return super.append({ ...key, tenant: "acme" }, expected, write);
      }
    },
  ),
  broken(
    "a tenant and a name are put together without a border",
    "tenants: each has its own runs, sessions and idempotency keys under the same names",
    class extends MemoryStore {
      override session({ tenant, session_id }: SessionKey): StoredSession | undefined {
        return super.session({ tenant, session_id });
      }
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        const joined = idempotencyKey === null ? null : key.tenant + idempotencyKey;
        const other = joined === null ? undefined : super.findByIdempotencyKey("all", joined);
        if (other !== undefined) return { conflict: "key_used", run_id: other.key.run_id };
        if (joined !== null)
          super.create(
            { tenant: "all", run_id: `${key.tenant}/${key.run_id}` },
            { entries: write.entries, head: write.head },
            joined,
          );
        return super.create(key, write, idempotencyKey);
      }
    },
  ),
  broken(
    "a list of labelled runs begins behind the run of another tenant",
    "tenants: what one reads and writes does not depend on others with the same names",
    class extends MemoryStore {
      override list(query: RunQuery): readonly StoredRun[] {
        const page = super.list({ ...query, after: undefined });
        if (query.after === undefined) return page;
        const first = super.survey({ idPrefix: query.after, limit: 10 }).runs.at(-1);
        const at = page.findIndex(({ key }) => key.run_id === first?.key.run_id && first.key.tenant === query.tenant);
        return page.slice(at + 1);
      }
    },
  ),
  broken(
    "a session is held by the runs of all tenants",
    "tenants: what one reads and writes does not depend on others with the same names",
    class extends MemoryStore {
      override deleteSession(key: SessionKey): boolean {
        const users = super.survey({ limit: 1_000 }).runs.filter(({ head }) => head.finished_at === null);
        const isUsed = users.some(({ created }) => created?.session_id === key.session_id);
        return super.session(key) === undefined || (!isUsed && super.deleteSession(key));
      }
    },
  ),
];

/** A deep copy made with `copy[key] = value`. */
function assigned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(assigned);
  if (typeof value !== "object" || value === null) return value;
  const copy: Record<string, unknown> = {};
  for (const [key, member] of Object.entries(value)) copy[key] = assigned(member);
  return copy;
}
