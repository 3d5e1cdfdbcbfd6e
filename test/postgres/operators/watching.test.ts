import { expect, inject, it } from "vitest";
import { missingServer, newSchema } from "../../harness/postgres-stores.ts";
import { share } from "../../harness/share.ts";
import { watches } from "../../harness/watches/watches.ts";

const missing = missingServer(18);
const KILLS = share(3, 2);

it.skipIf(missing !== undefined)(
  `each event of each run is told, and each question mailed once, while processes are killed${missing ? `: ${missing}` : ""}`,
  { timeout: 180_000 },
  async () => {
    const address = inject("postgres")[18];
    if ("missing" in address) throw new Error(address.missing);
    const { host, port } = address;
    const { wrong, ...figures } = await watches({
      server: { host, port },
      schema: newSchema(),
      seed: "watching",
      runs: share(24, 12),
      atOnce: 12,
      kills: KILLS,
      mailsBetweenKills: 8,
      openMs: 500,
    });
    expect(wrong).toEqual([]);
    expect(figures.kills).toBeGreaterThanOrEqual(KILLS);
    expect(figures.mails).toBeGreaterThan(0);
  },
);
