import { expect, it } from "vitest";
import { deferred } from "../harness/promises.ts";
import { textOf } from "../harness/runtimes.ts";
import { isRead } from "../harness/store-proxy.ts";
import { inMemory } from "../harness/world/replicas.ts";

/* The session of a run that named none is created when another run joins it. Two processes may create it at once. */

/** Two processes. The second one's writes can be held back. */
function open() {
  const replicas = inMemory();
  let holding: Promise<void> | undefined;
  const first = replicas.start();
  const second = replicas.start({}, async (call, method) => {
    if (!isRead(method)) await holding;
    return call();
  });
  for (const { runtime } of [first, second]) {
    runtime.register("agent", { durable: true }, async function* (input, { session }) {
      const history = await session.history();
      yield `${textOf(input[0] ?? { parts: [] })} after ${history.length}`;
    });
    runtime.register("sets", { durable: true }, (_input, { session }) => session.setState({ seats: 2 }));
  }
  return {
    clock: replicas.clock,
    first: first.runtime,
    second: second.runtime,
    hold() {
      const gate = deferred();
      holding = gate.promise;
      return gate.resolve;
    },
  };
}

/** The second process has found no session when the first one creates it and adds to it. */
async function joinedAtOnce(agent_name: string) {
  const { clock, first, second, hold } = open();
  const { run_id: session_id } = await first.createRun({ agent_name: "agent", input: "one" });
  const letGo = hold();
  const late = second.createRun({ agent_name: "agent", input: "three", session_id });
  late.catch(() => {});
  await clock.settle();
  expect((await first.createRun({ agent_name, input: "two", session_id })).status).toBe("completed");
  letGo();
  await clock.advance(200);
  expect((await late).status).toBe("completed");
  return { first, session_id };
}

it("keeps the messages of both", async () => {
  const { first, session_id } = await joinedAtOnce("agent");

  const { history } = await first.getSession(session_id);
  const inputs = history.filter(({ role }) => role === "user").map(textOf);
  expect([...inputs].sort()).toEqual(["one", "three", "two"]);
  expect(inputs[0]).toBe("one");
  expect(history).toHaveLength(6);
});

it("keeps a state that was set meanwhile", async () => {
  const { first, session_id } = await joinedAtOnce("sets");
  expect((await first.getSession(session_id)).state).toEqual({ seats: 2 });
});
