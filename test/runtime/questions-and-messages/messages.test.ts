import { AgentRuntime, CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { deferred, never } from "../../harness/promises.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { drain, refusal, setUp, typesOf } from "../../harness/runtimes.ts";
import { HANDED_BACK, TIMERS, unlessReplayed } from "../../harness/unless-replayed.ts";
import { again, begin, codeOf, outcome, reasonOf, shown } from "../../harness/waiting-agents.ts";

type Options = Parameters<AgentRuntime["createRun"]>[1];

/** Sends one message after the other, each of which is taken before the next is sent. */
async function send({ runtime, clock }: Setup, run_id: string, name: string, ...list: unknown[]): Promise<void> {
  for (const data of list) {
    expect(await runtime.send({ to: run_id, name, data })).toEqual({ run_id });
    await clock.settle();
  }
}

const cents = z.object({ cents: z.coerce.number().int() });

describe("a message", () => {
  it.each([
    { data: { cents: 4_000, note: null } },
    { data: "text" },
    { data: "" },
    { data: 0 },
    { data: -1.5 },
    { data: false },
    { data: null },
    { data: [] },
    { data: [[{}], "x", null] },
    { data: { "": { "\u2028": "\ud800" } } },
    { data: JSON.parse('{"__proto__":{"polluted":true},"constructor":1}') as unknown },
  ])("of the data $data arrives as it was sent", async ({ data }) => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) => JSON.stringify(await receive("mail")));
    expect(await shown(set, run_id)).toBe("in-progress");
    await send(set, run_id, "mail", data);
    expect(await shown(set, run_id)).toBe(`completed: ${JSON.stringify(data)}`);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  it("that comes before its receive begins is kept for it", async () => {
    const set = setUp();
    const gate = deferred();
    const run_id = await begin(set, async ({ receive, step }) => {
      await step("work", () => gate.promise);
      return JSON.stringify([await receive("mail"), await receive("mail")]);
    });
    await send(set, run_id, "mail", 1, 2);
    gate.resolve();
    expect(await shown(set, run_id)).toBe("completed: [1,2]");
  });

  it("to a run that waits for a slot is kept for it", async () => {
    const set = setUp();
    const gate = deferred();
    const body = async ({ receive, step }: Parameters<Parameters<typeof begin>[1]>[0]) => {
      await step("work", () => gate.promise);
      return `${await receive("mail", { timeoutMs: 0, default: "nothing" })}`;
    };
    const first = await begin(set, body, { concurrency: { max: 1 } });
    const second = await again(set);
    expect(await shown(set, second)).toBe("created");
    await send(set, second, "mail", "early");
    gate.resolve();
    expect([await shown(set, first), await shown(set, second)]).toEqual(["completed: nothing", "completed: early"]);
  });

  it("that comes after the deadline of a receive is left for the next one", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) =>
      [await outcome(receive("mail", { timeoutMs: 100 })), await outcome(receive("mail", { timeoutMs: 1_000 }))].join(),
    );
    await set.clock.advance(200);
    await send(set, run_id, "mail", "late");
    expect(await shown(set, run_id)).toBe('completed: receive_timeout,"late"');
  });

  it("goes to the receives of its name in the order in which they began, each once", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) => {
      const taking = ["a", "b", "a", "b", "a"].map((name) => receive(name));
      return JSON.stringify(await Promise.all(taking));
    });
    await send(set, run_id, "b", "b1");
    await send(set, run_id, "a", "a1", "a2");
    await send(set, run_id, "b", "b2");
    await send(set, run_id, "other", "x");
    expect(await shown(set, run_id)).toBe("in-progress");
    await send(set, run_id, "a", "a3");
    expect(await shown(set, run_id)).toBe('completed: ["a1","b1","a2","b2","a3"]');
  });

  it("is taken in the order of arrival, also if all have come at once", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) => {
      const got: unknown[] = [];
      while (got.length < 20) got.push(await receive("mail"));
      return JSON.stringify(got);
    });
    const list = Array.from({ length: 20 }, (_, index) => index);
    await Promise.all(list.map((data) => set.runtime.send({ to: run_id, name: "mail", data })));
    await set.clock.advance(100);
    expect(await shown(set, run_id)).toBe(`completed: ${JSON.stringify(list)}`);
  });

  it("is copied: neither its sender nor an agent changes it for another", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive, step }) => {
      const got = (await receive("mail")) as { list: number[] };
      const before = JSON.stringify(got);
      got.list.push(9);
      await step("stay", () => 1);
      return before;
    });
    const data = { list: [1] };
    const sending = set.runtime.send({ to: run_id, name: "mail", data });
    data.list.push(2);
    await sending;
    expect(await shown(set, run_id)).toBe('completed: {"list":[1]}');
  });

  it("is no event: a reader sees nothing of it, and the run shows no question", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) => void (await receive("mail")));
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "in-progress", await_request: null });
    await send(set, run_id, "mail", 1);
    expect(typesOf(await drain(set.runtime.events(run_id)))).toEqual([
      "run.created",
      "run.in-progress",
      "run.completed",
    ]);
  });
});

