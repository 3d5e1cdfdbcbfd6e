import { afterAll, beforeAll, describe, it } from "vitest";
import { Client } from "./client.ts";
import { answerFacts } from "./facts/answers.ts";
import { endpointFacts } from "./facts/endpoints.ts";
import { eventFacts } from "./facts/events.ts";
import { refusalFacts } from "./facts/refusals.ts";
import { requestFacts } from "./facts/requests.ts";
import type { OpenPlace } from "./mounts.ts";
import { mounts } from "./mounts.ts";
import { makeWorld } from "./world.ts";

/** The facts that hold for every mount of the service. */
const facts = [...endpointFacts, ...refusalFacts, ...requestFacts, ...answerFacts, ...eventFacts];

describe.each(mounts)("$name", ({ open, keeps }) => {
  const runtime = makeWorld();
  let place: OpenPlace;
  let client: Client;

  beforeAll(async () => {
    place = await open(runtime, { limits: { maxBodyBytes: 200_000 } });
    client = new Client(place);
  });
  afterAll(async () => {
    await place.close();
    await runtime.close({ drainMs: 0 });
  });

  it.each(facts.filter(({ needs }) => needs === undefined || !keeps.includes(needs)))("$name", async ({ check }) => {
    await check(client);
  });
});
