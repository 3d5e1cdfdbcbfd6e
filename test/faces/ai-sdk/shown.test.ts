import type { UIMessage } from "ai";
import * as six from "ai";
import type { AgentContext, AgentFunction } from "cadenza";
import { AgentRuntime } from "cadenza";
import { aiSdk, createChatHandler } from "cadenza/ai-sdk";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { FakeClock } from "../../harness/clock.ts";
import { deferred } from "../../harness/promises.ts";
import { answer, pretend } from "./models.ts";
import { loadSdk, versions } from "./versions.ts";

/** A page that reads responses with one version of the AI SDK. */
class Page {
  readonly clock = new FakeClock();
  readonly runtime: AgentRuntime;
  readonly #sdk: typeof six;
  readonly #handler: (request: Request) => Promise<Response>;
  messages: UIMessage[] = [];

  constructor(sdk: typeof six, agent: AgentFunction, approvals = true) {
    this.#sdk = sdk;
    this.runtime = new AgentRuntime({ clock: this.clock }).register("desk", agent);
    this.#handler = createChatHandler(this.runtime, { approvals });
  }

  say(text: string): Promise<UIMessage> {
    this.messages.push({ id: `m${this.messages.length}`, role: "user", parts: [{ type: "text", text }] });
    return this.send();
  }

  /** Sends what the page has, and reads the response as `useChat` does: each chunk is checked against the SDK's schema. */
  async send(): Promise<UIMessage> {
    const last = this.messages.at(-1);
    const body = JSON.stringify({ id: "c1", messages: this.messages, trigger: "submit-message" });
    const headers = { "content-type": "application/json" };
    const response = await this.#handler(new Request("http://localhost/desk", { method: "POST", headers, body }));
    expect(response.status).toBe(200);
    const { parseJsonEventStream, uiMessageChunkSchema, readUIMessageStream } = this.#sdk;
    const chunks = parseJsonEventStream({
      stream: response.body as ReadableStream<Uint8Array>,
      schema: uiMessageChunkSchema,
    }).pipeThrough(
      new TransformStream({
        transform(result, controller) {
          if (!result.success) throw result.error;
          controller.enqueue(result.value);
        },
      }),
    );
    let read: UIMessage | undefined;
    const begun = last?.role === "assistant" ? { message: last } : {};
    for await (const message of readUIMessageStream({ stream: chunks, ...begun })) read = message;
    if (read === undefined) throw new Error("There was no message.");
    this.messages = [...this.messages.filter(({ id }) => id !== read.id), read];
    return read;
  }

  /** Sets the state of the last call, as the functions of `useChat` do. */
  reply(state: Readonly<Record<string, unknown>>): Promise<UIMessage> {
    const last = this.messages.at(-1) as UIMessage;
    const index = last.parts.findLastIndex(({ type }) => type.startsWith("tool-") || type === "dynamic-tool");
    const parts = last.parts.with(index, { ...(last.parts[index] as object), ...state } as UIMessage["parts"][number]);
    this.messages = [...this.messages.slice(0, -1), { ...last, parts }];
    return this.send();
  }

  /** What a page that is loaded again gets. */
  async loaded(): Promise<readonly UIMessage[]> {
    const response = await this.#handler(new Request("http://localhost/desk/c1/messages"));
    return ((await response.json()) as { messages: UIMessage[] }).messages;
  }
}

type Parts = readonly { readonly type: string }[];

const kinds = ({ parts }: { readonly parts: Parts }): string =>
  parts.flatMap(({ type }) => (type === "step-start" ? [] : [type])).join(" ");

function callIn({ parts }: UIMessage): Record<string, unknown> {
  return (parts.findLast(({ type }) => type.startsWith("tool-") || type === "dynamic-tool") ?? {}) as Record<
    string,
    unknown
  >;
}

/** A model that thinks, names a source and says a text; or calls a tool first. */
const thinker = (tool?: { readonly name: string; readonly input: object }) => {
  let calls = 0;
  return pretend("v3", () => {
    calls += 1;
    if (tool !== undefined && calls === 1) return answer("", { id: "call-1", ...tool });
    return [
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "Let me " },
      { type: "reasoning-delta", id: "r", delta: "think." },
      { type: "reasoning-end", id: "r" },
      { type: "source", sourceType: "url", id: "s", url: "https://example.com/a", title: "A page" },
      ...answer("Done."),
    ];
  });
};

