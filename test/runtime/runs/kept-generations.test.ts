import type { StreamedEvent } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { describe, expect, it } from "vitest";
import { drain, setUp, textsOf } from "../../harness/runtimes.ts";
import type { Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Generations that the retention deletes while their run goes on. */

const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];
const LAST = 5;

function start(replicas: Replicas, keepGenerations: number) {
  const { runtime, kill } = replicas.start({ retention: { keepGenerations } });
  runtime.register("talks", { durable: true }, async (_input, { generation, step, emit, ask, continueAsNew }) => {
    await emit(`said ${generation}`);
    await step("work", () => generation);
    if (generation < LAST) return continueAsNew(generation);
    await ask("Well?");
    return "the end";
  });
  return { runtime, kill };
}

const saidIn = (messages: readonly { readonly parts: readonly { readonly content?: string }[] }[]) =>
  messages.map(({ parts }) => parts.map(({ content }) => content).join(""));

function lostIn(events: readonly StreamedEvent[]) {
  return events.flatMap((event) => (event.type === "error" ? [{ id: event.id, data: event.error.data }] : []));
}

describe.each(opened)("$on, of five generations", ({ open }) => {
  it.each([1, 2, 3])("%i are kept, and readers are told of the others", async (kept) => {
    const replicas = open();
    const first = start(replicas, kept);
    const { run_id } = await first.runtime.createRun({ agent_name: "talks", input: "go" });
    await replicas.clock.advance(1_000);
    const begin = LAST - kept + 1;

    const events = await drain(first.runtime.events(run_id, { until: "now" }));
    const [lost] = lostIn(events);
    expect(events.map(({ type }) => type)).toEqual(["run.created", "error"]);
    expect(lost?.data).toEqual({ reason: "events_lost" });
    const rest = await drain(first.runtime.events(run_id, { after: lost?.id ?? 0, until: "now" }));
    expect(rest.map(({ id }) => id)).toEqual(rest.map((_, index) => (lost?.id ?? 0) + 1 + index));
    const parts = rest.flatMap((event) => (event.type === "message.part" ? [event.part.content] : []));
    expect(parts).toEqual(Array.from({ length: kept }, (_, n) => `said ${begin + n}`));
    expect(lostIn(await drain(first.runtime.events(run_id, { after: 3, until: "now" })))).toEqual([lost]);

    expect(saidIn(await first.runtime.transcript(run_id)).slice(0, kept)).toEqual(parts);
    expect(textsOf(await first.runtime.getRun(run_id))[0]).toBe(`said ${LAST}`);
    expect(await first.runtime.details(run_id)).toMatchObject({ generation: LAST, first_generation: begin });
    const admin = createAdmin(first.runtime);
    const { items } = await admin.log(run_id, { limit: 500 });
    expect(items.map(({ type, position }) => [type, position]).slice(0, 2)).toEqual([
      ["created", 0],
      ["continued", items[1]?.position],
    ]);
    expect(items.at(-1)?.position).toBe(((await admin.runs()).items[0]?.position ?? 0) - 1);
    const timeline = (await admin.timeline(run_id, { limit: 500 })).items;
    expect(timeline.filter(({ type }) => type === "continued").map(({ position }) => position)).toEqual(
      items.flatMap((entry) => (entry.type === "continued" ? [entry.position] : [])),
    );

    first.kill();
    const second = start(replicas, kept);
    await replicas.clock.advance(10_000);
    let heard = 0;
    second.runtime.on("run.completed", () => {
      heard += 1;
    });
    const done = await second.runtime.resume({ run_id, await_resume: { ok: true } });
    expect([done.status, textsOf(done).at(-1)]).toEqual(["completed", "the end"]);
    await replicas.clock.advance(1);
    expect(heard).toBe(1);
  });

  it("an operation of a kept generation can be forked, one of another cannot", async () => {
    const replicas = open();
    const { runtime } = start(replicas, 2);
    const { run_id } = await runtime.createRun({ agent_name: "talks", input: "go" });
    await replicas.clock.advance(1_000);
    const fork = await runtime.fork(run_id, { before: "work#4.1" });
    expect([fork.status, textsOf(fork)[0]]).toEqual(["awaiting", `said ${LAST}`]);
    await expect(runtime.fork(run_id, { before: "work#2.1" })).rejects.toMatchObject({ code: "invalid_argument" });
  });

  it("all of a sub-run is kept while its parent may read it", async () => {
    const replicas = open();
    const { runtime } = start(replicas, 1);
    runtime.register("parent", { durable: true }, async (_input, { run }) => {
      await run("talks", "go", { show: true });
    });
    const { run_id } = await runtime.createRun({ agent_name: "parent", input: "" });
    await replicas.clock.advance(1_000);
    const [below] = (await runtime.details(run_id)).children;
    expect(lostIn(await drain(runtime.events(String(below), { until: "now" })))).toEqual([]);
    expect(await runtime.details(String(below))).toMatchObject({ generation: LAST, first_generation: 1 });
  });
});

it("all generations are kept unless the retention says otherwise", async () => {
  const { runtime } = setUp();
  runtime.register("thrice", async (_input, { generation, continueAsNew }) =>
    generation < 3 ? continueAsNew() : "end",
  );
  const { run_id } = await runtime.createRun({ agent_name: "thrice", input: "" });
  expect(lostIn(await drain(runtime.events(run_id)))).toEqual([]);
});

it.each([0, 1.5, 101, -1, "2"])("refuses to keep %s generations", (keepGenerations) => {
  expect(() => new AgentRuntime({ retention: { keepGenerations: keepGenerations as number } })).toThrow(
    "options.retention.keepGenerations",
  );
});
