import type { AgentFunction } from "cadenza";
import { MemoryStore, AgentRuntime as Runtime } from "cadenza";
import { createInspectorHandler } from "cadenza/inspector";
import { durable } from "cadenza/store";
import { createPlayground } from "cadenza/testing";
import { expect, it, onTestFinished } from "vitest";
import type { CodeOfRun, Start } from "../../src/inspector/api.ts";
import { persistent } from "../harness/store-proxy.ts";
import { Visitor } from "./visitor.ts";

/** What a process is that has loaded other code: the store stays. */
function open() {
  const store = persistent(new MemoryStore());
  const load = (fn: AgentFunction) => {
    const playground = createPlayground();
    const runtime = new Runtime({ store: durable(store), interceptors: [playground.interceptor] });
    runtime.register("order", { durable: true }, fn);
    onTestFinished(async () => void (await runtime.close({ drainMs: 0 })));
    const visitor = new Visitor(
      createInspectorHandler(runtime, { playground, authorize: () => ({ allTenants: true }) }),
    );
    const codeOf = async (run_id: string): Promise<CodeOfRun> =>
      (await (await visitor.get(`api/code?run_id=${run_id}`)).json()) as CodeOfRun;
    const outputOf = async (run_id: string): Promise<string> => {
      for await (const _ of runtime.events(run_id, { until: "end" }));
      const { output } = await runtime.getRun(run_id);
      return output.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join("");
    };
    const fork = (run_id: string, body: object) => visitor.act<{ run_id: string }>("fork", { run_id, ...body });
    return { runtime, visitor, codeOf, outputOf, fork };
  };
  return { load };
}

/** An answer of a model, as `aiSdk(context)` records it. */
const answered = (answer: string) => ({ model: "m", prompt: { hash: "1" }, answer });

const before: AgentFunction = async function* (_input, { step }) {
  const weight = await step("weigh", () => "2 kg");
  yield `Weighs ${weight}. `;
  const { answer } = await step("model", () => answered("By sea."));
  yield `${answer} `;
  yield await step("ship", () => "Shipped.");
};

async function madeBefore() {
  const { load } = open();
  const old = load(before);
  const { run_id } = await old.runtime.createRun({ agent_name: "order", input: "" });
  const code = await old.codeOf(run_id);
  await old.runtime.close({ drainMs: 0 });
  return { load, run_id, code };
}

it("code that is the same differs nowhere, and names the steps of the run", async () => {
  const { load, run_id, code } = await madeBefore();
  expect(code).toMatchObject({
    differs: null,
    operations: [{ key: "weigh#1" }, { key: "model#1" }, { key: "ship#1" }],
  });
  expect(await load(before).codeOf(run_id)).toEqual(code);
});

it.each<[what: string, after: AgentFunction, differs: object | null]>([
  [
    "another operation",
    async (_input, { step }) => {
      await step("weigh", () => "2 kg");
      return step("measure", () => "3 m");
    },
    { at: 1, expected: expect.stringMatching(/./), asked: expect.stringMatching(/./) },
  ],
  [
    "another text",
    async function* (_input, { step }) {
      yield `It weighs ${await step("weigh", () => "2 kg")}. `;
      yield `${(await step("model", () => answered("By sea."))).answer} `;
      yield await step("ship", () => "Shipped.");
    },
    { at: 1, asked: "a text" },
  ],
  [
    "one operation more",
    async function* (input, context) {
      yield* before(input, context) as AsyncIterable<string>;
      await context.step("bill", () => "Billed.");
    },
    { at: 3, expected: "the end of the run", asked: "bill#1" },
  ],
  [
    "an end before the last operation",
    async function* (_input, { step }) {
      yield `Weighs ${await step("weigh", () => "2 kg")}. `;
      yield `${(await step("model", () => answered("By sea."))).answer} `;
    },
    { at: 2, asked: "the agent returned" },
  ],
])("finds where %s begins", async (_, after, differs) => {
  const { load, run_id } = await madeBefore();
  expect((await load(after).codeOf(run_id)).differs).toMatchObject(differs ?? {});
});

it("the body of a step that has changed has another digest, and a fork before it does the new one", async () => {
  const { load, run_id, code } = await madeBefore();
  const done: string[] = [];
  const { codeOf, fork, outputOf } = load(async function* (_input, { step }) {
    const weight = await step("weigh", () => "2 kg");
    yield `Weighs ${weight}. `;
    const { answer } = await step("model", () => {
      done.push("model");
      return answered("By air.");
    });
    yield `${answer} `;
    yield await step("ship", () => {
      done.push("ship");
      return "Shipped again.";
    });
  });
  const now = await codeOf(run_id);
  expect(now.differs).toBeNull();
  const changed = now.operations.filter(({ body }, index) => body !== code.operations[index]?.body);
  expect(changed.map(({ key }) => key)).toEqual(["model#1", "ship#1"]);
  const real = await fork(run_id, { before: "model#1" });
  expect(await outputOf(real.run_id)).toBe("Weighs 2 kg. By air. Shipped again.");
  expect(done.splice(0)).toEqual(["model", "ship"]);
  const models = await fork(run_id, { before: "model#1", stub: "models" });
  expect(await outputOf(models.run_id)).toBe("Weighs 2 kg. By sea. Shipped again.");
  expect(done.splice(0)).toEqual(["ship"]);
  const steps = await fork(run_id, { before: "model#1", stub: "steps", except: ["model#1"] });
  expect(await outputOf(steps.run_id)).toBe("Weighs 2 kg. By air. Shipped.");
  expect(done.splice(0)).toEqual(["model"]);
  const again = await fork(run_id, { before: "model#1" });
  expect(await outputOf(again.run_id)).toBe("Weighs 2 kg. By air. Shipped again.");
});

it("an inspector without a playground has none", async () => {
  const runtime = new Runtime({ store: durable(persistent(new MemoryStore())) });
  runtime.register("order", { durable: true }, before);
  const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
  const visitor = new Visitor(createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) }));
  expect(((await (await visitor.get("api/start")).json()) as Start).has_playground).toBe(false);
  expect((await visitor.get(`api/code?run_id=${run_id}`)).status).toBe(404);
  expect((await visitor.post("fork", { run_id, stub: "models" })).status).toBe(422);
  expect(() => createInspectorHandler(runtime, { playground: {} as never })).toThrow("playground");
  await runtime.close();
});