/** An agent whose model has tools. */
const withTools =
  (model: ReturnType<typeof pretend>, tools: Record<string, unknown> = {}): AgentFunction =>
  async (_input, context: AgentContext) => {
    const sdk = aiSdk(context);
    const given = { model: sdk.model(model), tools: sdk.tools(tools as never), prompt: "Hi", onError: () => undefined };
    await sdk.consume(six.streamText({ ...(given as object), stopWhen: six.stepCountIs(5) } as never));
  };

const readers = [{ name: "ai 5", sdk: await loadSdk("ai-sdk-react-5") }, ...versions];

describe.each(readers)("a page of $name", ({ name, sdk }) => {
  it("shows thoughts, sources and texts, as they come and when it is loaded again, with usage and times", async () => {
    const page = new Page(sdk, withTools(thinker()));
    const said = await page.say("hi");
    expect(kinds(said)).toBe("reasoning source-url text");
    expect(said.parts).toMatchObject([
      { type: "step-start" },
      { text: "Let me think.", state: "done" },
      { url: "https://example.com/a", title: "A page" },
      { text: "Done." },
    ]);
    const [run] = await page.runtime.listRuns();
    const usage = { input_tokens: 10, output_tokens: 4 };
    const { run_id, created_at, finished_at } = run ?? {};
    expect(said.metadata).toMatchObject({ run_id, created_at, finished_at, usage });
    expect(finished_at).toEqual(expect.any(String));
    const [, loaded] = await page.loaded();
    expect(loaded?.metadata).toEqual(said.metadata);
    expect(loaded?.parts.map((part) => ({ ...part, id: undefined }))).toEqual(
      said.parts.map((part) => ({ ...part, id: undefined })),
    );
  });

  it("shows a state in one part, which the next one replaces", async () => {
    const state = (value: object) => ({
      ...{ name: "state", content_type: "application/json" },
      content: JSON.stringify(value),
    });
    const page = new Page(sdk, async function* () {
      yield state({ step: 1 });
      yield "On my way.";
      yield state({ step: 2 });
    });
    const said = await page.say("hi");
    expect(kinds(said)).toBe("data-state text");
    expect(said.parts[1]).toMatchObject({ data: { step: 2 } });
    expect(kinds((await page.loaded())[1] as UIMessage)).toBe("data-state text");
  });

  it("keeps the name of a user's file", async () => {
    const page = new Page(sdk, () => "Seen.");
    const file = {
      type: "file",
      mediaType: "image/png",
      filename: "cat.png",
      url: "data:image/png;base64,aGk=",
    } as const;
    page.messages.push({ id: "m0", role: "user", parts: [file] });
    await page.send();
    expect((await page.loaded())[0]?.parts).toMatchObject([file]);
  });

  it("keeps the name of an agent's file, which the stream has no field for", async () => {
    const page = new Page(sdk, async function* () {
      yield { name: "chart.png", content_type: "image/png", content: "aGk=", content_encoding: "base64" };
    });
    const said = await page.say("hi");
    const file = { type: "file", mediaType: "image/png", url: "data:image/png;base64,aGk=" };
    expect(said.parts).toEqual([{ type: "step-start" }, file]);
    expect((await page.loaded())[1]?.parts).toEqual([{ type: "step-start" }, { ...file, filename: "chart.png" }]);
  });

  it("shows preliminary outputs of a tool, and then its result in their place", async () => {
    const gate = deferred();
    const weather = six.tool({
      inputSchema: z.object({ city: z.string() }),
      execute: async function* () {
        yield "looking";
        await gate.promise;
        yield { sky: "blue" };
      },
    });
    const page = new Page(sdk, withTools(thinker({ name: "weather", input: { city: "Ulm" } }), { weather }));
    const saying = page.say("Weather?");
    await page.clock.settle();
    const [, loaded] = await page.loaded();
    const call = { type: "dynamic-tool", toolName: "weather", input: { city: "Ulm" }, state: "output-available" };
    expect(callIn(loaded as UIMessage)).toMatchObject({ ...call, preliminary: true, output: { value: "looking" } });
    gate.resolve();
    const said = await saying;
    expect(kinds(said)).toBe("dynamic-tool reasoning source-url text");
    for (const one of [said, (await page.loaded())[1] as UIMessage]) {
      expect(callIn(one)).toMatchObject({ ...call, output: { sky: "blue" } });
      expect(callIn(one)["preliminary"]).toBeUndefined();
    }
  });

  it.each([
    ["a boolean", z.boolean(), true],
    ["a number", z.number(), 5],
    ["a list", z.array(z.string()), ["a", "b"]],
    ["an object", z.object({ a: z.number() }), { a: 1 }],
    ["a text", z.string(), "5"],
    ["null", z.null(), null],
  ])("answers a question with %s", async (_, schema, output) => {
    const page = new Page(sdk, async (_input, { ask }) =>
      JSON.stringify(await ask("Well?", { schema: schema as never })),
    );
    await page.say("hi");
    const said = await page.reply({ state: "output-available", output });
    expect(said.parts.at(-1)).toMatchObject({ type: "text", text: JSON.stringify(output) });
    expect(callIn(said)["output"]).toEqual(output);
  });

  it("executes its own tools under their names, with their arguments", async () => {
    const getLocation = six.tool({
      inputSchema: z.object({ precise: z.boolean() }),
      outputSchema: z.object({ city: z.string() }),
    });
    const page = new Page(sdk, withTools(thinker({ name: "getLocation", input: { precise: true } }), { getLocation }));
    const asked = await page.say("Where am I?");
    expect(callIn(asked)).toMatchObject({
      ...{ type: "tool-getLocation", state: "input-available", input: { precise: true } },
    });
    expect(callIn((await page.loaded())[1] as UIMessage)).toMatchObject({
      type: "tool-getLocation",
      state: "input-available",
    });
    const said = await page.reply({ state: "output-available", output: { city: "Ulm" } });
    expect(kinds(said)).toBe("tool-getLocation reasoning source-url text");
    expect(callIn(said)).toMatchObject({ state: "output-available", output: { city: "Ulm" } });
    expect(callIn((await page.loaded())[1] as UIMessage)).toMatchObject({ output: { city: "Ulm" } });
  });

  it("says that one of its tools has failed", async () => {
    const getLocation = six.tool({ inputSchema: z.object({}), outputSchema: z.object({ city: z.string() }) });
    const page = new Page(sdk, withTools(thinker({ name: "getLocation", input: {} }), { getLocation }));
    await page.say("Where am I?");
    const said = await page.reply({ state: "output-error", errorText: "No permission." });
    expect(callIn(said)).toMatchObject({
      type: "tool-getLocation",
      state: "output-error",
      errorText: "No permission.",
    });
  });

  describe.skipIf(name === "ai 5")("approvals", () => {
    const pay = () =>
      six.tool({
        inputSchema: z.object({ cents: z.number() }),
        needsApproval: true,
        execute: async ({ cents }) => ({ paid: cents }),
      });
    const payer = () => withTools(thinker({ name: "pay", input: { cents: 40 } }), { pay: pay() });

    it("are those of the tool, with its arguments, and its result follows", async () => {
      const page = new Page(sdk, payer());
      const asked = await page.say("Pay.");
      const call = callIn(asked);
      expect(call).toMatchObject({ type: "tool-pay", state: "approval-requested", input: { cents: 40 } });
      const { id } = call["approval"] as { readonly id: string };
      const said = await page.reply({ state: "approval-responded", approval: { id, approved: true } });
      expect(kinds(said)).toBe("tool-pay reasoning source-url text");
      expect(callIn(said)).toMatchObject({ state: "output-available", output: { paid: 40 } });
      expect(callIn((await page.loaded())[1] as UIMessage)).toMatchObject({ type: "tool-pay", output: { paid: 40 } });
    });

    it("that are refused are denied", async () => {
      const page = new Page(sdk, payer());
      const { id } = callIn(await page.say("Pay."))["approval"] as { readonly id: string };
      const said = await page.reply({ state: "approval-responded", approval: { id, approved: false, reason: "No." } });
      expect(kinds(said)).toBe("tool-pay reasoning source-url text");
      expect(callIn(said)).toMatchObject({ type: "tool-pay", state: "output-denied" });
      expect(callIn((await page.loaded())[1] as UIMessage)).toMatchObject({ type: "tool-pay", state: "output-denied" });
    });

    it("are questions for a page that has no approvals", async () => {
      const page = new Page(sdk, payer(), false);
      expect(callIn(await page.say("Pay."))).toMatchObject({ type: "dynamic-tool", toolName: "ask" });
      const said = await page.reply({ state: "output-available", output: { approved: true } });
      expect(kinds(said)).toBe("dynamic-tool dynamic-tool reasoning source-url text");
    });
  });
});
