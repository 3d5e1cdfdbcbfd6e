import type { StandardSchema } from "cadenza";
import { defineAgent } from "cadenza";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { never } from "../../harness/promises.ts";
import { reply, setUp, textsOf } from "../../harness/runtimes.ts";
import { outcome } from "../../harness/waiting-agents.ts";
import type { Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/*
 * Schemas that fail instead of judging: they throw, reject, never settle or answer with something else. The value is
 * refused, and nothing else happens.
 */

/** Takes the text "good", and does something else with any other. */
function schema(otherwise: (value: unknown) => unknown): StandardSchema<unknown, string> {
  const validate = (value: unknown) => (value === "good" ? { value } : otherwise(value));
  return { "~standard": { version: 1, vendor: "test", validate: validate as never } };
}

const secret = new Error("the password of the database is 1234");
const Nested: z.ZodType = z.lazy(() => z.array(Nested));
const deep = "[".repeat(20_000) + "]".repeat(20_000);

/** What a schema does with a value instead of judging it. */
const failures: Readonly<Record<string, (value: unknown) => unknown>> = {
  throws: () => {
    throw secret;
  },
  "throws nothing": () => {
    throw undefined;
  },
  rejects: () => Promise.reject(secret),
  "never settles": () => never(),
  "is recursive": () => Nested["~standard"].validate(JSON.parse(deep)),
  "gives a thenable that throws": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then() {
      throw secret;
    },
  }),
  "gives a thenable that does nothing": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then() {},
  }),
  "gives a thenable that rejects at once": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then: (_resolve: unknown, reject: (error: unknown) => void) => reject(secret),
  }),
  "gives nothing": () => undefined,
  "gives null later": async () => null,
  "gives issues that are no list": () => ({ issues: 1 }),
  "gives issues without messages": () => ({ issues: [null] }),
  "gives a text": () => "valid",
  "gives neither a value nor issues": () => ({}),
  "gives a result that throws": () => ({
    get issues() {
      throw secret;
    },
  }),
};
const kinds = Object.keys(failures);
const failing = (kind: string): StandardSchema<unknown, string> => schema(failures[kind] ?? (() => undefined));

const FAILED = "The value cannot be validated, because its schema failed.";
/** Longer than any schema may take. */
const LATER_MS = 6_000;

/** The outcome of a call, when so much time has passed as schemas have. */
async function settledLater<T>({ clock }: Pick<Replicas, "clock">, call: Promise<T>): Promise<T> {
  call.catch(() => undefined);
  await clock.advance(LATER_MS);
  return call;
}

describe.each(kinds)("a schema that %s", (kind) => {
  const asks = defineAgent("asks", { durable: true }, async (_input, { ask }) => ask("?", { schema: failing(kind) }));

  it("refuses an answer, and takes the next one", async () => {
    const { runtime, clock, said } = setUp();
    runtime.register(asks);
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
    const refused = await outcome(settledLater({ clock }, runtime.resume({ run_id, await_resume: reply("bad") })));
    expect(refused).toBe("answer_rejected");
    const run = await settledLater({ clock }, runtime.resume({ run_id, await_resume: reply("good") }));
    expect(textsOf(run)).toEqual(["good"]);
    expect(said.filter(({ message }) => message === "A schema failed to validate a value.").length).toBeGreaterThan(0);
    await runtime.close();
  });

  it.each([
    ["in memory", inMemory],
    ["on a file", onFile],
  ])("refuses an answer that a process without the code has taken, %s", async (_where, open) => {
    const replicas = open();
    const worker = replicas.start();
    worker.runtime.register(asks);
    const front = replicas.start({ work: false });
    front.runtime.declare({ name: "asks", durable: true });
    const asking = front.runtime.createRun({ agent_name: "asks", input: "" });
    const { run_id } = await settledLater(replicas, asking);
    const refused = settledLater(replicas, front.runtime.resume({ run_id, await_resume: reply("bad") }));
    const error = await refused.catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "answer_rejected", issues: [{ path: [], message: FAILED }] });
    expect((await front.runtime.getRun(run_id)).status).toBe("awaiting");
    const run = await settledLater(replicas, front.runtime.resume({ run_id, await_resume: reply("good") }));
    expect(textsOf(run)).toEqual(["good"]);
  });

  it("refuses an input and a message", async () => {
    const { runtime, clock } = setUp();
    const typed = defineAgent("typed", { input: failing(kind), messages: { hint: failing(kind) } });
    runtime.register(typed.run(async (_input, { receive }) => receive("hint")));
    const refused = settledLater({ clock }, runtime.createRun({ agent_name: "typed", input: "bad" }));
    expect(await outcome(refused)).toBe("invalid_input");
    const { run_id } = await runtime.createRun({ agent_name: "typed", input: "good", mode: "async" });
    await clock.settle();
    const sent = settledLater({ clock }, runtime.send({ to: run_id, name: "hint", data: "bad" }));
    expect(await outcome(sent)).toBe("message_rejected");
    await settledLater({ clock }, runtime.send({ to: run_id, name: "hint", data: "good" }));
    expect(textsOf(await runtime.getRun(run_id))).toEqual(["good"]);
    await runtime.close();
  });

  it("fails no run that receives a message, unless the agent does", async () => {
    const { runtime, clock } = setUp();
    runtime.register("receives", { durable: true }, async (_input, { receive }) =>
      receive("hint", { schema: failing(kind) }).catch((error: { code: string }) => error.code),
    );
    const { run_id } = await runtime.createRun({ agent_name: "receives", input: "", mode: "async" });
    await settledLater({ clock }, runtime.send({ to: run_id, name: "hint", data: "bad" }));
    expect(textsOf(await runtime.getRun(run_id))).toEqual(["message_rejected"]);
    await runtime.close();
  });
});

