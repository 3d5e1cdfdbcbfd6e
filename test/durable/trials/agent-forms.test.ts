import { join } from "node:path";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { describe, it } from "vitest";
import { agentForms, fates, Place } from "../../harness/agent-forms.ts";
import { oneOf } from "../../harness/share.ts";
import { drivers, temporaryFolder } from "../../harness/sqlite-files.ts";
import { lastingStore } from "../../harness/store-proxy.ts";

/** A store that several processes open, one after the other, and what removes it. */
type Shared = () => { open(): Store; remove(): void };

const stores: Readonly<Record<string, Shared>> = {
  "in memory": () => {
    const store = lastingStore();
    return { open: () => store, remove: () => {} };
  },
  ...Object.fromEntries(
    drivers.map((driver): [string, Shared] => [
      `on ${driver.name}`,
      () => {
        const folder = temporaryFolder();
        const path = join(folder.path, "runs.db");
        const open = () => new SqliteStore(driver.open(path), { synchronous: "NORMAL", closeDatabase: true });
        return { open, remove: folder.remove };
      },
    ]),
  ),
};

describe.each(oneOf(3, Object.entries(stores)))("%s", (_store, shared) => {
  describe.concurrent.each(Object.entries(agentForms))("a run of %s", (_form, agent) => {
    it.each(Object.entries(fates))("%s", async (_fate, meet) => {
      const { open, remove } = shared();
      const place = new Place(agent, open);
      await place.open();
      try {
        await meet(place);
      } finally {
        await place.close();
        remove();
      }
    });
  });
});