describe("a receive", () => {
  it("leaves a message to one that has waited for longer, also if an operation before both has ended", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) => {
      const gate = receive("gate");
      const first = receive("mail");
      await gate;
      return JSON.stringify(await Promise.all([first, receive("mail")]));
    });
    await send(set, run_id, "gate", 0);
    await send(set, run_id, "mail", 1, 2);
    expect(await shown(set, run_id)).toBe("completed: [1,2]");
  });

  it("leaves a message to one that has waited for longer", async () => {
    const set = setUp();
    const gate = deferred();
    const run_id = await begin(set, async ({ receive, emit }) => {
      const first = receive("mail");
      const second = (async () => {
        await gate.promise;
        await emit("second");
        return receive("mail");
      })();
      return JSON.stringify(await Promise.all([first, second]));
    });
    await shown(set, run_id);
    await set.runtime.send({ to: run_id, name: "mail", data: 1 });
    // The second one begins before the first has been handed the message.
    gate.resolve();
    await send(set, run_id, "mail", 2);
    expect(await shown(set, run_id)).toBe("completed: second|[1,2]");
  });

  it.each([
    { sent: { cents: "40" }, got: '{"cents":40}' },
    { sent: { cents: 1, more: true }, got: '{"cents":1}' },
    { sent: { cents: 1.5 }, got: "message_rejected" },
    { sent: null, got: "message_rejected" },
    { sent: "40", got: "message_rejected" },
  ])("with a schema makes $got of $sent, and the message is consumed", async ({ sent, got }) => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) =>
      [await outcome(receive("mail", { schema: cents })), await outcome(receive("mail", { timeoutMs: 0 }))].join(),
    );
    await send(set, run_id, "mail", sent);
    expect(await shown(set, run_id)).toBe(`completed: ${got},receive_timeout`);
  });

  it("says what was wrong with a message, and takes the next one", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive, emit }) => {
      const refused = await receive("mail", { schema: cents }).catch((error: unknown) => error);
      if (CadenzaError.is(refused)) await emit(JSON.stringify(refused.issues?.map(({ path }) => path)));
      return JSON.stringify(await receive("mail", { schema: cents }));
    });
    await send(set, run_id, "mail", { cents: "many" }, { cents: 5 });
    expect(await shown(set, run_id)).toBe('completed: [["cents"]]|{"cents":5}');
  });

  it("with a schema that validates later takes messages in order", async () => {
    const set = setUp();
    const slow = z.number().refine(async () => true);
    const run_id = await begin(set, async ({ receive }) =>
      JSON.stringify(await Promise.all([receive("mail", { schema: slow }), receive("mail")])),
    );
    await send(set, run_id, "mail", 1, 2);
    expect(await shown(set, run_id)).toBe("completed: [1,2]");
  });

  it("comes with its facts: who has sent it and when, or that it is the default", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) => {
      const parsed = await receive("mail", { schema: cents, details: true });
      const plain = await receive("mail", { details: true });
      const none = await receive("mail", { timeoutMs: 500, default: null, details: true });
      return JSON.stringify([parsed, plain, none]);
    });
    const sent = set.clock.now();
    await set.runtime.scope({ principal: "ada" }).send({ to: run_id, name: "mail", data: { cents: "5" } });
    await set.runtime.send({ to: run_id, name: "mail", data: "two" });
    await set.clock.settle();
    await set.clock.advance(500);
    const said = JSON.parse((await shown(set, run_id)).slice("completed: ".length));
    expect(said).toMatchObject([
      { value: { cents: 5 }, by: "ada", how: "message" },
      { value: "two", by: null, how: "message" },
      { value: null, by: null, how: "default" },
    ]);
    expect(said.map(({ at }: { at: number }) => at >= sent && at <= set.clock.now())).toEqual([true, true, true]);
    expect(said[2].at).toBeGreaterThan(said[1].at);
  });

  it("that is rejected and not caught fails the run with that reason", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("mail", { schema: cents }));
    await send(set, run_id, "mail", 0.5);
    expect(await outcome(set.runtime.getRun(run_id).then(reasonOf))).toBe('"message_rejected"');
    expect((await set.runtime.getRun(run_id)).error?.message).toMatch(
      /^The receive receive:mail#1 of run \S+ got a message that does not match its schema: Invalid input/,
    );
  });

  it.each([
    { options: { timeoutMs: 500 }, got: "receive_timeout" },
    { options: { timeoutMs: 500, default: { cents: "none" } }, got: '{"cents":"none"}' },
    { options: { timeoutMs: 500, default: undefined }, got: "receive_timeout" },
    { options: { timeoutMs: 500, default: null }, got: "null" },
    { options: { timeoutMs: 500, default: "unfit", schema: cents }, got: '"unfit"' },
  ])("with $options gives $got when its time is over", async ({ options, got }) => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => outcome(receive("mail", options as object)));
    await set.clock.advance(499);
    expect(await shown(set, run_id)).toBe("in-progress");
    await set.clock.advance(1);
    expect(await shown(set, run_id)).toBe(`completed: ${got}`);
  });

  it.each([{ timeoutMs: undefined }, { timeoutMs: Number.POSITIVE_INFINITY }, { timeoutMs: Number.MAX_VALUE }])(
    "with $timeoutMs waits for as long as it takes",
    async ({ timeoutMs }) => {
      const set = setUp();
      const run_id = await begin(
        set,
        async ({ receive }) => `${await receive("mail", { timeoutMs, default: "late" })}`,
      );
      await set.clock.advance(10_000);
      await send(set, run_id, "mail", "at last");
      expect(await shown(set, run_id)).toBe("completed: at last");
    },
  );

  it("without a default that nothing arrives for fails the run with that reason", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("mail", { timeoutMs: 1 }));
    await set.clock.advance(10);
    expect(reasonOf(await set.runtime.getRun(run_id))).toBe("receive_timeout");
  });

  it("with a timeoutMs of 0 takes what is there, and does not wait", async () => {
    const set = setUp();
    const gate = deferred();
    const run_id = await begin(set, async ({ receive, step }) => {
      const poll = () => outcome(receive("mail", { timeoutMs: 0 }));
      const before = await poll();
      await step("work", () => gate.promise);
      return [before, await poll(), await poll(), await poll()].join();
    });
    await send(set, run_id, "mail", 1, 2);
    gate.resolve();
    expect(await shown(set, run_id)).toBe("completed: receive_timeout,1,2,receive_timeout");
  });

  it.each([
    ["", {}],
    [5, {}],
    [undefined, {}],
    ["mail", null],
    ["mail", { schema: {} }],
    ["mail", { timeoutMs: -1 }],
    ["mail", { timeoutMs: Number.NaN }],
    ["mail", { timeoutMs: "5s" }],
    ["mail", { signal: {} }],
    ["mail", { name: "x" }],
  ])("of %j with the options %j is refused", async (name, options) => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => outcome(receive(name as string, options as object)));
    expect(await shown(set, run_id)).toBe("completed: invalid_argument");
  });

  it("inside the body of a step is refused", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ receive, step }) => step("work", () => outcome(receive("mail"))));
    expect(await shown(set, run_id)).toBe("completed: nested_operation");
  });

  it("of a cancelled run rejects", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive, emit }) => {
      await emit(await outcome(receive("mail")));
      await emit(await outcome(receive("mail")));
    });
    await set.runtime.cancel(run_id);
    await set.clock.advance(10);
    expect(await shown(set, run_id)).toBe("cancelled: run_cancelled|run_cancelled");
  });

  it("does not count for the time-out of its run, and gives back the slot of its agent", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("mail"), { timeoutMs: 1_000, concurrency: { max: 1 } });
    const second = await again(set);
    await set.clock.advance(5_000);
    for (const one of [run_id, second]) {
      expect(await shown(set, one)).toBe("in-progress");
      await send(set, one, "mail", "done");
      expect(await shown(set, one)).toBe("completed: done");
    }
    expect((await set.runtime.stats()).agents["agent"]).toMatchObject({ active_ms: 0, waiting_ms: 10_000 });
  });

  unlessReplayed(TIMERS)("leaves no timer, however it ends", async () => {
    const set = setUp({
      retention: { maxAgeMs: Number.POSITIVE_INFINITY, maxIdleSessionMs: Number.POSITIVE_INFINITY },
    });
    const options = { timeoutMs: 10_000, default: null };
    const taken = await begin(set, ({ receive }) => outcome(receive("mail", options)));
    await send(set, taken, "mail", 1);
    const dropped = await begin(set, ({ receive }) => void receive("mail", options));
    const cancelled = await begin(set, ({ receive }) => receive("mail", options));
    await set.runtime.cancel(cancelled);
    await set.clock.advance(1_000);
    const all = await Promise.all([taken, dropped, cancelled].map((id) => shown(set, id)));
    expect(all).toEqual(["completed: 1", "completed", "cancelled"]);
    expect(set.clock.timers).toBe(0);
  });
});

