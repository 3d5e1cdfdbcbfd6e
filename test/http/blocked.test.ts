import { AgentRuntime } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { onDurableStore } from "../harness/durable-runtime.ts";

/* A client that waits for a blocked run gets an error in a stream, and 503 in mode sync. */

const post = (path: string, body: object): Request =>
  new Request(`http://localhost${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

/** A runtime with an agent whose step has another key in each replay. */
function setUp() {
  const clock = new FakeClock();
  const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true }, clock }));
  let calls = 0;
  runtime.register("agent", { durable: true }, async (_input, { step }) => {
    calls += 1;
    await step(`${calls}`, () => 1);
  });
  return { clock, runtime, handler: createAcpHandler(runtime) };
}

it.each(["stream", "sync"])("a client in mode %s is told that its run is blocked", async (mode) => {
  const { clock, runtime, handler } = setUp();
  const answering = handler(post("/runs", { agent_name: "agent", input: [], mode }));
  await clock.advance(2_000);
  const response = await answering;
  const text = await response.text();
  const [{ run_id } = {}] = (await runtime.stats()).blocked;
  const error = {
    code: "server_error",
    message:
      `Run ${run_id} is blocked: the registered code of "agent" does not match its history at position 2 ` +
      "(history: the result of 1#1; code: 2#1). Register matching code, or cancel the run.",
    data: { reason: "run_blocked" },
  };
  if (mode === "sync") expect([response.status, JSON.parse(text)]).toEqual([503, error]);
  else expect(text.split("\n\n").at(-2)).toBe(`event: error\ndata: ${JSON.stringify({ type: "error", error })}`);
});
