import type { AgentFunction, CadenzaError } from "cadenza";
import { AgentError, awaitMessage, defineAgent } from "cadenza";
import { drive } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import * as z from "zod";

const booking = defineAgent("booking", async function* (_input, context) {
  yield "Looking for trains… ";
  const plan = await context.step("plan", async () => ({ train: "ICE" }));
  const answer = await context.ask("Book it?", { schema: z.object({ ok: z.boolean() }) });
  context.usage.add({ input_tokens: 1, output_tokens: 2 });
  yield answer.ok ? `Booked ${plan.train}.` : "Not booked.";
  const reply = yield awaitMessage("Anything else?");
  yield { reply };
});

/** An agent that notes its progress. */
function tracked(): { agent: AgentFunction; trace: string[] } {
  const trace: string[] = [];
  const agent: AgentFunction = async function* (_input, { ask, emit, step }) {
    trace.push("begun");
    yield "one";
    trace.push("after one");
    await step("work", () => trace.push("work"));
    await emit("two");
    trace.push("after two");
    await ask("Go on?");
    trace.push("answered");
    yield ["three", "four"];
    trace.push("after four");
  };
  return { agent, trace };
}

describe("next", () => {
  it("gives one event after the other", async () => {
    const t = drive(booking, "Berlin to Paris", { steps: { plan: { train: "TGV" } } });
    expect(await t.next()).toMatchObject({
      type: "part",
      text: "Looking for trains… ",
      part: { content_type: "text/plain" },
    });
    expect(await t.next()).toMatchObject({
      type: "await",
      question: "Book it?",
      await_id: "ask#1",
      schema: { type: "object" },
    });
    await t.answer({ ok: true });
    expect(await t.next()).toMatchObject({ type: "part", text: "Booked TGV." });
    expect(await t.next()).toMatchObject({ type: "await", question: "Anything else?", schema: undefined });
    await t.resume({ anything: "protocol" });
    expect(await t.next()).toMatchObject({ type: "generic", generic: { reply: { anything: "protocol" } } });
    expect(await t.next()).toMatchObject({
      type: "end",
      status: "completed",
      run: { agent_name: "booking" },
      error: null,
    });
    expect(t.text()).toBe("Looking for trains… \nBooked TGV.");
    expect(t.usage).toMatchObject({ total_tokens: 3 });
    expect(t.log.map(({ type }) => type)).toContain("resumed");
    expect(t.events.map(({ id }) => id)).toEqual(t.events.map((_, index) => index + 1));
    expect(t.events.at(-1)).toMatchObject({ type: "run.completed", run: t.run });
    expect(t.operations).toMatchObject([
      { key: "plan#1", state: "done", replaced: true, result: { train: "TGV" } },
      { key: "ask#1", state: "done", result: { ok: true } },
    ]);
  });

  it("executes steps with limits, for which they do not wait", async () => {
    const agent: AgentFunction = (_input, { step }) => step("call", () => "called", { limit: "api" });
    expect(await drive(agent, "x").next()).toMatchObject({ type: "part", text: "called" });
  });

  it("lets the agent go on only at a call", async () => {
    const { agent, trace } = tracked();
    const t = drive(agent, "x");
    await new Promise((resolve) => setImmediate(resolve));
    expect([trace, t.status, t.log, t.events, t.text(), t.usage]).toEqual([[], "created", [], [], "", null]);
    const seen: string[][] = [];
    for await (const driveEvent of t) {
      if (driveEvent.type === "await") await t.answer("yes");
      await new Promise((resolve) => setImmediate(resolve));
      seen.push([driveEvent.type === "part" ? driveEvent.text : driveEvent.type, ...trace.splice(0)]);
    }
    expect(seen).toEqual([
      ["one", "begun"],
      ["two", "after one", "work"],
      ["await", "after two"],
      ["three", "answered"],
      ["four"],
      ["end", "after four"],
    ]);
  });

  it("serves requests in order", async () => {
    const t = drive(tracked().agent, "x");
    expect(await Promise.all([t.next(), t.next()])).toMatchObject([{ text: "one" }, { text: "two" }]);
  });

  it("gives parts of all kinds, whole messages and streams", async () => {
    const t = drive(function* () {
      yield { content: "AAAA", content_encoding: "base64" as const, content_type: "image/png", name: "dot.png" };
      yield { parts: [{ content: "a" }, { content: "b" }] };
      return new Set(["c"]);
    }, "x");
    expect(await t.next()).toMatchObject({ type: "part", text: "", part: { name: "dot.png" } });
    expect(await t.next()).toMatchObject({ type: "message", text: "ab" });
    expect(await t.next()).toMatchObject({ type: "part", text: "c" });
    expect((await t.until("end")).status).toBe("completed");
  });

  it.each<[wrong: string, agent: AgentFunction, said: RegExp]>([
    [
      "while a question waits",
      async (_, { ask }) => ask("Well?"),
      /waits for the answer to ask#1 "Well\?"\. Answer it with t\.answer/,
    ],
    [
      "with a deadline",
      async (_, { ask }) => ask("?", { timeoutMs: 86_400_000 }),
      /let its time pass with t\.clock\.advance\("24h"\)/,
    ],
    ["after the end", () => "all", /Nothing more can come: the run has ended\. The last thing it did: end: completed/],
    [
      "from an agent that waits for ever",
      () => new Promise(() => {}),
      /no activity for 20ms: it is in-progress and waits for something outside the runtime/,
    ],
    [
      "during a step",
      (_, { step }) => step("slow", () => new Promise(() => {})),
      /at work on step slow#1.*larger patienceMs/,
    ],
  ])("explains why nothing more can come, %s", async (_wrong, agent, said) => {
    const t = drive(agent, "x", { patienceMs: 20 });
    const all = async (): Promise<void> => {
      for (let count = 0; count < 4; count++) await t.next();
    };
    await expect(all()).rejects.toThrow(said);
    await expect(all()).rejects.toMatchObject({ name: "DriveError" });
  });

  it("says what the agent threw where the run ends before what a test waits for", async () => {
    const t = drive((input) => `${(input as unknown as { nope: string }).nope.length}`, "x");
    const failure: unknown = await t.until("await").catch((error: unknown) => error);
    expect(failure).toMatchObject({
      name: "DriveError",
      message: expect.stringMatching(
        /^The run ended before an event of type "await": end: failed, TypeError: .*'length'\)\.$/,
      ),
      cause: expect.any(TypeError),
    });
    await expect(t.next()).rejects.toMatchObject({ message: expect.stringContaining("failed, TypeError: ") });
  });

  it("waits for real work while there is activity", async () => {
    const { readFile } = await import("node:fs/promises");
    const t = drive(async (_input, { step }) => {
      const sizes = [1, 2, 3].map((n) =>
        step(`read:${n}`, async () => (await readFile(new URL(import.meta.url))).length),
      );
      return { sizes: (await Promise.all(sizes)).length };
    }, "x");
    expect(await t.next()).toMatchObject({ generic: { sizes: 3 } });
  });
});