describe("an idempotency key", () => {
  it("lets a repeated message arrive once, also after it was taken", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ receive }) =>
      [await receive("mail"), await receive("mail"), await receive("mail")].join(),
    );
    const one = { to: run_id, name: "mail", data: "one" };
    for (let time = 0; time < 3; time++)
      expect(await set.runtime.send(one, { idempotencyKey: "k1" })).toEqual({ run_id });
    await set.clock.settle();
    await set.runtime.send(one, { idempotencyKey: "k1" });
    await set.runtime.send({ ...one, data: "two" }, { idempotencyKey: "k2" });
    await set.runtime.send(one, { idempotencyKey: "k1" });
    expect(await shown(set, run_id)).toBe("in-progress");
    // Without a key the same message arrives again.
    await set.runtime.send(one);
    expect(await shown(set, run_id)).toBe("completed: one,two,one");
  });

  it("makes a repeated message a success also when the run has ended", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("mail"));
    const one = { to: run_id, name: "mail", data: "one" };
    await set.runtime.send(one, { idempotencyKey: "k1" });
    expect(await shown(set, run_id)).toBe("completed: one");
    expect(await set.runtime.send(one, { idempotencyKey: "k1" })).toEqual({ run_id });
    const other = set.runtime.send({ ...one, data: "two" }, { idempotencyKey: "k1" });
    expect((await refusal(other)).code).toBe("idempotency_conflict");
    expect((await refusal(set.runtime.send(one, { idempotencyKey: "k2" }))).code).toBe("run_finished");
  });

  it.each([
    { name: "mail", data: "other" },
    { name: "post", data: "one" },
  ])("is refused with another message: $name $data", async (other) => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("never"));
    await set.runtime.send({ to: run_id, name: "mail", data: "one" }, { idempotencyKey: "k1" });
    const again = set.runtime.send({ to: run_id, ...other }, { idempotencyKey: "k1" });
    expect((await refusal(again)).code).toBe("idempotency_conflict");
  });

  it("holds for one run", async () => {
    const set = setUp();
    const first = await begin(set, ({ receive }) => receive("mail"));
    const second = await again(set);
    for (const [to, data] of [
      [first, "a"],
      [second, "b"],
    ] as const)
      await set.runtime.send({ to, name: "mail", data }, { idempotencyKey: "k1" });
    expect([await shown(set, first), await shown(set, second)]).toEqual(["completed: a", "completed: b"]);
  });
});

