import type { RunHead, Store } from "../../core/ports.ts";
import { COUNTED } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, expectWritten, NOW } from "./check.ts";
import { append, create, ended, head, over, parts, runKey, waiting, write } from "./samples.ts";

/** The head of a run that executes in its slot. */
const holding = head({ holds_slot: true });
/** The head of a run that waits for a permit. */
const queued: RunHead = head({ status: "created", owner: null, due_at: NOW });

/** `lines`: which runs wait for which slot. */
export const lineChecks: readonly StoreCheck[] = [
  check("lines: how many runs hold a slot and wait for it, and which is next", async ({ first, second, clock }) => {
    expectSame(await first.lines({ limit: 9 }), [], "the lines of an empty store");
    const slot = { key: "agent echo", max: 2 };
    for (const n of [1, 2]) await create(first, n, { slot, head: holding });
    await create(first, 3, { slot: { key: "free", max: 1 }, head: queued });
    await create(first, 4, { slot, head: waiting(NOW + 9) });
    expectSame(await first.lines({ limit: 9 }), [], "the lines while no run waits for a permit");
    clock.set(NOW + 5);
    const odd = { tenant: "other", created: { agent_name: "odd", version: "2" } };
    await create(first, 5, { ...odd, slot, head: { ...queued, due_at: NOW + 4 } });
    clock.set(NOW + 6);
    await create(first, 6, { slot: { ...slot, max: 1 }, head: { ...queued, due_at: NOW + 1 } });
    const next = { key: runKey(5, "other"), agent_name: "odd", version: "2", due_at: NOW + 4 };
    const line = { key: slot.key, max: 2, held: 2, waiting: 2, first: next };
    expectSame(await second.lines({ limit: 9 }), [line], "the lines");
  }),

  check("lines: a run that gets its permit, is looked at or ends waits for none", async ({ first }) => {
    const slot = { key: "session 1", max: 1 };
    await create(first, 1, { slot, head: holding });
    for (const n of [2, 3, 4]) await create(first, n, { slot, head: queued });
    expectSame(await nextOf(first), [1, 3, runKey(2)], "at first");
    await append(first, runKey(1), 1, write([ended()], { head: over() }));
    expectSame(await nextOf(first), [1, 2, runKey(3)], "once the first run has the permit");
    expectWritten(await first.post(runKey(3), { entries: parts("answer"), due: "look" }), "a post for a look");
    expectSame(await nextOf(first), [1, 1, runKey(4)], "while the next one is looked at");
    await append(first, runKey(3), 2, write([], { head: queued }));
    await append(first, runKey(4), 1, write([ended()], { head: over() }));
    expectSame(await nextOf(first), undefined, "once the last one has ended, and the other is still looked at");
  }),

  check("lines: in pages, in the order of the keys", async ({ first }) => {
    const keys = ["d", "a/1", "e", "c", "b"];
    for (const [n, key] of keys.entries()) {
      const slot = { key, max: 1 };
      await create(first, 10 * n, { slot, head: holding });
      for (const more of [1, 2]) await create(first, 10 * n + more, { slot, head: queued });
    }
    const page = async (after?: string) => (await first.lines({ after, limit: 2 })).map(({ key }) => key);
    expectSame(await page(), ["a/1", "b"], "the first page");
    expectSame(await page("b"), ["c", "d"], "the next page");
    expectSame(await page("bb"), ["c", "d"], "the page after a key that is not there");
    expectSame(await page("d"), ["e"], "the last page");
    expectSame(await page("e"), [], "the page after it");
  }),

  check("lines: a key may be any text", async ({ first }) => {
    const slot = { key: '"echo\0/\ud800', max: 1 };
    await create(first, 1, { slot, head: holding });
    await create(first, 2, { slot, head: queued });
    expectSame(
      (await first.lines({ limit: 9 })).map(({ key }) => key === slot.key),
      [true],
      "whether the key is the same",
    );
    expectSame(await first.lines({ after: slot.key, limit: 9 }), [], "the lines behind it");
  }),

  check("lines: waiting runs are counted up to a thousand and one", async ({ first }) => {
    const slot = { key: "session 1", max: 1 };
    await create(first, 0, { slot, head: holding });
    const numbers = Array.from({ length: COUNTED + 1 }, (_, n) => n + 1);
    await create(first, numbers.length, { slot, head: queued });
    await Promise.all(numbers.slice(0, -1).map((n) => create(first, n, { slot, head: queued })));
    expectSame(await nextOf(first), [1, COUNTED, runKey(numbers.length)], "the line of one more than that");
  }),
];

/** How many runs hold the only slot, how many wait for it, and which is next. Undefined: no run waits. */
async function nextOf(store: Store): Promise<unknown> {
  const [line] = await store.lines({ limit: 9 });
  return line && [line.held, line.waiting, line.first.key];
}