describe("answers", () => {
  it.each<[answer: unknown, schema: z.ZodType, given: unknown]>([
    ["Ada", z.string(), "Ada"],
    [true, z.boolean(), true],
    [42, z.number(), 42],
    [null, z.null(), null],
    [["a", "b"], z.array(z.string()), ["a", "b"]],
    [{ ok: true }, z.object({ ok: z.boolean() }), { ok: true }],
    [{ parts: [{ content: "7" }] }, z.coerce.number(), 7],
  ])("%j fits", async (answer, schema, given) => {
    const t = drive(async (_input, { ask }) => ({ given: (await ask("?", { schema })) as null }), "x");
    await t.until("await");
    await t.answer(answer);
    expect(await t.next()).toMatchObject({ generic: { given } });
  });

  it("that do not match keep the question open", async () => {
    const t = drive(booking, "x");
    await t.until("await");
    await expect(t.answer({ ok: "perhaps" })).rejects.toThrow(/is invalid: ok/);
    await expect(t.answer(undefined)).rejects.toThrow(
      "answer: expected a text, a message or a JSON value, received undefined.",
    );
    expect(t.status).toBe("awaiting");
    await t.answer({ ok: false });
    expect(await t.next()).toMatchObject({ text: "Not booked." });
  });

  it("without a question are errors that say so", async () => {
    const t = drive(booking, "x");
    await expect(t.answer("?")).rejects.toThrow("no question is open. The run has not begun");
    await t.next();
    await expect(t.answer("?")).rejects.toThrow(
      /in-progress\. The last thing it did: part "Looking for trains… "\. Call t\.next\(\)/,
    );
    await t.until("await");
    await t.answer({ ok: true });
    await expect(t.answer({ ok: true })).rejects.toThrow('ask#1 "Book it?" has its answer; call t.next() to go on.');
    await t.resume({ ok: true }, { await_id: "ask#1" });
    await expect(t.resume({ ok: false }, { await_id: "ask#1" })).rejects.toMatchObject({ code: "answer_conflict" });
    await t.cancel();
    await expect(t.answer("?")).rejects.toThrow(/The run is cancelled\./);
  });
});

