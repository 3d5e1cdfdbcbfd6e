import type { Message, RunInput } from "cadenza";
import { AgentError, awaitMessage, textOf } from "cadenza";
import { describe, expect, it } from "vitest";
import {
  drain,
  eventsOf,
  questionOf,
  refusal,
  reply,
  runAgent,
  setUp,
  textsOf,
  typesOf,
} from "../../harness/runtimes.ts";
import { RUN_ONCE, unlessReplayed } from "../../harness/unless-replayed.ts";

function* items(...values: unknown[]): Generator<unknown> {
  yield* values;
}

async function* later(...values: unknown[]): AsyncGenerator<unknown> {
  yield* values;
}

describe("what an agent yields", () => {
  it.each<[title: string, yields: readonly unknown[], output: readonly string[]]>([
    ["strings join one message", ["a", "b"], ["a|b"]],
    ["an empty string is a part too", ["", "a"], ["|a"]],
    ["null closes the message", ["a", null, "b"], ["a", "b"]],
    ["undefined closes the message", ["a", undefined, "b"], ["a", "b"]],
    ["closing twice, or without an open message, has no effect", [null, "a", null, null, "b"], ["a", "b"]],
    ["a part joins the message", ["a", { content: "b", content_type: "text/html" }], ["a|b"]],
    ["an artifact joins the message", ["a", { name: "report.txt", content: "b" }, "c"], ["a|b|c"]],
    ["a part may have a URL", [{ content_url: "https://example.org/a" }], ["https://example.org/a"]],
    ["a whole message closes the one that is open", ["a", { parts: [{ content: "b" }] }, "c"], ["a", "b", "c"]],
    ["a message may be empty", [{ parts: [] }], [""]],
    ["a list is drained", [["a", ["b", null], "c"]], ["a|b", "c"]],
    ["an iterable is drained, however deep", [items("a", items("b", new Set(["c"])))], ["a|b|c"]],
    ["an async iterable is drained", ["a", later("b", later("c"))], ["a|b|c"]],
    ["a generic object is not in the output", ["a", { anything: 1 }, "b"], ["a|b"]],
    ["an object with an empty content is a part", [{ content: "" }], [""]],
    ["an object whose content is no string is generic", [{ content: 5 }], []],
    ["an object whose parts are no list is generic", [{ parts: "none" }], []],
    ["an object shaped like an event is generic", [{ type: "run.completed", run: {} }], []],
    ["an object shaped like a request without a message is generic", [{ type: "message", message: null }], []],
  ])("%s", async (_title, yields, output) => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async function* () {
      yield* yields;
    });
    expect(run).toMatchObject({ status: "completed", error: null });
    expect(textsOf(run)).toEqual(output);
  });

  it("a part keeps its keys, and gets the defaults of the protocol for the others", async () => {
    const { runtime } = setUp();
    const metadata = { kind: "citation", url: "https://example.org", title: null };
    const run = await runAgent(runtime, () => [
      { name: "a.json", content: "{}", content_type: "application/json", x_extra: 1, metadata },
      { content: "AAAA", content_encoding: "base64", content_type: null },
    ]);
    expect(run.output[0]?.parts).toEqual([
      {
        name: "a.json",
        content: "{}",
        content_type: "application/json",
        content_encoding: "plain",
        x_extra: 1,
        metadata: { kind: "citation", url: "https://example.org" },
      },
      { content: "AAAA", content_encoding: "base64", content_type: "text/plain" },
    ]);
  });

  it("a message has the agent's role in the output and in the events, and keeps its times to the last digit", async () => {
    const { runtime } = setUp();
    const times = { created_at: "2025-01-01T00:00:00.123456Z", completed_at: "2025-01-01T00:00:01.654321Z" };
    const run = await runAgent(runtime, async function* () {
      yield { role: "user", parts: [{ content: "a" }], ...times, completed_at: "2025-01-01T02:00:01.654321+02:00" };
    });
    const told = { role: "agent/agent", parts: [expect.objectContaining({ content: "a" })], ...times };

    expect(run.output).toEqual([told]);
    const events = await eventsOf(runtime, run.run_id);
    for (const event of events) if ("message" in event) expect(event.message).toEqual(told);
    expect(typesOf(events)).toEqual([
      "run.created",
      "run.in-progress",
      "message.created",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
  });

  it("a generic object is an event, and leaves the message open", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, () => ["a", { thinking: { about: [1, null] } }, "b"]);
    const events = await eventsOf(runtime, run.run_id);

    expect(typesOf(events).slice(2)).toEqual([
      "message.created",
      "message.part",
      "generic",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
    expect(events[4]).toMatchObject({ generic: { thinking: { about: [1, null] } } });
  });

  it("a later change to an object does not change what was emitted", async () => {
    const { runtime } = setUp();
    const generic = { list: [1] };
    const part = { content: "a", metadata: { kind: "trajectory", tool_input: { list: [1] } }, extra: { list: [1] } };
    const run = await runAgent(runtime, async function* () {
      yield generic;
      yield part;
      yield { role: "agent", parts: [part] };
      generic.list.push(2);
      part.metadata.tool_input.list.push(2);
      part.extra.list.push(2);
    });
    expect(JSON.stringify(await eventsOf(runtime, run.run_id))).not.toContain("[1,2]");
  });

  it("a request is recognised by its type before anything else, and an error before a list", async () => {
    const { runtime } = setUp();
    const request = { type: "message", message: "Really?", parts: [], content: "not a part" };
    const asking = await runAgent(runtime, async function* () {
      yield request;
    });
    expect(questionOf(asking).message.parts).toMatchObject([{ content: "Really?" }]);

    const error = Object.assign(new AgentError("not_found", "Gone."), { [Symbol.iterator]: () => items("a") });
    const failing = await runAgent(runtime, async function* () {
      yield error;
    });
    expect(failing).toMatchObject({ status: "failed", error: { code: "not_found", message: "Gone." } });
  });

  it("a list that also has parts is drained", async () => {
    const { runtime } = setUp();
    const list = Object.assign(["a"], { parts: [{ content: "b" }] });
    expect(textsOf(await runAgent(runtime, () => list))).toEqual(["a"]);
  });

  it.each<[value: unknown, said: string]>([
    [5, "5"],
    [Number.NaN, "NaN"],
    [true, "true"],
    [12n, "12"],
    [Symbol("s"), "a symbol"],
    [() => "a", "a function"],
    [new Date(0), "a Date"],
    [new Error("secret"), "an Error"],
    [/x/, "a RegExp"],
  ])("%o fails the run with an error that names it", async (value, said) => {
    const { runtime } = setUp();
    for (const yielded of [value, [value], later(value)]) {
      const run = await runAgent(runtime, async function* () {
        yield yielded;
      });
      expect(run.status).toBe("failed");
      expect(run.error).toMatchObject({ code: "server_error", data: { reason: "invalid_yield" } });
      expect(run.error?.message).toContain(`yielded ${said};`);
      expect(run.error?.message).not.toContain("secret");
    }
  });

  it.each<[title: string, value: unknown, said: string]>([
    ["a part with a content and a URL", { content: "a", content_url: "https://example.org" }, "content_url"],
    ["a part with an invalid URL", { content_url: "not an address" }, "content_url"],
    ["a message with a bad role", { role: "assistant", parts: [] }, "role"],
    ["a message with a bad part", { parts: [{ content: 5 }] }, "parts[0].content"],
    ["a message with a bad time", { parts: [], created_at: "yesterday" }, "created_at"],
    ["an object that is not JSON", { big: 1n }, "BigInt"],
  ])("%s fails the run with an error that says what is wrong", async (_title, value, said) => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, () => value);
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "invalid_yield" } } });
    expect(run.error?.message).toContain(said);
  });

  it("output before an error stays, and the open message stays open", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async function* () {
      yield "done";
      yield null;
      yield "half";
      yield 5;
    });
    expect(textsOf(run)).toEqual(["done", "half"]);
    expect(run.output.map(({ completed_at }) => completed_at === null)).toEqual([false, true]);
    expect(typesOf(await eventsOf(runtime, run.run_id)).at(-1)).toBe("run.failed");
  });

  it("an AgentError fails the run as it is, thrown or yielded, also deep in a list", async () => {
    const { runtime } = setUp();
    const error = new AgentError("invalid_input", "No such train.", { train: 12 });
    const agents = [
      async function* () {
        yield error;
      },
      async () => {
        throw error;
      },
      () => error,
      () => [["a", error]],
      async () => Promise.reject(error),
    ];
    for (const agent of agents) {
      const run = await runAgent(runtime, agent);
      expect(run).toMatchObject({
        status: "failed",
        error: { code: "invalid_input", message: "No such train.", data: { train: 12 } },
      });
    }
  });

  unlessReplayed(RUN_ONCE)("a plain yield returns undefined, before and after an answer", async () => {
    const { runtime } = setUp();
    const sent: unknown[] = [];
    const asking = await runAgent(runtime, async function* (): AsyncGenerator<unknown, void, unknown> {
      sent.push(yield "a", yield { b: 1 }, yield { parts: [] }, yield null, yield ["c"]);
      sent.push(yield awaitMessage("Well?"));
      sent.push(yield "d", yield null);
    });
    await runtime.resume({ run_id: asking.run_id, await_resume: { fine: true } });
    expect(sent).toEqual([undefined, undefined, undefined, undefined, undefined, { fine: true }, undefined, undefined]);
  });

  it("a request inside a list is asked, and the list goes on with the answer", async () => {
    const { runtime } = setUp();
    let given: unknown;
    async function* asks(): AsyncGenerator<unknown, void, unknown> {
      given = yield awaitMessage("Inside?");
      yield "after";
    }
    const asking = await runAgent(runtime, () => ["before", asks()]);
    const run = await runtime.resume({ run_id: asking.run_id, await_resume: reply("yes") });

    expect(given).toMatchObject({ type: "message", message: { parts: [{ content: "yes" }] } });
    expect(textsOf(run)).toEqual(["before", "after"]);
  });
});

