import type { StoreCheck, StoresUnderCheck } from "./check.ts";
import { check, expectFailure, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  ended,
  head,
  LEASE_MS,
  over,
  parts,
  runId,
  runKey,
  TAKER,
  TENANT,
  waiting,
  write,
} from "./samples.ts";

const mismatch = { position: 1, expected: "ask#1", asked: "step#1" };
const agents = [{ agent_name: "echo", version: null }];

/** A damaged run does not affect the others. Only for stores that a check can damage. */
export const damageChecks: readonly StoreCheck[] = [
  damageCheck(
    "a run whose first entry cannot be read is returned as damaged, and the others as usual",
    async (stores) => {
      const { first } = stores;
      const due = waiting(NOW, { blocked: mismatch });
      for (const n of [1, 2, 3]) await create(first, n, { head: due, idempotencyKey: `${n}` });
      await stores.damage(runKey(2), 0);
      for (const found of [
        await first.list({ tenant: TENANT, limit: 9, offset: 0 }),
        await first.blocked({ limit: 9 }),
      ]) {
        const told = found.map(({ key, created, head, position }) => [key.run_id, created === null, head, position]);
        const expected = [1, 2, 3].map((n) => [runId(n), n === 2, due, 1]);
        expectSame(
          told.toSorted(([one], [other]) => (String(one) < String(other) ? -1 : 1)),
          expected,
          "what is found",
        );
        for (const run of found) if (run.created === null) expectSame(run.error.run_id, runId(2), "whose error it is");
      }
      expectSame((await first.find(runKey(1)))?.key, runKey(1), "a sound run");
      await expectFailure(() => first.find(runKey(2)), "find of the damaged run");
      await expectFailure(() => first.findByIdempotencyKey(TENANT, "2"), "findByIdempotencyKey of the damaged run");
      expectSame((await first.findByIdempotencyKey(TENANT, "3"))?.key, runKey(3), "a sound run by its idempotency key");
    },
  ),

  damageCheck("take returns a damaged run as such, and it can be postponed and ended", async (stores) => {
    const { first } = stores;
    for (const n of [1, 2, 3]) await create(first, n, { head: waiting(NOW) });
    await stores.damage(runKey(1), 0);
    await first.renew(TAKER, LEASE_MS);
    const taken = await first.take({ owner: TAKER, agents, limit: 9 });
    expectSame(
      taken.map(({ key, created }) => [key.run_id, created === null]),
      [
        [runId(1), true],
        [runId(2), false],
        [runId(3), false],
      ],
      "taken",
    );
    const [run] = taken;
    expectSame(run?.head, waiting(NOW, { owner: TAKER, epoch: 2 }), "the head of the damaged run");
    await append(first, runKey(1), 1, write([], { head: waiting(NOW + 50, { epoch: 2 }) }), 2);
    expectSame(
      await first.take({ owner: TAKER, agents, limit: 9 }),
      [],
      "taken before the time to which it was put off",
    );
    expectWritten(await first.post(runKey(1), { entries: parts("a") }), "a post to it");
    const end = write([ended()], { head: over(NOW, { epoch: 3 }) });
    expectWritten(await first.append(runKey(1), { epoch: 2, position: 2 }, end), "its end");
  }),

  damageCheck("an entry that cannot be read fails the reads that include it, and no others", async (stores) => {
    const { first } = stores;
    for (const n of [1, 2]) {
      const key = await create(first, n);
      for (const position of [1, 2, 3, 4]) await append(first, key, position, write(parts(`${position}`)));
    }
    await stores.damage(runKey(1), 3);
    expectSame(await first.read(runKey(1), 1, 2), parts("1", "2"), "what comes before it");
    expectSame(await first.read(runKey(1), 4, 9), parts("4"), "what comes after it");
    for (const [from, limit] of [
      [0, 9],
      [3, 1],
      [2, 2],
    ] as const) {
      await expectFailure(() => first.read(runKey(1), from, limit), `${limit} entries from position ${from} on`);
    }
    expectSame((await first.read(runKey(2), 0, 9))?.length, 5, "the length of another log");
    expectSame((await first.find(runKey(1)))?.head, head(), "the head of the damaged run");
  }),
];

function damageCheck(
  name: string,
  body: (stores: Required<Pick<StoresUnderCheck, "damage">> & StoresUnderCheck) => Promise<void>,
): StoreCheck {
  return check(`damage: ${name}`, async (stores) => {
    const { damage } = stores;
    if (damage !== undefined) await body({ ...stores, damage });
  });
}