describe("finish, cancel and fail", () => {
  it("finish goes on until the run rests, and consumes all events", async () => {
    const t = drive(booking, "x");
    expect(await t.finish()).toMatchObject({ status: "awaiting", await_request: { await_id: "ask#1" } });
    expect(await t.finish()).toMatchObject({ status: "awaiting" });
    await t.answer({ ok: true });
    await t.finish();
    await t.answer("No");
    expect(await t.finish()).toMatchObject({ status: "completed" });
    expect(await t.finish()).toMatchObject({ status: "completed" });
    await expect(t.next()).rejects.toThrow("Nothing more can come");
  });

  it("cancel before the agent begins leaves it uncalled", async () => {
    const { agent, trace } = tracked();
    const t = drive(agent, "x");
    expect(await t.cancel()).toMatchObject({ status: "cancelled" });
    expect(trace).toEqual([]);
    expect(await t.next()).toMatchObject({ type: "end", status: "cancelled" });
  });

  it("cancel ends an agent that ignores it after the grace period", async () => {
    const t = drive(() => new Promise<never>(() => {}), "x", { patienceMs: 20, cancelGraceMs: 2_000 });
    await t.next().catch(() => undefined);
    expect(await t.cancel()).toMatchObject({ status: "cancelling" });
    await t.clock.advance("2s");
    expect(t.run.status).toBe("cancelled");
  });

  it("fail makes the next step throw, once", async () => {
    const agent: AgentFunction = async function* (_input, { step }) {
      yield await step("a", () => "a");
      yield await step("b", () => "b", { retry: { attempts: 2 } });
    };
    const t = drive(agent, "x");
    t.failNextStep(new AgentError("not_found", "No a."));
    expect(await t.next()).toMatchObject({
      type: "end",
      status: "failed",
      error: { code: "not_found" },
      cause: { message: "No a." },
    });
    expect(() => t.failNextStep("too late")).toThrow("the run has ended");

    const second = drive(agent, "x");
    await second.next();
    second.failNextStep("down");
    expect(await second.next()).toMatchObject({ text: "b" });
    second.failNextStep("never");
    await expect(second.next()).rejects.toThrow('fail with "Error: never", but the run ended without another step');
  });

  it("until stops at the end", async () => {
    await expect(drive(() => "x", "x").until("await")).rejects.toThrow(
      'before an event of type "await": end: completed',
    );
    expect(() => drive(() => "x", "x").run).toThrow("has not begun");
  });
});

