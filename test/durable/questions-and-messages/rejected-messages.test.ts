import type { StandardSchema } from "cadenza";
import { expect, it } from "vitest";
import * as z from "zod";
import { deferred } from "../../harness/promises.ts";
import { textsOf } from "../../harness/runtimes.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 0 };

/** A process whose agent takes a text, and says what it was given first. */
function start(replicas: Replicas, schema: StandardSchema): Replica {
  const replica = replicas.start({ durability });
  replica.runtime.register("strict", { durable: true }, async (_input, { receive, step }) => {
    const first = await receive("mail", { schema }).catch(({ message }: Error) => message.split(": ").at(-1));
    await step("note", () => undefined);
    return `${first}, ${await receive("mail")}`;
  });
  return replica;
}

async function begin({ runtime, clock }: Replica): Promise<string> {
  const { run_id } = await runtime.createRun({ agent_name: "strict", input: "", mode: "async" });
  await clock.settle();
  return run_id;
}

/** What is told of messages, steps and output, in order. */
async function told({ runtime }: Replica, run_id: string): Promise<string[]> {
  const list: string[] = [];
  for await (const event of runtime.events(run_id, { until: "now", detail: true })) {
    if (event.type === "message.received") list.push(`received ${JSON.stringify(event.data)}`);
    if (event.type === "receive.ended")
      list.push([event.key, event.how, ...(event.issues ?? []).map(({ message }) => message)].join(" "));
    if (event.type === "step.completed") list.push(event.key);
    if (event.type === "message.part") list.push(event.part.content ?? "");
  }
  return list;
}

const message = { message: "no text", path: [] };
const standard: StandardSchema = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: async (value) => (typeof value === "string" ? { value } : { issues: [message] }),
  },
};
const schemas = {
  "at once": z.string("no text"),
  "with a promise, by zod": z.unknown().refine(async (value) => typeof value === "string", "no text"),
  "with a promise": standard,
} as const;
const answers = Object.keys(schemas) as (keyof typeof schemas)[];

it.each(answers)("a message is rejected by a schema that answers %s", async (how) => {
  const replicas = inMemory();
  const one = start(replicas, schemas[how]);
  const run_id = await begin(one);
  await one.runtime.send({ to: run_id, name: "mail", data: 5 });
  await one.runtime.send({ to: run_id, name: "mail", data: "end" });
  await replicas.clock.advance(1_000);
  expect(textsOf(await one.runtime.getRun(run_id))).toEqual(["no text, end"]);
  const list = await told(one, run_id);
  expect(list.filter((text) => !text.startsWith("received"))).toEqual([
    "receive:mail#1 rejected no text",
    "note#1",
    "receive:mail#2 message",
    "no text, end",
  ]);
  const log = (await one.store.read({ tenant: "", run_id }, 0, 100)) ?? [];
  expect(log.flatMap((entry) => (entry.type === "taken" ? [entry.issues] : []))).toEqual([[message], undefined]);
});

it.each(answers)("a rejected message stays rejected when a process with another schema goes on: %s", async (how) => {
  const replicas = inMemory();
  const first = start(replicas, schemas[how]);
  const run_id = await begin(first);
  await first.runtime.send({ to: run_id, name: "mail", data: 5 });
  await replicas.clock.advance(1_000);
  first.kill();
  const second = start(replicas, z.unknown());
  await second.runtime.send({ to: run_id, name: "mail", data: "end" });
  await replicas.clock.advance(5_000);
  expect(textsOf(await second.runtime.getRun(run_id))).toEqual(["no text, end"]);
  expect(await told(second, run_id)).toEqual([
    "received 5",
    "receive:mail#1 rejected no text",
    "note#1",
    'received "end"',
    "receive:mail#2 message",
    "no text, end",
  ]);
  expect((await second.runtime.stats()).differences).toBe(0);
});

it("a message whose schema had not answered when the process died is judged by the next one", async () => {
  const replicas = inMemory();
  const never = deferred<never>();
  const asking: StandardSchema = { "~standard": { ...standard["~standard"], validate: () => never.promise } };
  const first = start(replicas, asking);
  const run_id = await begin(first);
  await first.runtime.send({ to: run_id, name: "mail", data: 5 });
  await first.runtime.send({ to: run_id, name: "mail", data: "end" });
  await replicas.clock.settle();
  first.kill();
  const second = start(replicas, standard);
  await replicas.clock.advance(5_000);
  expect(await told(second, run_id)).toEqual([
    "received 5",
    'received "end"',
    "receive:mail#1 rejected no text",
    "note#1",
    "receive:mail#2 message",
    "no text, end",
  ]);
  expect((await second.runtime.stats()).differences).toBe(0);
});

it("a run keeps its owner while the schema of a message has not answered", async () => {
  const replicas = inMemory();
  const gate = deferred();
  let asked = 0;
  const slow: StandardSchema = {
    "~standard": {
      ...standard["~standard"],
      validate: async (value) => {
        asked += 1;
        await gate.promise;
        return standard["~standard"].validate(value);
      },
    },
  };
  const first = start(replicas, slow);
  const run_id = await begin(first);
  await first.runtime.send({ to: run_id, name: "mail", data: "one" });
  const second = start(replicas, slow);
  await replicas.clock.advance(3_000);
  gate.resolve();
  await replicas.clock.settle();
  await second.runtime.send({ to: run_id, name: "mail", data: "two" });
  await replicas.clock.advance(3_000);
  expect(textsOf(await second.runtime.getRun(run_id))).toEqual(["one, two"]);
  // Once for the first receive, and once for its replay by the process that has taken the second message.
  expect(asked).toBeLessThanOrEqual(2);
  expect((await told(second, run_id)).filter((text) => text.startsWith("receive"))).toEqual([
    'received "one"',
    "receive:mail#1 message",
    'received "two"',
    "receive:mail#2 message",
  ]);
});

it("a run whose agent has got a message is blocked when its schema fails in a replay", async () => {
  const replicas = inMemory();
  const charged: unknown[] = [];
  const startWith = (schema: StandardSchema) => {
    const replica = replicas.start({ durability });
    replica.runtime.register("strict", { durable: true }, async (_input, { receive, step, sleep }) => {
      const mail = await receive("mail", { schema }).catch(() => "none");
      await step("charge", () => charged.push(mail));
      await sleep(10_000);
      return `charged ${mail}`;
    });
    return replica;
  };
  const first = startWith(z.number());
  const run_id = await begin(first);
  await first.runtime.send({ to: run_id, name: "mail", data: 5 });
  await replicas.clock.advance(1_000);
  await first.runtime.close();
  const away = () => {
    throw new Error("The look-up is down.");
  };
  const second = startWith(z.any().refine(away));
  await replicas.clock.advance(20_000);
  expect(charged).toEqual([5]);
  const { blocked } = await second.runtime.details(run_id);
  expect(blocked).toMatchObject({
    expected: "a valid message for receive:mail#1",
    asked: "receive:mail#1 with another schema",
  });
  const third = startWith(z.number());
  await replicas.clock.advance(20_000);
  expect(textsOf(await third.runtime.getRun(run_id))).toEqual(["charged 5"]);
  expect(charged).toEqual([5]);
});
