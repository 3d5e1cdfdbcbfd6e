import type { AgentContext, StepScope } from "cadenza";
import { defineAgent } from "cadenza";
import { aiSdk, idempotencyKeyOf } from "cadenza/ai-sdk";
import { everyCrash, everyInterruption } from "cadenza/testing";
import { expect, it } from "vitest";
import * as z from "zod";
import type { Call } from "./models.ts";
import { answer, Broken, pretend } from "./models.ts";
import type { SdkVersion } from "./versions.ts";
import { versions } from "./versions.ts";

const PIXEL = "iVBORw0KGgo=";

/** The world outside of the agent, which no crash takes with it. */
class World {
  modelCalls = 0;
  /** The idempotency keys with which a tool call reached the other side. */
  readonly keys = new Map<string, Set<string>>();
  /** The keys of steps whose result an agent had. */
  readonly #recorded = new Set<string>();
  /** Calls of recorded steps. */
  readonly again: string[] = [];

  charge(call: string, key: string): void {
    this.keys.set(call, (this.keys.get(call) ?? new Set()).add(key));
  }

  /** The context, watched: a body whose step has given its result must not be called. */
  watch(context: AgentContext): AgentContext {
    const step = async (name: string, body: (step: StepScope) => unknown, options: object) => {
      let key = "";
      const result = await context.step(
        name,
        (scope) => {
          key = scope.key;
          if (this.#recorded.has(key)) this.again.push(key);
          return body(scope);
        },
        options,
      );
      if (key !== "") this.#recorded.add(key);
      return result;
    };
    const bound = { get: (target: AgentContext, name: keyof AgentContext) => (name === "step" ? step : target[name]) };
    return new Proxy(context, bound as ProxyHandler<AgentContext>);
  }
}

/** Refunds and ships with approvals side by side, then takes a photo, then sums up. */
function desk({ sdk: ai, models }: SdkVersion, world: () => World) {
  const busy = () =>
    new ai.APICallError({
      message: "Service Unavailable",
      url: "https://model.example",
      requestBodyValues: {},
      statusCode: 503,
      isRetryable: true,
    });
  const reply = (call: Call) => {
    const first = world().modelCalls++;
    if (first === 0) throw busy();
    if (call.responseFormat?.type === "json") return answer('{"refunded":true}');
    const results = call.prompt.filter(({ role }) => role === "tool").length;
    if (results === 0)
      return answer(
        "I look into it. ",
        { id: "c1", name: "refund", input: { cents: 4000 } },
        { id: "c2", name: "ship", input: { to: "Ada" } },
      );
    if (results === 1 && !world().keys.has("torn")) {
      world().charge("torn", "once");
      return new Broken(answer("One moment I shall take a photo.").slice(0, 6));
    }
    if (results === 1) return answer("One moment. ", { id: "c3", name: "photo", input: {} });
    return answer("All is done.");
  };
  return defineAgent("desk", { durable: true }, async function* (input, given) {
    const sdk = aiSdk(world().watch(given));
    const model = sdk.model(pretend(models, reply));
    const tools = sdk.tools(
      {
        refund: ai.tool({
          inputSchema: z.object({ cents: z.number() }),
          needsApproval: true,
          execute: ({ cents }, options) => {
            world().charge(options.toolCallId, idempotencyKeyOf(options));
            return { refunded: cents };
          },
        }),
        ship: ai.tool({
          inputSchema: z.object({ to: z.string() }),
          execute: ({ to }, options) => {
            world().charge(options.toolCallId, idempotencyKeyOf(options));
            return `Sent to ${to}.`;
          },
        }),
        photo: ai.tool({
          inputSchema: z.object({}),
          execute: (_input, options) => {
            world().charge(options.toolCallId, idempotencyKeyOf(options));
            return { png: Uint8Array.from(atob(PIXEL), (character) => character.charCodeAt(0)) };
          },
          toModelOutput: () => ({
            type: "content",
            value: [{ type: "image-data", data: PIXEL, mediaType: "image/png" }],
          }),
        }),
      },
      { approve: { ship: true } },
    );
    const messages = sdk.messages(input);
    const result = ai.streamText({ model, tools, messages, stopWhen: ai.stepCountIs(5), onError: () => undefined });
    await sdk.consume(result);
    const response = await result.response;
    const output = ai.Output.object({ schema: z.object({ refunded: z.boolean() }) });
    const sum = await ai.generateText({ model, output, messages: [...messages, ...response.messages] });
    yield { content: JSON.stringify(sum.output), content_type: "application/json", name: "sum" };
  });
}

it.each(versions)(
  "$name: an agent with tools that is killed anywhere repeats no recorded call, and ends as without it",
  async (version) => {
    let world = new World();
    const problems: string[] = [];
    const report = await everyCrash(
      desk(version, () => world),
      "Refund order 17",
      {
        answers: [{ approved: true }, { approved: true }],
        before: () => {
          world = new World();
        },
        after: () => {
          problems.push(...world.again.map((key) => `${key} was called again`));
          for (const [call, keys] of world.keys) if (keys.size !== 1) problems.push(`${call}: ${keys.size} keys`);
        },
        world: () => [...world.keys].map(([call, keys]) => [call, [...keys]]),
      },
    );
    report.assert();
    expect(problems).toEqual([]);
    // The report has compared the output of each crash with that of the run that is left alone.
    expect(report.results[0]).toMatchObject({ kind: "none", status: "completed" });
    expect(report.results.filter(({ kind }) => kind === "crash").map(({ where }) => where)).toMatchInlineSnapshot(`
    [
      "crashed before it began",
      "crashed before step model#1",
      "crashed before step model#1, attempt 2",
      "crashed in step model#1, when its work was done and its result was not stored",
      "crashed after step model#1",
      "crashed while it waited for the answer to ask#2 "Run the tool \\"ship\\" with {\\"to\\":\\"Ada\\"}?"",
      "crashed when ask#1 was answered, before the answer was stored",
      "crashed after the answer to ask#1 was stored",
      "crashed before step refund c1#1",
      "crashed in step refund c1#1, when its work was done and its result was not stored",
      "crashed after step refund c1#1",
      "crashed when ask#2 was answered, before the answer was stored",
      "crashed after the answer to ask#2 was stored",
      "crashed before step ship c2#1",
      "crashed in step ship c2#1, when its work was done and its result was not stored",
      "crashed after step ship c2#1",
      "crashed before step model#2",
      "crashed in step model#2, when it had emitted something",
      "crashed before step model#2, attempt 2",
      "crashed in step model#2, when it had emitted something",
      "crashed in step model#2, when its work was done and its result was not stored",
      "crashed after step model#2",
      "crashed before step photo c3#1",
      "crashed in step photo c3#1, when its work was done and its result was not stored",
      "crashed after step photo c3#1",
      "crashed before step model#3",
      "crashed in step model#3, when its work was done and its result was not stored",
      "crashed after step model#3",
      "crashed before step model#4",
      "crashed in step model#4, when its work was done and its result was not stored",
      "crashed after step model#4",
      "crashed before its end was stored",
    ]
  `);
  },
);

it.each(versions)("$name: no interruption leaves anything behind", async (version) => {
  let world = new World();
  const report = await everyInterruption(
    desk(version, () => world),
    "Refund order 17",
    {
      answers: [{ approved: true }, { approved: true }],
      before: () => {
        world = new World();
      },
    },
  );
  report.assert();
});