describe("the forms of an agent", () => {
  it.each<[form: string, agent: (input: readonly Message[]) => unknown, output: readonly string[]]>([
    [
      "an async generator",
      async function* (input) {
        yield "a";
        yield* input;
        return "z";
      },
      ["a", "Hello", "z"],
    ],
    [
      "a generator",
      function* (input) {
        yield "a";
        yield* input;
        return "z";
      },
      ["a", "Hello", "z"],
    ],
    ["an async function", async () => "a", ["a"]],
    ["a plain function", () => "a", ["a"]],
    ["a function that returns a message", (input) => input, ["Hello"]],
    ["a function that returns nothing", () => undefined, []],
    ["a function that returns null", async () => null, []],
    ["a function that returns a generator", () => items("a", "b"), ["a|b"]],
    ["a function that promises a generator", async () => later("a", "b"), ["a|b"]],
    ["a function that returns a web stream", () => ReadableStream.from(["a", "b"]), ["a|b"]],
    [
      "a generator that yields promises",
      function* () {
        yield Promise.resolve("a");
        yield Promise.resolve(null);
        return Promise.resolve("b");
      },
      ["a", "b"],
    ],
    [
      "an async generator that yields promises",
      async function* () {
        yield Promise.resolve("a");
        return Promise.resolve("b");
      },
      ["a|b"],
    ],
  ])("%s", async (_form, agent, output) => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, agent);
    expect(run.status).toBe("completed");
    expect(textsOf(run)).toEqual(output);
  });

  unlessReplayed(RUN_ONCE)(
    "a plain generator that yields a promise gets undefined, and one of a request gets the answer",
    async () => {
      const { runtime } = setUp();
      const sent: unknown[] = [];
      const asking = await runAgent(runtime, function* (): Generator<unknown, void, unknown> {
        sent.push(yield Promise.resolve("a"));
        sent.push(yield Promise.resolve(awaitMessage("Well?")));
      });
      await runtime.resume({ run_id: asking.run_id, await_resume: { ok: 1 } });
      expect(sent).toEqual([undefined, { ok: 1 }]);
    },
  );

  it("all give one stream of events", async () => {
    const { runtime } = setUp();
    runtime.register("agent", () => "a");
    const events = await drain(runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" }));
    expect(events.map(({ id }) => id)).toEqual([1, 2, 3, 4, 5, 6]);
  });
});

