import type { Entry } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { play } from "../harness/world/play.ts";
import { scenarios } from "../harness/world/scenarios.ts";
import type { World } from "../harness/world/world.ts";

/* A process that does not execute a run may post some entries to the end of its log: here between any two entries. */

/** Posts a cancel as soon as the log has that many entries, from a process that has neither the run nor its code. */
function cancelAt(position: number): { readonly disturb: (world: World) => void; readonly isPosted: () => boolean } {
  let isPosted = false;
  const post = async (world: World): Promise<void> => {
    const [root] = await world.store.list({ tenant: "", limit: 1, offset: 0, roots: true });
    if (isPosted || root === undefined || root.position < position || root.head.finished_at !== null) return;
    isPosted = true;
    const entries: readonly Entry[] = [{ type: "cancel-requested", at: world.now }];
    await world.store.post(root.key, { entries, status: "cancelling", unblocks: true, due: "look" });
  };
  return { disturb: (world) => void post(world), isPosted: () => isPosted };
}

describe.each([
  { store: "a store that answers at once", late: false },
  { store: "a store that answers later", late: true },
])("on $store", ({ late }) => {
  it.each(scenarios.filter(({ cancelWhen }) => cancelWhen === undefined))(
    "a cancel may be posted between any two entries: $name",
    async (scenario) => {
      const { log } = await play(scenario, { late });
      let posted = 0;
      for (let position = 1; position < log.length; position++) {
        const { disturb, isPosted } = cancelAt(position);
        const played = await play(scenario, { late, disturb });
        if (!isPosted()) continue;
        posted += 1;
        expect({ position, violations: played.world.violations }).toEqual({ position, violations: [] });
        // An end that was being written when the post came may win.
        expect(["cancelled", "failed"]).toContain(played.run.status);
        expect(played.log.filter(({ type }) => type === "cancel-requested")).toHaveLength(1);
      }
      expect(posted).toBeGreaterThan(0);
    },
  );
});
