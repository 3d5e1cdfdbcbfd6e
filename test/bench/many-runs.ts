import type { Store } from "cadenza/store";
import { NOW } from "../../src/stores/contract/check.ts";
import { append, create, ended, head, over, part, waiting, write } from "../../src/stores/contract/samples.ts";

/** How many runs are stored, and how many of these have not ended. */
export const STORED = 100_000;
export const LIVE = 1_000;
const AT_ONCE = 500;

/** Ended runs of several tenants, of which some failed; and live ones: half of them wait for an answer. */
export async function fill(store: Store): Promise<void> {
  const add = async (n: number): Promise<void> => {
    const tenant = `tenant ${n % 10}`;
    const origin = {
      at: NOW + n,
      labels: { order: String(n) },
      agent_name: n % 50_000 === 7 ? "rare" : "echo",
      version: `v${n % 5}`,
    };
    const isLive = n % (STORED / LIVE) === 0;
    const waits = isLive && n % (2 * (STORED / LIVE)) === 0;
    const key = await create(store, n, { tenant, created: origin, head: head({ owner: `owner ${n % 4}` }) });
    const output = [part("Looking for trains…"), part("Found three.")];
    if (waits) {
      const question = { type: "awaited", at: NOW + n, await_id: "ask#1", parts: [], emitted: 2 } as const;
      await append(store, key, 1, write([...output, question], { head: waiting() }));
    } else if (isLive) await append(store, key, 1, write(output, { head: head({ owner: `owner ${n % 4}` }) }));
    else {
      const outcome = n % 20 === 1 ? "failed" : "completed";
      await append(
        store,
        key,
        1,
        write([...output, ended(NOW + n, outcome)], { head: over(NOW + n, { status: outcome }) }),
      );
    }
  };
  for (let from = 0; from < STORED; from += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => add(from + index)));
  }
  for (const owner of [0, 1, 2, 3]) await store.renew(`owner ${owner}`, 1_000_000);
}
