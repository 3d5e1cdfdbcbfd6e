import type { Scope } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { expect, it } from "vitest";
import type { Caller } from "../../src/http/caller.ts";
import { Disconnects } from "../../src/http/disconnects.ts";
import { Readers } from "../../src/http/readers.ts";
import { FakeClock } from "../harness/clock.ts";

/* What a service keeps of each run, for runs of two tenants that have the same id. */

const ID = "00000000-0000-4000-8000-000000000001";
const logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

it("the readers of each run are counted", () => {
  const readers = new Readers({ maxReaders: 10, maxReadersPerRun: 1 }, 10);
  const [red, blue, another] = [readers.enter("red"), readers.enter("blue"), readers.enter("red")];
  red.join({ tenant: "red", run_id: ID });
  blue.join({ tenant: "blue", run_id: ID });
  const join = (): void => another.join({ tenant: "red", run_id: ID });
  expect(join).toThrow(/Too many/);
  blue.leave();
  expect(join).toThrow(/Too many/);
  red.leave();
  join();
});

it.each([0, 1_000])("each run is cancelled when its own client has left, after %s ms", async (cancelAfterMs) => {
  const clock = new FakeClock();
  const cancelled: string[] = [];
  const callers = ["red", "blue"].map((tenant) => {
    const cancel = async (run_id: string): Promise<void> => void cancelled.push(`${tenant} ${run_id}`);
    const scope = { cancel, getRun: async () => ({ status: "in-progress" }) } as unknown as Scope;
    return { tenant, scope } as Caller;
  });
  const disconnects = new Disconnects(cancelAfterMs, clock, logger);
  const [red, blue] = callers.map((caller) => disconnects.enter(caller, ID));
  red?.(false);
  await clock.advance(2_000);
  expect(cancelled).toEqual([`red ${ID}`]);
  blue?.(true);
  await clock.advance(2_000);
  expect(cancelled).toEqual([`red ${ID}`]);
});

it("the streams of each run are counted", async () => {
  const clock = new FakeClock();
  const runtime = new AgentRuntime({ clock, ids: { uuid: () => ID, token: () => "token" } });
  runtime.register("asks", (_input, { ask }) => ask("Well?"));
  const handle = createAcpHandler(runtime, {
    authorize: ({ headers }) => ({ tenant: headers["x-tenant"] }),
    limits: { maxReadersPerRun: 1 },
  });
  const send = (tenant: string, path: string, body?: object): Promise<Response> =>
    handle(
      new Request(`http://localhost${path}`, {
        ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
        headers: { "x-tenant": tenant, accept: "text/event-stream", "content-type": "application/json" },
      }),
    );
  const input = [{ role: "user", parts: [{ content: "x" }] }];
  for (const tenant of ["acme", "blue"]) {
    const run = await send(tenant, "/runs", { agent_name: "asks", input, mode: "stream" });
    // The answer is being read.
    expect([tenant, run.status]).toEqual([tenant, 200]);
    expect((await send(tenant, `/runs/${ID}/events`)).status).toBe(503);
    await run.body?.cancel();
  }
  const open: Response[] = [];
  for (const tenant of ["acme", "blue"]) {
    open.push(await send(tenant, `/runs/${ID}/events`));
    expect([tenant, open.at(-1)?.status]).toEqual([tenant, 200]);
  }
  for (const response of open) await response.body?.cancel();
  await runtime.close({ drainMs: 0 });
});
