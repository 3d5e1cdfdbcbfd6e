import type { SpanContext } from "@opentelemetry/api";
import { context, ROOT_CONTEXT, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import type { ReadableSpan } from "@opentelemetry/sdk-trace-base";
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import * as conventions from "@opentelemetry/semantic-conventions/incubating";
import type { Interceptor } from "cadenza";
import { AgentError, AgentRuntime, MemoryStore } from "cadenza";
import { traceRuns } from "cadenza/otel";
import { durable } from "cadenza/store";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { create, given } from "../harness/world/calls.ts";
import { World } from "../harness/world/world.ts";

const exporter = new InMemorySpanExporter();
const tracer = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).getTracer("test");
const traced = (options?: Parameters<typeof traceRuns>[0]): Interceptor => traceRuns({ tracer, ...options });

beforeAll(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());
afterEach(() => exporter.reset());

const spans = (): readonly ReadableSpan[] => exporter.getFinishedSpans();

function spanNamed(name: string): ReadableSpan {
  const found = spans().find((span) => span.name === name);
  if (found === undefined) throw new Error(`There is no span ${name}.`);
  return found;
}

/** The spans as a tree, each with what it says of its end. The siblings are in the order in which they began. */
function tree(above?: SpanContext, depth = 0): string[] {
  const known = new Set(spans().map((span) => span.spanContext().spanId));
  return spans()
    .filter(({ parentSpanContext: parent }) =>
      above === undefined ? parent === undefined || !known.has(parent.spanId) : parent?.spanId === above.spanId,
    )
    .toSorted((a, b) => a.startTime[0] - b.startTime[0] || a.startTime[1] - b.startTime[1])
    .flatMap((span) => [`${"  ".repeat(depth)}${line(span)}`, ...tree(span.spanContext(), depth + 1)]);
}

function line({ name, attributes, status, links }: ReadableSpan): string {
  const linked = links.map((link) => spans().find((span) => span.spanContext().spanId === link.context.spanId)?.name);
  const notes = [
    attributes["cadenza.step.attempt"],
    attributes["cadenza.outcome"],
    attributes["error.type"],
    status.code === SpanStatusCode.ERROR ? "an error" : undefined,
    ...linked.map((to) => `linked to ${to}`),
  ];
  const said = notes.filter((note) => note !== undefined);
  return said.length === 0 ? name : `${name}: ${said.join(", ")}`;
}

