import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { reply, textOf } from "../../harness/runtimes.ts";
import { isRead } from "../../harness/store-proxy.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/* The session of a run that named none is created when another run joins it. Two processes may create it at once. */

/** Two processes. The second one's writes can be held back. */
function open() {
  const replicas = inMemory();
  let holding: Promise<void> | undefined;
  let passes: string | undefined;
  const first = replicas.start();
  const second = replicas.start({}, async (call, method) => {
    if (!isRead(method) && method !== passes) await holding;
    return call();
  });
  for (const { runtime } of [first, second]) {
    runtime.register("agent", { durable: true }, async function* (input, { session }) {
      const history = await session.history();
      yield `${textOf(input[0] ?? { parts: [] })} after ${history.length}`;
    });
    runtime.register("asks", { durable: true }, async (_input, { session, ask }) => {
      await ask("?");
      return `after ${(await session.history()).length}`;
    });
    runtime.register("sets", { durable: true }, (_input, { session }) => session.setState({ seats: 2 }));
  }
  return {
    clock: replicas.clock,
    first: first.runtime,
    second: second.runtime,
    /** `method`: one whose calls are not held back. */
    hold(method?: string) {
      passes = method;
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

it("a session that two processes create at once, as runs join one of its runs, keeps the messages of both", async () => {
  const { first, session_id } = await joinedAtOnce("agent");

  const { history } = await first.getSession(session_id);
  const inputs = history.filter(({ role }) => role === "user").map(textOf);
  expect([...inputs].sort()).toEqual(["one", "three", "two"]);
  expect(inputs[0]).toBe("one");
  expect(history).toHaveLength(6);
});

it("a session that two processes create at once keeps a state that was set meanwhile", async () => {
  const { first, session_id } = await joinedAtOnce("sets");
  expect((await first.getSession(session_id)).state).toEqual({ seats: 2 });
});

const SESSION = "00000000-0000-4000-8000-0000000000a1";

/** A run of the second process has joined a session that the first one then deletes, or replaces, and uses again. */
async function joinedBefore(change: "deleted" | "replaced") {
  const { clock, first, second, hold } = open();
  const agent_name = "agent";
  await first.createRun({ agent_name, input: "one", session_id: SESSION });
  const letGo = hold();
  const late = second.createRun({ agent_name, input: "late", session_id: SESSION });
  late.catch(() => {});
  await clock.settle();
  if (change === "deleted") await first.deleteSession(SESSION);
  const session = { history: [{ role: "user", parts: [{ content: "other" }] }] } as const;
  const options = change === "replaced" ? { session } : {};
  await first.createRun({ agent_name, input: "two", session_id: SESSION }, options);
  await first.createRun({ agent_name, input: "three", session_id: SESSION });
  letGo();
  await clock.advance(200);
  return { first, run: await late };
}

it.each(["deleted", "replaced"] as const)(
  "a run that joins a session sees none of the later messages when the session was %s as it joined",
  async (change) => {
    const { first, run } = await joinedBefore(change);
    expect(run.status).toBe("completed");
    expect(run.output.map(textOf)).toEqual(["late after 0"]);
    const { history } = await first.getSession(SESSION);
    expect(history.slice(-2).map(textOf)).toEqual(["late", "late after 0"]);
  },
);

it("a run that makes a session sees none of the later messages when the session was deleted before the store had the run", async () => {
  const { clock, first, second, hold } = open();
  const { run_id: session_id } = await first.createRun({ agent_name: "agent", input: "one" });
  const letGo = hold("makeSession");
  const late = second.createRun({ agent_name: "asks", input: "late", session_id });
  late.catch(() => {});
  await clock.settle();
  await first.deleteSession(session_id);
  letGo();
  const { run_id, await_request } = await late;
  expect(await_request).not.toBeNull();
  const run = await first.createRun({ agent_name: "agent", input: "two", session_id });
  expect(run.output.map(textOf)).toEqual(["two after 0"]);

  const { output } = await second.resume({ run_id, await_resume: reply("yes") });
  expect(output.map(textOf)).toEqual(["after 0"]);
});
