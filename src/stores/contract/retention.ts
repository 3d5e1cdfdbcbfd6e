import type { Labels } from "../../core/log.ts";
import type { Retention, RuleRetention, Store } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import { append, create, createEnded, ended, keep, over, runId, runKey, TENANT, write } from "./samples.ts";

const EVER = Number.POSITIVE_INFINITY;
const NEVER = Number.NEGATIVE_INFINITY;
/** Longer than a store may leave the ends of runs to later calls, in milliseconds. */
const LONG_MS = 3_600_000;

/** `prune` with rules. */
export const retentionChecks: readonly StoreCheck[] = [
  check("prune by rules: the first rule that matches a run counts for it, and no other", async ({ first }) => {
    const agents = ["echo", "mail", "audit"] as const;
    let n = 0;
    for (const tenant of [TENANT, "other", ""])
      for (const agent_name of agents)
        for (const labels of [{}, { hold: "legal" }, { hold: "no", kind: "a" }] as readonly Labels[])
          await createEnded(first, ++n, 10 * n, { tenant, created: { agent_name, labels } });
    const rules = [
      rule({ labels: { hold: "legal" } }),
      rule({ agent_name: "mail", tenant: TENANT, endedBefore: 55 }),
      rule({ agent_name: "mail", endedBefore: EVER }),
      rule({ tenant: "other", labels: { kind: "a", hold: "no" }, endedBefore: 121 }),
    ];
    expectSame(await first.prune({ ...keep, rules }), 6, "how many were deleted");
    expectSame(await left(first, n), without(n, [4, 12, 13, 15, 22, 24]), "the runs that are left");
    expectSame(await first.prune({ ...keep, rules }), 0, "how many were deleted with the same rules again");
    // The general time is for runs that no rule matches.
    expectSame(
      await first.prune({ ...keep, endedBefore: 200, rules }),
      7,
      "how many were deleted for the general time",
    );
    const others = [1, 3, 7, 9, 10, 16, 19];
    expectSame(await left(first, n), without(n, [4, 12, 13, 15, 22, 24, ...others]), "the runs that are left then");
  }),

  check("prune by rules: a tenant, an agent and labels that are like others", async ({ first }) => {
    await createEnded(first, 1, 10, { tenant: "" });
    await createEnded(first, 2, 10, { tenant: "ac" });
    await createEnded(first, 3, 10, { created: { agent_name: "echo2" } });
    await createEnded(first, 4, 10, { created: { labels: { order: "1" } } });
    await createEnded(first, 5, 10, { created: { labels: { order: "12", other: "1" } } });
    const gone = (given: Partial<RuleRetention>) =>
      first.prune({ ...keep, rules: [rule({ ...given, endedBefore: 20 })] });
    for (const given of [{ tenant: "a" }, { agent_name: "ech" }, { agent_name: "ECHO" }, { labels: { order: "2" } }])
      expectSame(await gone(given), 0, `how many were deleted for ${JSON.stringify(given)}`);
    expectSame(await gone({ labels: { order: "1", other: "1" } }), 0, "how many were deleted for two labels");
    expectSame(await gone({ labels: { order: "1" } }), 1, "how many were deleted for one label");
    expectSame(await gone({ tenant: "" }), 1, "how many were deleted for the empty tenant");
    expectSame(await left(first, 5), [3, 5], "the runs of other tenants that are left");
    expectSame(await gone({ agent_name: "echo2" }), 1, "how many were deleted for an agent");
    expectSame(await gone({}), 2, "how many were deleted for all others");
  }),

  check("prune by rules: beyond the number of a rule, the runs that ended first", async ({ first }) => {
    for (let n = 1; n <= 8; n++)
      await create(first, n, {
        created: { agent_name: n % 2 === 0 ? "mail" : "echo" },
        tenant: n > 4 ? "other" : TENANT,
      });
    for (const [index, n] of [8, 1, 6, 2, 3, 4, 7, 5].entries())
      await append(first, runKey(n, n > 4 ? "other" : TENANT), 1, write([ended(index + 1)], { head: over(index + 1) }));
    const rules = (maxRuns: number) => [rule({ agent_name: "mail", maxRuns })];
    expectSame(await first.prune({ ...keep, rules: rules(4) }), 0, "how many were deleted below the number");
    expectSame(await first.prune({ ...keep, rules: rules(2) }), 2, "how many were deleted beyond it");
    expectSame(await left(first, 8), without(8, [8, 6]), "the runs that are left");
    const several = [rule({ agent_name: "mail", maxRuns: 2, endedBefore: 5 }), rule({ tenant: TENANT, maxRuns: 1 })];
    expectSame(await first.prune({ ...keep, rules: several }), 2, "how many were deleted for a time and a number");
    expectSame(await left(first, 8), [3, 4, 5, 7], "the runs that are left then");
    expectSame(await first.prune({ ...keep, rules: rules(0) }), 1, "how many were deleted with the number 0");
  }),

  check("prune by rules: the general number counts all runs", async ({ first }) => {
    for (let n = 1; n <= 4; n++) await createEnded(first, n, n, { created: { agent_name: n < 3 ? "mail" : "echo" } });
    const rules = [rule({ agent_name: "mail", maxRuns: 2 })];
    expectSame(await first.prune({ ...keep, maxRuns: 3, rules }), 1, "how many were deleted");
    expectSame(await left(first, 4), [2, 3, 4], "the runs that are left");
  }),

  check("prune by rules: never a run that has not ended, nor a sub-run that its parent needs", async (stores) => {
    const { first, second, clock } = stores;
    const below = (n: number) => ({
      created: { parent: { run_id: runId(n), key: "run:echo#1", depth: 1 }, agent_name: "mail" },
    });
    await create(first, 1);
    await create(first, 2, below(1));
    await createEnded(first, 3, NOW, below(1));
    await createEnded(first, 4, NOW, below(2));
    await createEnded(first, 5, NOW, below(9));
    clock.set(NOW + LONG_MS);
    const rules = [rule({ agent_name: "mail", endedBefore: clock.now() }), rule({ agent_name: "echo" })];
    expectSame(await first.prune({ ...keep, rules }), 1, "how many were deleted");
    expectSame(await left(first, 5), [1, 2, 3, 4], "the runs that are left");
    for (const n of [2, 1]) await append(first, runKey(n), 1, write([ended(clock.now())], { head: over(clock.now()) }));
    // A store may delete a sub-run only when its parent has ended for as long.
    clock.set(NOW + 2 * LONG_MS);
    const [its, others] = rules as [RuleRetention, RuleRetention];
    const later: Retention = { ...keep, rules: [{ ...its, endedBefore: clock.now() }, others] };
    expectSame(await second.prune(later), 3, "how many were deleted when the parents have ended");
    expectSame(await left(first, 5), [1], "the run that is left");
  }),

  check(
    "prune by rules: what ended since the last call, whichever rules others have",
    async ({ first, second, clock }) => {
      const rules = [rule({ agent_name: "mail", maxRuns: 100 }), rule({ labels: { kind: "a" } })];
      const others = [rule({ labels: { kind: "a" } }), rule({ agent_name: "mail", maxRuns: 130 })];
      let n = 0;
      for (let round = 0; round < 4; round++) {
        const at = NOW + round * LONG_MS;
        for (let count = 0; count < 90; count++) {
          const labels: Labels = count % 3 === 0 ? { kind: "a" } : {};
          await createEnded(first, ++n, at + count, {
            created: { agent_name: count % 3 === 1 ? "echo" : "mail", labels },
          });
        }
        clock.set(at + LONG_MS / 2);
        const endedBefore = at;
        await (round % 2 === 0 ? first : second).prune({ ...keep, endedBefore, rules });
        await second.prune({ ...keep, rules: others });
      }
      // Of the agent `echo` those of the last round, of `mail` the newest 100, unless they have the label.
      const ofMail = Array.from({ length: n }, (_, index) => index + 1).filter((one) => (one - 1) % 3 !== 1);
      const kept = new Set([...ofMail.slice(-100), ...Array.from({ length: 90 }, (_, index) => n - index)]);
      expectSame(
        await left(first, n),
        [...kept].toSorted((one, other) => one - other),
        "the runs that are left",
      );
    },
  ),
];

/** A rule that keeps all runs that it matches, but for what is given. */
function rule(given: Partial<RuleRetention>): RuleRetention {
  return { endedBefore: NEVER, maxRuns: EVER, ...given };
}

/** The numbers of the runs that a store has, of those up to a number. */
async function left(store: Store, last: number): Promise<readonly number[]> {
  const found = new Set<string>();
  for (const tenant of [TENANT, "other", ""])
    for (const { key } of await store.list({ tenant, limit: 10_000, offset: 0 })) found.add(key.run_id);
  return without(last, []).filter((n) => found.has(runId(n)));
}

/** The numbers up to one, without some. */
function without(last: number, gone: readonly number[]): readonly number[] {
  return Array.from({ length: last }, (_, index) => index + 1).filter((n) => !gone.includes(n));
}