describe("emit", () => {
  it("emits what yield emits, wherever it is called", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async (_input, { emit }) => {
      await emit("a");
      await Promise.all(["b", null, { content: "c" }, { parts: [{ content: "d" }] }, { e: 1 }].map(emit));
      return "f";
    });
    expect(textsOf(run)).toEqual(["a|b", "c", "d", "f"]);
    expect(typesOf(await eventsOf(runtime, run.run_id))).toContain("generic");
  });

  it.each([
    ["a request", awaitMessage("Really?"), "emit"],
    ["a list", ["a"], "emit"],
    ["a number", 5, "5"],
  ])("takes no %s", async (_title, value, said) => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async (_input, context) => {
      const error = await refusal(context.emit(value));
      expect(error.message).toContain(said);
      return "went on";
    });
    expect(textsOf(run)).toEqual(["went on"]);
  });
});

it("textOf gives the text of an agent's input, with a line break between messages, and nothing of other parts", async () => {
  const { runtime } = setUp();
  runtime.register("echo", (input) => JSON.stringify(textOf(input)));
  const said = async (input: RunInput) => textOf(await runtime.createRun({ agent_name: "echo", input }));
  expect(await said("hello")).toBe('"hello"');
  const bytes = { content_type: "image/png", content_encoding: "base64", content: "AAAA" } as const;
  const messages = [{ parts: [{ content: "a" }, { content: "b" }] }, { parts: [bytes] }, { parts: [{ content: "c" }] }];
  expect(await said(messages)).toBe('"ab\\nc"');
  expect(textOf([])).toBe("");
});
