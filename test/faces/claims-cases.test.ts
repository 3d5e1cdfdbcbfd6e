import { expect, it } from "vitest";
import { playClaims } from "../harness/claims/world.ts";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";

it.each(["acp", "chat", "agUi"] as const)(
  "no body over %s has an effect that its user may not have",
  async (face) => {
    const seed = seededRandom().bits();
    const { statuses, wrong } = await playClaims(face, seed, amount(100_000, 400));
    expect({ seed, wrong: wrong.slice(0, 3) }).toEqual({ seed, wrong: [] });
    for (const status of [200, 422]) expect([status, statuses.get(status) ?? 0]).not.toEqual([status, 0]);
  },
  LONG_MS,
);
