import { EventEmitter } from "node:events";
import { AgentRuntime } from "cadenza";
import { createAcpHandler, createAcpNodeListener } from "cadenza/http";
import { expect, it } from "vitest";

/* A reader that takes all at once, as one in the same process, or behind a socket that is not full. */

/** More pieces of 32 Ki characters than are written in one turn. */
const MOST = 9;

it.each(["", "/events"])("a near reader of a long run%s leaves turns of the event loop to other work", async (path) => {
  const runtime = new AgentRuntime();
  runtime.register("long", () => "x".repeat(8_000_000));
  const { run_id } = await runtime.createRun({ agent_name: "long", input: "" });
  const url = `/runs/${run_id}${path}`;

  const web = turns();
  const answer = await createAcpHandler(runtime)(new Request(`http://localhost${url}`));
  for await (const _ of answer.body ?? []) web.count();
  expect(web.end()).toBeLessThanOrEqual(MOST);

  const node = turns();
  await new Promise<void>((resolve) => {
    const request = Object.assign(new EventEmitter(), {
      method: "GET",
      url,
      headers: { host: "localhost" },
      resume() {},
    });
    const write = (): boolean => {
      node.count();
      return true;
    };
    const response = Object.assign(new EventEmitter(), {
      ...{ headersSent: false, writableFinished: false, destroyed: false },
      ...{ writeHead() {}, destroy() {}, write, end: () => resolve() },
    });
    createAcpNodeListener(runtime)(request, response);
  });
  expect(node.end()).toBeLessThanOrEqual(MOST);
  await runtime.close();
});

/** Counts something in each turn of the event loop. */
function turns(): { count(): void; end(): number } {
  let now = 0;
  let most = 0;
  let all = 0;
  let isOver = false;
  const turn = (): void => {
    now = 0;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  return {
    count() {
      now += 1;
      all += 1;
      most = Math.max(most, now);
    },
    end() {
      isOver = true;
      expect(all).toBeGreaterThan(100);
      return most;
    },
  };
}