describe("the spans of a run", () => {
  it("are the tree that its log describes, also when its process is killed", async () => {
    const world = new World({
      runtime: { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 }, interceptors: [traced()] },
      register: (process) => {
        const { runtime } = process;
        runtime.register("invoice", { durable: true, version: "7" }, async (_input, { step }) => {
          await step("write", () => undefined);
        });
        runtime.register("order", { durable: true }, async (_input, { step, ask, run }) => {
          const load = ({ attempt }: { readonly attempt: number }): void => {
            if (attempt === 1) throw new AgentError("busy", "Try again.");
          };
          await step("load order 17", load, { retry: { attempts: 2, backoffMs: 10 } });
          await Promise.all([ask("Is it paid?", { name: "paid" }), ask("Which colour?")]);
          await run("invoice", "");
          await step("ship", () => {
            if (process.name === "process-1") return process.wait(60_000);
            return void tracer.startSpan("POST /parcels").end();
          });
        });
      },
    });
    const first = world.start();
    const run_id = await create(world, first, "order");
    await world.pass(50);
    for (const await_id of ["ask#1", "ask#2"]) {
      const answering = first.runtime.resume({ run_id, await_id, await_resume: {}, mode: "async" });
      given(await world.until(answering, first));
    }
    await world.pass(50);
    first.kill();
    world.start();
    await world.pass(5_000);
    expect((await world.stateOf(run_id)).status).toBe("completed");
    expect(tree()).toMatchInlineSnapshot(`
      [
        "create_run order",
        "  invoke_agent order: ended, linked to create_run order",
        "    step ship: 2",
        "      POST /parcels",
        "step load: 1, busy, an error",
        "step load: 2",
        "ask paid: answered",
        "ask: answered",
        "create_run invoice",
        "  invoke_agent invoice: ended",
        "    step write: 1",
      ]
    `);
    expect(new Set(spans().map((span) => span.spanContext().traceId)).size).toBe(1);
  });

  it("of several runs are several traces, below the span that is active when they are created", async () => {
    const runtime = new AgentRuntime({ interceptors: [traced()] });
    runtime.register("first", () => "one");
    runtime.register("second", async (_input, { step }) => step("work", () => "two"));
    const request = tracer.startSpan("GET /orders");
    await context.with(trace.setSpan(context.active(), request), () =>
      runtime.createRun({ agent_name: "first", input: "" }),
    );
    request.end();
    await runtime.createRun({ agent_name: "second", input: "" });
    expect(tree()).toMatchInlineSnapshot(`
      [
        "GET /orders",
        "  create_run first",
        "    invoke_agent first: ended",
        "create_run second",
        "  invoke_agent second: ended",
        "    step work: 1",
      ]
    `);
  });

  it("tell what has used up its time or its budget as a failure", async () => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime({ clock, interceptors: [traced()] });
    const until = ({ signal }: { readonly signal: AbortSignal }) =>
      new Promise<never>((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    runtime.register("late", { timeoutMs: 1_000 }, (_input, { signal }) => until({ signal }));
    runtime.register("asks", async (_input, { ask }) => ask("Go on?", { timeoutMs: 1_000 }));
    runtime.register("slow", (_input, { step }) => step("load", until, { timeoutMs: 1_000 }));
    runtime.register("greedy", async (_input, { usage, sleep }) => {
      usage.add({ input_tokens: 100, output_tokens: 1 });
      await sleep(1_000);
    });
    for (const agent_name of ["late", "asks", "slow"])
      await runtime.createRun({ agent_name, input: "", mode: "async" });
    await runtime.createRun({ agent_name: "greedy", input: "", mode: "async" }, { budget: { totalTokens: 50 } });
    await clock.advance(60_000);
    expect(tree().filter((line) => line.includes("invoke_agent") || line.includes("step load"))).toEqual([
      "  invoke_agent late: run_timeout, an error",
      "  invoke_agent asks: await_timeout, an error",
      "  invoke_agent slow: step_timeout, an error",
      "    step load: 1, step_timeout, an error",
      "  invoke_agent greedy: budget_exceeded, an error",
    ]);
  });

  it("tell a failure, and a cancel without an error", async () => {
    const runtime = new AgentRuntime({ interceptors: [traced()] });
    runtime.register("fails", async (_input, { step }) =>
      step("work", () => {
        throw new TypeError("Not so.");
      }),
    );
    runtime.register("waits", async (_input, { ask }) => ask("Go on?"));
    await runtime.createRun({ agent_name: "fails", input: "" });
    const { run_id } = await runtime.createRun({ agent_name: "waits", input: "" });
    await runtime.cancel(run_id);
    for await (const _event of runtime.events(run_id));
    expect(tree()).toMatchInlineSnapshot(`
      [
        "create_run fails",
        "  invoke_agent fails: TypeError, an error",
        "    step work: 1, TypeError, an error",
        "create_run waits",
        "  invoke_agent waits: run_cancelled",
        "    ask: withdrawn",
      ]
    `);
  });

  it("of a fork are a trace of its own", async () => {
    const store = durable(new MemoryStore());
    const runtime = new AgentRuntime({ store, interceptors: [traced()] });
    runtime.register("order", { durable: true }, async (_input, { step }) => step("load", () => 1));
    const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
    const fork = await runtime.fork(run_id, { before: "load#1" });
    for await (const _event of runtime.events(fork.run_id));
    const traces = new Map(spans().map((span) => [span.attributes["cadenza.run.id"], span.spanContext().traceId]));
    expect(new Set(traces.values()).size).toBe(2);
    expect(traces.size).toBe(2);
  });
});

