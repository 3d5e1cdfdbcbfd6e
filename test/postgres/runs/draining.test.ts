import { AgentRuntime, defineAgent } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { openPostgresStore } from "cadenza/postgres";
import { expect, inject, it } from "vitest";
import { drainsBesideWaits } from "../../harness/drains/beside.ts";
import { drains } from "../../harness/drains/drains.ts";
import type {} from "../../harness/internals.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";
import { deferred } from "../../harness/promises.ts";
import { share } from "../../harness/share.ts";
import type { SentEvent } from "../../http/client.ts";
import { Client, parseEvents } from "../../http/client.ts";

const missing = missingServer(18);
const PARTS = 6;

/** Two web processes and two workers that are stopped while a client follows a run. */
it.skipIf(missing !== undefined)(
  `a reader goes on without a gap when its web process and its worker are stopped${missing ? `: ${missing}` : ""}`,
  async () => {
    const pool = newPool(18, { max: 16 });
    const schema = newSchema();
    const finished = new Map<number, number>();
    const gate = deferred();
    const atGate = deferred();
    const report = defineAgent("report", { durable: true }, async function* (_input, { step }) {
      for (let part = 0; part < PARTS; part++) {
        if (part === PARTS / 2) {
          atGate.resolve();
          await gate.promise;
        }
        await step(`part ${part}`, () => void finished.set(part, (finished.get(part) ?? 0) + 1));
        yield `part ${part}`;
      }
    });
    const start = async (work: boolean) =>
      new AgentRuntime({ store: await openPostgresStore({ pool, schema }), agents: [report], ...(!work && { work }) });
    const clientOf = (runtime: AgentRuntime) =>
      new Client({ base: "http://web.test", fetch: createAcpHandler(runtime) });
    const [web, otherWeb, worker] = await Promise.all([start(false), start(false), start(true)]);

    const body = { agent_name: "report", mode: "stream", input: [{ parts: [{ content: "" }] }] };
    const stream = await clientOf(web).open("POST", "/runs", { body });
    const reading = stream.text();
    await atGate.promise;
    const otherWorker = await start(true);
    const [{ left }] = await Promise.all([worker.close({ drainMs: 0 }), web.close()]);
    expect(left).toHaveLength(1);
    const text = await reading;
    expect(text).toMatch(/\n\nretry: 1000\nevent: error\ndata: \{.*"reason":"runtime_closed".*\}\n\n$/);
    const seen = parseEvents(text).slice(0, -1);

    const client = clientOf(otherWeb);
    const path = `/runs/${stream.headers.get("run-id")}/events`;
    const headers = { accept: "text/event-stream", "last-event-id": seen.at(-1)?.id ?? "0" };
    const rest = await client.open("GET", path, { headers });
    gate.resolve();
    seen.push(...parseEvents(await rest.text()));
    const idsOf = (events: readonly SentEvent[]) => events.map(({ id }) => Number(id));
    expect(idsOf(seen)).toEqual(seen.map((_, index) => index + 1));
    expect(seen.map(({ data }) => data)).toEqual((await client.get(path)).json["events"]);
    expect(seen.at(-1)?.event).toBe("run.completed");
    expect([...finished.values()]).toEqual(Array.from({ length: PARTS }, () => 1));
    await Promise.all([otherWorker.close(), otherWeb.close()]);
    await pool.end();
  },
);

it.skipIf(missing !== undefined)(
  `workers that get SIGTERM under load hand their runs on at once, and no step that is done runs once more${missing ? `: ${missing}` : ""}`,
  { timeout: 60_000 },
  async () => {
    const address = inject("postgres")[18];
    if ("missing" in address) throw new Error(address.missing);
    const { host, port } = address;
    const { wrong, handedOn, median } = await drains({
      server: { host, port },
      schema: newSchema(),
      times: share(2, 1),
      drainMs: 400,
    });
    expect(wrong).toEqual([]);
    expect(handedOn).toBeGreaterThan(0);
    // Long before a lease ends. `npm run stress -- drains` says how long it takes on a quiet machine.
    expect(median).toBeLessThan(5_000);
  },
);

it.skipIf(missing !== undefined)(
  `workers that get SIGTERM during steps beside waits begin no step twice${missing ? `: ${missing}` : ""}`,
  { timeout: 180_000 },
  async () => {
    const address = inject("postgres")[18];
    if ("missing" in address) throw new Error(address.missing);
    const { host, port } = address;
    const place = { host, port, schema: newSchema() };
    const { wrong, bodies } = await drainsBesideWaits({
      place,
      seed: `${Date.now()}`,
      times: share(2, 1),
      drainMs: 1_500,
    });
    expect(wrong).toEqual([]);
    expect(bodies).toBeGreaterThan(0);
  },
);