describe("a message by labels", () => {
  const labelled = (set: Setup, agent_name: string, options: Options) =>
    set.runtime.createRun({ agent_name, input: "", mode: "async" }, options);

  async function threeRuns() {
    const set = setUp();
    for (const name of ["pay", "ship"])
      set.runtime.register(name, (_input, { receive }) => receive("mail", { timeoutMs: 60_000, default: "none" }));
    const runs = {
      first: await labelled(set, "pay", { labels: { order: "O-1", shop: "a" } }),
      second: await labelled(set, "pay", { labels: { order: "O-2", shop: "a" } }),
      third: await labelled(set, "ship", { labels: { order: "O-2", shop: "a" } }),
    };
    await set.clock.settle();
    return { ...set, runs };
  }

  it.each([
    { to: { labels: { order: "O-1" } }, found: "first" },
    { to: { labels: { order: "O-1", shop: "a" }, agent_name: "pay" }, found: "first" },
    { to: { labels: { order: "O-2" }, agent_name: "ship" }, found: "third" },
    { to: { labels: { shop: "a" }, agent_name: "ship" }, found: "third" },
    { to: { labels: { order: "O-2" } }, found: "ambiguous" },
    { to: { labels: { shop: "a" } }, found: "ambiguous" },
    { to: { labels: { order: "O-3" } }, found: "run_not_found" },
    { to: { labels: { order: "O-1", shop: "b" } }, found: "run_not_found" },
    { to: { labels: { order: "O-1" }, agent_name: "ship" }, found: "run_not_found" },
    { to: { labels: { order: "O-1" }, agent_name: "no-such-agent" }, found: "run_not_found" },
    { to: { labels: {} }, found: "invalid_argument" },
    { to: { labels: { order: 1 } }, found: "invalid_argument" },
    { to: { agent_name: "pay" }, found: "invalid_argument" },
    { to: { labels: { order: "O-1" }, agent_name: "" }, found: "invalid_argument" },
    { to: { labels: { order: "O-1" }, tenant: "a" }, found: "invalid_argument" },
  ])("$to reaches: $found", async ({ to, found }) => {
    const { runs, ...set } = await threeRuns();
    const sending = set.runtime.send({ to: to as never, name: "mail", data: "hello" });
    const got = await sending.then(({ run_id }) => run_id, codeOf);
    expect(got).toBe(found in runs ? runs[found as keyof typeof runs].run_id : found);
    for (const { run_id } of Object.values(runs))
      expect(await shown(set, run_id)).toBe(run_id === got ? "completed: hello" : "in-progress");
  });

  it("of several runs reaches the one that has not ended", async () => {
    const { runs, ...set } = await threeRuns();
    await set.runtime.cancel(runs.second.run_id);
    expect(await shown(set, runs.second.run_id)).toBe("cancelled");
    expect(await set.runtime.send({ to: { labels: { order: "O-2" } }, name: "mail", data: 1 })).toEqual({
      run_id: runs.third.run_id,
    });
    await set.clock.settle();
    const none = set.runtime.send({ to: { labels: { order: "O-2" } }, name: "mail", data: 1 });
    expect((await refusal(none)).code).toBe("run_not_found");
  });
});