describe("stand-ins", () => {
  const shop: AgentFunction = async function* (_input, { run, step }) {
    yield { pages: await Promise.all([1, 2].map((n) => step(`fetch:${n}`, () => `real ${n}`))) };
    yield (await run("web-search", "x")).output.flatMap(({ parts }) => parts);
    yield await step("save", () => "saved for real");
  };

  it("are matched by name, then by the longest pattern; a function may call the original", async () => {
    const t = drive(shop, "x", {
      steps: {
        "*": () => "anything",
        "fetch:*": async ({ name, attempt, key, original }) => `${name} ${key} ${attempt} ${await original()}`,
        "fetch:2": "two",
      },
      agents: {
        "web-*": async function* (input) {
          yield `found ${input.length}`;
        },
      },
    });
    expect(await t.next()).toMatchObject({ generic: { pages: ["fetch:1 fetch:1#1 1 real 1", "two"] } });
    expect(await t.next()).toMatchObject({ text: "found 1" });
    expect(await t.next()).toMatchObject({ text: "anything" });
  });

  it("may be errors, and steps of sub-agents have them too", async () => {
    const search = defineAgent("web-search", async (_input, { step }) => step("save", () => "real"));
    const t = drive(shop, "x", {
      steps: { "web-search/save": "inner", save: new Error("disk full") },
      agents: { "web-search": search },
    });
    await t.next();
    expect(await t.next()).toMatchObject({ text: "inner" });
    expect(await t.next()).toMatchObject({ status: "failed", cause: { message: "disk full" } });
  });

  it("that are missing are named", async () => {
    await expect(drive(shop, "x", { steps: { "fetch:1": 1 }, strict: true }).next()).rejects.toThrow(
      'The step "fetch:2" has no stand-in, and strict: true requires one. Add it: { steps: { "fetch:2": … } }. There are "fetch:1".',
    );
    const t = drive(shop, "x");
    await t.next();
    await expect(t.finish()).rejects.toThrow(
      'runs the sub-agent "web-search", which the test does not know. Give the agent itself',
    );
  });

  it("give JSON, as a durable agent gets it", async () => {
    const agent = defineAgent("lasting", { durable: true }, async (_input, { step }) => {
      const found = await step("when", () => ({ at: "noon", gone: undefined }));
      return { keys: Object.keys(found) };
    });
    expect(await drive(agent, "x").next()).toMatchObject({ generic: { keys: ["at"] } });
  });
});

it("a session is as the test sets it, and can be read afterwards", async () => {
  const agent: AgentFunction = async (input, { principal, metadata, labels, session }) => {
    const history = await session.history();
    await session.setState({ seen: history.length, before: await session.getState() });
    return `${input.length} ${history.length} ${JSON.stringify([principal, metadata, labels])}`;
  };
  const t = drive(agent, "x", {
    session: { history: [{ parts: [] }, { role: "agent", parts: [] }], state: 7 },
    principal: "ada",
    metadata: { ticket: 17 },
    labels: { order: "O-17" },
  });
  await t.finish();
  expect(t.text()).toBe('1 2 ["ada",{"ticket":17},{"order":"O-17"}]');
  expect(await t.session()).toMatchObject({ history: { length: 4 }, state: { seen: 2, before: 7 } });
});

it("options and agents are checked by drive", () => {
  expect(() => drive(booking, "x", { step: {} } as object)).toThrow(
    /there is no option "step"; there are steps, agents/,
  );
  expect(() => drive(booking, "x", { strict: 1 as unknown as boolean })).toThrow(
    "options.strict: expected true or false, received 1.",
  );
  expect(() => drive(booking, "x", { session: { state: 1, his: 2 } as object })).toThrow("options.session");
  expect(() => drive({} as AgentFunction, "x")).toThrow(
    "agent: expected an agent made by defineAgent, or an agent function",
  );
  expect(() => drive(booking, 5 as unknown as string)).toThrow("input");
});

describe("messages and declined questions", () => {
  const order = defineAgent("order", async function* (_input, { ask, receive }) {
    yield "Ready.";
    const { cents } = await receive("payment", { schema: z.object({ cents: z.int() }), timeoutMs: 60_000 });
    const sure = await ask("Sure?").then(
      () => "sure",
      (error: CadenzaError) => error.code,
    );
    yield ` ${cents}, ${sure}`;
  });

  it("are sent before the agent begins, or while it waits", async () => {
    for (const early of [true, false]) {
      const t = drive(order, "");
      if (early) await t.send("payment", { cents: 5 });
      await t.until("part");
      if (!early) await t.send("payment", { cents: 5 });
      await t.until("await");
      await t.decline("No.");
      expect(await t.finish()).toMatchObject({ status: "completed" });
      expect(t.text()).toBe("Ready.\n 5, answer_declined");
      await expect(t.send("payment", { cents: 5 })).rejects.toMatchObject({ code: "run_finished" });
      await expect(t.decline()).rejects.toThrow("t.decline(…): no question is open.");
    }
  });

  it("that do not come are named, with what to do", async () => {
    const t = drive(order, "");
    await t.until("part");
    await expect(t.next()).rejects.toThrow(
      'The agent waits for receive:payment#1. Send it with t.send("payment", …). Let its time pass with t.clock.advance("1m"). Or stop the run with t.cancel().',
    );
  });
});