describe.each(["throws", "rejects"])("a schema that %s once", (kind) => {
  /** Takes any value, and fails at the calls with these numbers. */
  function failsAt(...calls: readonly number[]): StandardSchema<unknown, string> {
    let call = 0;
    const validate = (value: unknown) => {
      call += 1;
      return calls.includes(call) ? failures[kind]?.(value) : { value };
    };
    return { "~standard": { version: 1, vendor: "test", validate: validate as never } };
  }

  it("does not block the run that is replayed with an answer", async () => {
    const replicas = inMemory();
    const register = (fails: StandardSchema<unknown, string>) => {
      const replica = replicas.start({
        durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 0 },
      });
      replica.runtime.register("asks", { durable: true }, async (_input, { ask }) => {
        const first = await ask("first?", { schema: fails });
        return `${first} ${await ask("second?", { schema: failsAt() })}`;
      });
      return replica;
    };
    const before = register(failsAt());
    const { run_id } = await before.runtime.createRun({ agent_name: "asks", input: "" });
    await settledLater(replicas, before.runtime.resume({ run_id, await_resume: reply("one") }));
    before.kill();
    const next = register(failsAt(1));
    const run = await settledLater(replicas, next.runtime.resume({ run_id, await_resume: reply("two") }));
    expect(textsOf(run)).toEqual(["one two"]);
    await next.runtime.close();
  });

  it("does not fail the run whose input it has taken, nor the run whose output it reads", async () => {
    const { runtime } = setUp();
    const typed = defineAgent("typed", { input: failsAt(2), output: failsAt(1, 3) });
    const agent = typed.run(async (input) => input);
    runtime.register(agent);
    expect(await runtime.call(agent, "fine")).toBe("fine");
    await runtime.close();
  });
});

it("an agent whose schema has a JSON Schema that is no JSON is described, and asks", async () => {
  const circular: Record<string, unknown> = {};
  circular["self"] = circular;
  const odd = {
    "~standard": { ...schema(() => ({ issues: [] }))["~standard"], jsonSchema: { input: () => circular } },
  } as StandardSchema<unknown, string>;
  const { runtime } = setUp();
  runtime.register(
    defineAgent("odd", { questions: { which: odd } }).run((_input, { ask }) => ask("?", { name: "which" })),
  );
  expect((await runtime.getAgent("odd")).name).toBe("odd");
  const { run_id, status } = await runtime.createRun({ agent_name: "odd", input: "" });
  expect(status).toBe("awaiting");
  expect(textsOf(await runtime.resume({ run_id, await_resume: reply("good") }))).toEqual(["good"]);
  await runtime.close();
});

const throwing: Readonly<Record<string, () => object>> = {
  "a proxy that was revoked": () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  },
  "an object whose then cannot be read": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    get then() {
      throw secret;
    },
  }),
  "a thenable that throws": () => ({
    // biome-ignore lint/suspicious/noThenProperty: such objects exist.
    then() {
      throw secret;
    },
  }),
};

describe.each(Object.keys(throwing))("%s", (name) => {
  const make = throwing[name] ?? (() => ({}));

  it.each([true, false])("as the value of a schema is an error of its agent alone, durable: %s", async (isDurable) => {
    const replicas = inMemory();
    const { runtime } = replicas.start();
    const gives = schema(() => ({ value: make() }));
    runtime.register("asks", { durable: isDurable }, async (_input, { ask }) => {
      await ask("?", { schema: gives }).catch(() => undefined);
      return "went on";
    });
    const { run_id } = await settledLater(replicas, runtime.createRun({ agent_name: "asks", input: "" }));
    const run = await settledLater(replicas, runtime.resume({ run_id, await_resume: reply("any") }));
    expect(textsOf(run)).toEqual(["went on"]);
  });

  it.each([true, false])("that an agent throws fails its run, durable: %s", async (isDurable) => {
    const replicas = inMemory();
    const { runtime } = replicas.start();
    runtime.register("throws", { durable: isDurable }, () => {
      throw make();
    });
    const run = await settledLater(replicas, runtime.createRun({ agent_name: "throws", input: "" }));
    expect(run.error).toMatchObject({ message: "The agent failed.", data: { reason: "agent_failed" } });
  });
});
