import { expect, inject, it } from "vitest";
import { missingServer, newSchema } from "../../harness/postgres-stores.ts";
import { watches } from "../../harness/watches/watches.ts";

const missing = missingServer(18);

it.skipIf(missing !== undefined)(
  `each event of each run is told, and each question mailed once, while processes are killed${missing ? `: ${missing}` : ""}`,
  { timeout: 60_000 },
  async () => {
    const address = inject("postgres")[18];
    if ("missing" in address) throw new Error(address.missing);
    const { host, port } = address;
    const { wrong, ...figures } = await watches({
      server: { host, port },
      schema: newSchema(),
      seed: "watching",
      runs: 24,
      atOnce: 12,
      kills: 3,
      mailsBetweenKills: 8,
      openMs: 500,
    });
    expect(wrong).toEqual([]);
    expect(figures.kills).toBeGreaterThanOrEqual(3);
    expect(figures.mails).toBeGreaterThan(0);
  },
);
