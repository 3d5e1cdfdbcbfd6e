import { MemoryStore } from "cadenza";
import type { Retention, RunKey, RunWrite } from "cadenza/store";
import type { BrokenStore, Conflict } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

type Rules = NonNullable<Retention["rules"]>;

/** A store that prunes by other rules than it is given. */
function byOtherRules(change: (retention: Retention & { readonly rules: Rules }) => Retention) {
  return class extends MemoryStore {
    override prune(retention: Retention): number {
      const { rules } = retention;
      return super.prune(rules === undefined ? retention : change({ ...retention, rules }));
    }
  };
}

const firstCounts = "prune by rules: the first rule that matches a run counts for it, and no other";
const alike = "prune by rules: a tenant, an agent and labels that are like others";
const number = "prune by rules: beyond the number of a rule, the runs that ended first";
const needed = "prune by rules: never a run that has not ended, nor a sub-run that its parent needs";

/** Faults in `prune` with rules. */
export const retentionFaults: readonly BrokenStore[] = [
  broken(
    "prune knows no rules",
    firstCounts,
    byOtherRules(({ rules: _, ...retention }) => retention),
  ),
  broken(
    "the last rule that matches counts",
    firstCounts,
    byOtherRules((retention) => ({ ...retention, rules: retention.rules.toReversed() })),
  ),
  broken(
    "rules look at no labels",
    firstCounts,
    byOtherRules((retention) => ({ ...retention, rules: retention.rules.map(({ labels: _, ...rule }) => rule) })),
  ),
  broken(
    "rules look at one label only",
    alike,
    byOtherRules((retention) => ({
      ...retention,
      rules: retention.rules.map(({ labels = {}, ...rule }) => ({
        ...rule,
        labels: Object.fromEntries(Object.entries(labels).slice(0, 1)),
      })),
    })),
  ),
  broken(
    "rules look at no tenant",
    firstCounts,
    byOtherRules((retention) => ({ ...retention, rules: retention.rules.map(({ tenant: _, ...rule }) => rule) })),
  ),
  broken(
    "the empty tenant of a rule is any",
    alike,
    byOtherRules((retention) => ({
      ...retention,
      rules: retention.rules.map((rule) => ({ ...rule, tenant: rule.tenant === "" ? undefined : rule.tenant })),
    })),
  ),
  broken(
    "the general time holds besides that of a rule",
    firstCounts,
    class extends MemoryStore {
      override prune(retention: Retention): number {
        const deleted = super.prune(retention);
        return deleted + super.prune({ ...retention, rules: undefined });
      }
    },
  ),
  broken(
    "the general number is for runs that no rule matches",
    "prune by rules: the general number counts all runs",
    byOtherRules((retention) => ({ ...retention, maxRuns: Number.POSITIVE_INFINITY })),
  ),
  broken(
    "rules have no number",
    number,
    byOtherRules((retention) => ({
      ...retention,
      rules: retention.rules.map((rule) => ({ ...rule, maxRuns: Number.POSITIVE_INFINITY })),
    })),
  ),
  broken(
    "the number of a rule is one too high",
    number,
    byOtherRules((retention) => ({
      ...retention,
      rules: retention.rules.map((rule) => ({ ...rule, maxRuns: rule.maxRuns + 1 })),
    })),
  ),
  broken(
    "beyond the number of a rule the runs go that were created first",
    number,
    class extends MemoryStore {
      #created = 0;
      readonly #order = new Map<string, number>();
      override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
        this.#order.set(key.run_id, ++this.#created);
        return super.create(key, write, idempotencyKey);
      }
      override append(...[key, expected, write]: Parameters<MemoryStore["append"]>) {
        const { finished_at } = write.head;
        const finished = finished_at === null ? null : (this.#order.get(key.run_id) ?? 0);
        return super.append(key, expected, { ...write, head: { ...write.head, finished_at: finished } });
      }
    },
  ),
  broken(
    "a rule takes sub-runs of live runs",
    needed,
    class extends MemoryStore {
      override prune(retention: Retention): number {
        const doomed = super
          .list({ tenant: "acme", limit: 1_000, offset: 0 })
          .filter(({ created, head }) => head.finished_at !== null && created.agent_name === "mail");
        const isDue = (retention.rules ?? []).some(
          ({ agent_name, endedBefore }) => agent_name === "mail" && endedBefore > 1e9,
        );
        return (isDue ? super.delete(doomed.map(({ key }) => key)) : 0) + super.prune(retention);
      }
    },
  ),
  broken(
    "a sub-run that was needed stays for ever",
    needed,
    class extends MemoryStore {
      readonly #seen = new Set<string>();
      override prune(retention: Retention): number {
        const before = super.list({ tenant: "acme", limit: 1_000, offset: 0 });
        if (retention.rules === undefined || !before.some(({ created }) => created.parent !== undefined))
          return super.prune(retention);
        if (this.#seen.size > 0) return 0;
        for (const { key } of before) this.#seen.add(key.run_id);
        return super.prune(retention);
      }
    },
  ),
  broken(
    "rules are applied once",
    "prune by rules: what ended since the last call, whichever rules others have",
    class extends MemoryStore {
      #calls = 0;
      override prune(retention: Retention): number {
        this.#calls += 1;
        return super.prune(
          this.#calls > 3 ? { ...retention, endedBefore: Number.NEGATIVE_INFINITY, rules: undefined } : retention,
        );
      }
    },
  ),
];