it("a message by labels comes to a run that can receive it, or is refused as the only run with them is being cancelled", async () => {
  const set = setUp();
  set.runtime.register("holds", () => new Promise<never>(() => {}));
  const labels = { order: "O-1" };
  const send = () => set.runtime.send({ to: { labels }, name: "mail", data: 1 });
  const begin = () => set.runtime.createRun({ agent_name: "holds", input: "", mode: "async" }, { labels });
  const first = await begin();
  await set.clock.settle();
  await set.runtime.cancel(first.run_id);
  expect(await refusal(send())).toMatchObject({ code: "run_cancelling", run_id: first.run_id });
  const { run_id } = await begin();
  expect(await send()).toEqual({ run_id });
});

describe("a message to a run that takes none", () => {
  it.each([
    { how: "completed", refused: "run_finished" },
    { how: "failed", refused: "run_finished" },
    { how: "cancelled", refused: "run_finished" },
    { how: "cancelling", refused: "run_cancelling" },
  ])("$how is refused, and changes nothing", async ({ how, refused }) => {
    const set = setUp({ cancelGraceMs: 1_000 });
    const run_id = await begin(set, async ({ receive }) => {
      if (how === "failed") throw new Error("broken");
      if (how === "completed") return;
      await receive("mail").catch(how === "cancelling" ? never : undefined);
    });
    if (how.startsWith("cancel")) await set.runtime.cancel(run_id);
    expect(await shown(set, run_id)).toBe(how);
    const before = await set.store.find({ tenant: "", run_id });
    expect((await refusal(set.runtime.send({ to: run_id, name: "mail", data: 1 }))).code).toBe(refused);
    expect((await set.store.find({ tenant: "", run_id }))?.position).toBe(before?.position);
  });

  it("that does not exist is refused", async () => {
    const { runtime } = setUp();
    const to = "00000000-0000-4000-8000-0000000000ff";
    expect((await refusal(runtime.send({ to, name: "mail", data: 1 }))).code).toBe("run_not_found");
  });

  it.each(["id", "labels"])("of another tenant is refused as one that does not exist (by %s)", async (by) => {
    const set = setUp();
    set.runtime.register("agent", (_input, { receive }) => receive("mail"));
    const owner = set.runtime.scope({ tenant: "a" });
    const labels = { order: "O-1" };
    const { run_id } = await owner.createRun({ agent_name: "agent", input: "", mode: "async" }, { labels });
    const message = { to: by === "id" ? run_id : { labels }, name: "mail", data: "hello" };
    for (const scope of [set.runtime, set.runtime.scope({ tenant: "b" })])
      expect((await refusal(scope.send(message))).code).toBe("run_not_found");
    expect(await owner.send(message)).toEqual({ run_id });
    await set.clock.settle();
    expect((await owner.getRun(run_id)).status).toBe("completed");
  });

  it.each(["completed", "unknown"])("%s is refused by a runtime with a plain store too", async (which) => {
    const runtime = new AgentRuntime().register("agent", () => "done");
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    const to = which === "unknown" ? "00000000-0000-4000-8000-0000000000ff" : run_id;
    const { code } = await refusal(runtime.send({ to, name: "mail", data: 1 }));
    expect(code).toBe(which === "unknown" ? "run_not_found" : "run_finished");
    await runtime.close();
  });
});