describe("the attributes of spans", () => {
  const everything = async (options?: Parameters<typeof traceRuns>[0]): Promise<void> => {
    const runtime = new AgentRuntime({ interceptors: [traced(options)] });
    runtime.register("desk", { version: "3" }, async (_input, { step, ask, run }) => {
      await step("look", () => ({ colour: "crimson" }));
      await run("helper", "Please help.");
      await ask("Which colour?", { name: "colour" });
    });
    runtime.register("helper", () => "");
    const parts = [{ content: "Hello." }, { content_url: "https://example.com/a.png", content_type: "image/png" }];
    const scope = runtime.scope({ tenant: "acme" });
    const { run_id } = await scope.createRun({ agent_name: "desk", input: { parts } });
    await scope.resume({ run_id, await_resume: { colour: "blue" } });
  };

  it("have the names of the GenAI conventions, or ours", async () => {
    await everything({ content: true });
    const known = new Set<unknown>(Object.values(conventions));
    const names = [...new Set(spans().flatMap(({ attributes }) => Object.keys(attributes)))];
    expect(names.filter((name) => !known.has(name) && !name.startsWith("cadenza.")).sort()).toEqual([]);
    expect(names.filter((name) => known.has(name)).sort()).toMatchInlineSnapshot(`
      [
        "gen_ai.agent.name",
        "gen_ai.agent.version",
        "gen_ai.conversation.id",
        "gen_ai.input.messages",
        "gen_ai.operation.name",
      ]
    `);
    expect(spanNamed("invoke_agent desk").attributes[conventions.ATTR_GEN_AI_OPERATION_NAME]).toBe(
      conventions.GEN_AI_OPERATION_NAME_VALUE_INVOKE_AGENT,
    );
    expect(spanNamed("invoke_agent desk").attributes).toMatchObject({
      "gen_ai.agent.name": "desk",
      "gen_ai.agent.version": "3",
      "cadenza.tenant": "acme",
      "cadenza.run.is_first_call": true,
    });
  });

  it("hold no content, unless that is asked for", async () => {
    await everything();
    const shown = JSON.stringify(spans().map(({ attributes, events }) => [attributes, events]));
    for (const content of ["Hello", "a.png", "crimson", "Which colour", "help."]) expect(shown).not.toContain(content);
    exporter.reset();
    await everything({ content: true });
    expect(spanNamed("invoke_agent desk").attributes["gen_ai.input.messages"]).toBe(
      JSON.stringify([
        {
          role: "user",
          parts: [
            { type: "text", content: "Hello." },
            { type: "uri", mime_type: "image/png", uri: "https://example.com/a.png" },
          ],
        },
      ]),
    );
    expect(spanNamed("step look").attributes["cadenza.step.result"]).toBe('{"colour":"crimson"}');
    expect(spanNamed("ask colour").attributes["cadenza.question.text"]).toBe("Which colour?");
  });
});

describe("without an SDK", () => {
  it("nothing is wrapped", () => {
    expect(traceRuns()).toEqual({});
  });

  it("and with one that samples nothing, agents run as before", async () => {
    const silent = new BasicTracerProvider({ sampler: new AlwaysOffSampler() }).getTracer("test");
    const runtime = new AgentRuntime({ interceptors: [traceRuns({ tracer: silent })] });
    runtime.register("echo", async (_input, { step }) => step("work", () => "done"));
    expect((await runtime.createRun({ agent_name: "echo", input: "" })).status).toBe("completed");
  });
});

describe("runs of two tenants with the same id", () => {
  const run_id = "00000000-0000-4000-8000-000000000001";
  const infoOf = (tenant: string, parent_run_id: string | null = null) => ({
    ...{ tenant, run_id, agent_name: "agent", version: null, session_id: run_id, parent_run_id },
    ...{ input: [], carrier: {}, isFirst: true, signal: new AbortController().signal },
  });
  const stepOf = (tenant: string, name: string) => ({ ...infoOf(tenant), name, key: `${name}#1`, attempt: 1 });
  const parentOf = (name: string): string | undefined => {
    const above = spanNamed(name).parentSpanContext?.spanId;
    const found = spans().find((span) => span.spanContext().spanId === above);
    return found && `${found.name} ${found.attributes["cadenza.tenant"] ?? ""}`.trim();
  };

  it("have their spans below their own", async () => {
    const { create, run, step } = traced();
    if (create === undefined || run === undefined || step === undefined) throw new Error("They are not traced.");
    const nothing = async (): Promise<undefined> => undefined;
    const around = (tenant: string, inside: () => Promise<unknown>) =>
      run(infoOf(tenant) as never, async () => {
        await inside();
        return "completed" as never;
      });
    await around("red", () =>
      around("blue", async () => {
        await step(stepOf("blue", "inside") as never, nothing);
        // In the context of another run, and in none.
        await step(stepOf("red", "beside") as never, nothing);
        await context.with(ROOT_CONTEXT, async () => {
          await step(stepOf("red", "first") as never, nothing);
          await step(stepOf("blue", "second") as never, nothing);
          create({ ...infoOf("red", run_id), run_id: "another" } as never);
        });
        const span = tracer.startSpan("a call");
        await context.with(trace.setSpan(context.active(), span), () =>
          step(stepOf("blue", "nested") as never, nothing),
        );
        span.end();
      }),
    );
    expect(parentOf("step inside")).toBe("invoke_agent agent blue");
    expect(parentOf("step beside")).toBe("invoke_agent agent red");
    expect(parentOf("step first")).toBe("invoke_agent agent red");
    expect(parentOf("step second")).toBe("invoke_agent agent blue");
    expect(parentOf("create_run agent")).toBe("invoke_agent agent red");
    expect(parentOf("step nested")).toBe("a call");
  });
});