describe("send refuses", () => {
  const circular: unknown[] = [];
  circular.push(circular);
  let deep: unknown = 1;
  for (let level = 0; level < 5_000; level++) deep = [deep];

  it.each([
    ["undefined", undefined],
    ["a function", () => 1],
    ["a symbol", Symbol("x")],
    ["a bigint", 5n],
    ["NaN", Number.NaN],
    ["Infinity", Number.POSITIVE_INFINITY],
    ["a date", new Date()],
    ["a map", new Map()],
    ["an error", new Error("x")],
    ["bytes", new Uint8Array(2)],
    ["an instance", new (class Thing {})()],
    ["a promise", Promise.resolve(1)],
    ["a list with a gap", new Array(2)],
    ["undefined in a list", [undefined]],
    ["a bigint deep inside", { a: [{ b: 5n }] }],
    ["an object that contains itself", circular],
    ["deep nesting", deep],
  ])("data that is no JSON: %s", async (_what, data) => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("mail"));
    expect((await refusal(set.runtime.send({ to: run_id, name: "mail", data }))).code).toBe("invalid_argument");
    expect(await shown(set, run_id)).toBe("in-progress");
  });

  it("data whose getter throws", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("mail"));
    const data = {
      get cents() {
        throw new RangeError("no");
      },
    };
    expect((await refusal(set.runtime.send({ to: run_id, name: "mail", data }))).code).toBe("invalid_argument");
    expect(await shown(set, run_id)).toBe("in-progress");
  });

  it.each([
    [null, {}],
    ["mail", {}],
    [{ name: "mail", data: 1 }, {}],
    [{ to: null, name: "mail", data: 1 }, {}],
    [{ to: 5, name: "mail", data: 1 }, {}],
    [{ to: "not-a-uuid", name: "mail", data: 1 }, {}],
    [{ to: [], name: "mail", data: 1 }, {}],
    [{ to: "RUN", data: 1 }, {}],
    [{ to: "RUN", name: "", data: 1 }, {}],
    [{ to: "RUN", name: 5, data: 1 }, {}],
    [{ to: "RUN", name: "mail" }, {}],
    [{ to: "RUN", name: "mail", data: 1, more: 1 }, {}],
    [{ to: "RUN", name: "mail", data: 1 }, null],
    [{ to: "RUN", name: "mail", data: 1 }, { idempotencyKey: "" }],
    [{ to: "RUN", name: "mail", data: 1 }, { idempotencyKey: 5 }],
    [{ to: "RUN", name: "mail", data: 1 }, { signal: AbortSignal.abort() }],
  ])("the request %j with the options %j", async (request, options) => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("mail"));
    const filled: unknown = JSON.parse(JSON.stringify(request).replace("RUN", run_id));
    expect((await refusal(set.runtime.send(filled as never, options as never))).code).toBe("invalid_argument");
    expect(await shown(set, run_id)).toBe("in-progress");
  });
});

unlessReplayed(HANDED_BACK)(
  "a runtime that is closed does not wait for runs that receive, and reports them",
  async () => {
    const set = setUp();
    const run_id = await begin(set, ({ receive }) => receive("payment"));
    const closing = set.runtime.close({ drainMs: 5_000 });
    await set.clock.settle();
    expect(await closing).toEqual({
      left: [{ run_id, agent_name: "agent", status: "in-progress", waits_for: "receive:payment#1" }],
    });
  },
);
