import type { DetailEvent, DetailedEvent, StreamedEvent } from "cadenza";
import { AgentError } from "cadenza";
import { describe, expect, expectTypeOf, it } from "vitest";
import * as z from "zod";
import { detailEventSchema } from "../../../src/protocol/extensions.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { refusal, setUp, setUpOnFile, shownIn } from "../../harness/runtimes.ts";
import { TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

/* `events` with `detail`: what a run does beside what the protocol shows. */

const durable = { durable: true } as const;
const isDetail = (event: DetailedEvent): event is DetailEvent => "position" in event;

/** All events of a run so far, with details. Their numbers are checked. */
async function read({ runtime }: Setup, run_id: string, after = 0): Promise<DetailedEvent[]> {
  const events: DetailedEvent[] = [];
  for await (const event of runtime.events(run_id, { detail: true, until: "now", after })) events.push(event);
  const details = events.filter(isDetail);
  if (after === 0) expect(details.map(({ position }) => position)).toEqual(details.map((_, index) => index + 1));
  for (const detail of details) {
    expect(detailEventSchema.parse(detail)).toEqual(detail);
    expect("id" in detail).toBe(false);
  }
  if (after === 0) expect(shownIn(events)).toEqual((await runtime.getRun(run_id)).output.flatMap(({ parts }) => parts));
  return events;
}

/** A detail in short: its type, and what is its own. */
function short({ type, position: _, at: __, ...rest }: DetailEvent): string {
  if ("question" in rest) return `${type} ${rest.question.await_id}${rest.question.of === null ? "" : " of a sub-run"}`;
  return [
    type,
    ...Object.values(rest).map((value) => (typeof value === "object" ? JSON.stringify(value) : value)),
  ].join(" ");
}

async function details(set: Setup, run_id: string): Promise<string[]> {
  return (await read(set, run_id)).filter(isDetail).map(short);
}

const tokens = (input: number, output: number) => ({ input_tokens: input, output_tokens: output });

describe.each([
  ["in memory", () => setUp()],
  ["on SQLite", setUpOnFile],
] as const)("the details of a run %s", (_where, make) => {
  async function start(set: Setup, body: Parameters<Setup["runtime"]["register"]>[2]): Promise<string> {
    set.runtime.register("agent", durable, body as never);
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await set.clock.settle();
    return run_id;
  }

  it("tell each step, with its attempts and its error", async () => {
    const set = make();
    const run_id = await start(set, async (_input, { step, usage }) => {
      await step("plan", () => usage.add(tokens(3, 4)));
      await step(
        "flaky",
        ({ attempt }) => (attempt < 3 ? Promise.reject(new AgentError("no", `No ${attempt}.`)) : attempt),
        {
          retry: { attempts: 3 },
        },
      );
      await step("secret", () => Promise.reject(new Error("password=hunter2"))).catch(() => undefined);
      await step("shown", () => Promise.reject(new AgentError("no_seat", "Full.", { train: 7 }))).catch(
        () => undefined,
      );
      usage.add(tokens(1, 1));
      return "done";
    });
    const all = await read(set, run_id);
    expect(all.filter(isDetail).map((event) => event.type)).toEqual([
      ...["step.started", "step.completed", "usage"],
      ...[
        "step.started",
        "step.attempt_failed",
        "step.started",
        "step.attempt_failed",
        "step.started",
        "step.completed",
      ],
      ...["step.started", "step.failed", "step.started", "step.failed", "usage"],
    ]);
    const list = all.filter(isDetail).map(short);
    expect(list.slice(0, 2)).toEqual(["step.started plan#1 plan 1", "step.completed plan#1 plan 1"]);
    const error = (n: number) => `{"code":"server_error","message":"No ${n}.","data":{"reason":"no"}}`;
    expect(list.slice(3, 9)).toEqual([
      "step.started flaky#1 flaky 1",
      `step.attempt_failed flaky#1 flaky 1 ${error(1)} null`,
      "step.started flaky#1 flaky 2",
      `step.attempt_failed flaky#1 flaky 2 ${error(2)} null`,
      "step.started flaky#1 flaky 3",
      "step.completed flaky#1 flaky 3",
    ]);
    expect(all.filter(isDetail)[10]).toMatchObject({
      ...{ key: "secret#1", attempt: 1 },
      error: { code: "server_error", message: "The agent failed.", data: { reason: "agent_failed" } },
    });
    expect(all.filter(isDetail)[12]).toMatchObject({
      error: { code: "server_error", message: "Full.", data: { reason: "no_seat", train: 7 } },
    });
    expect(all.filter(({ type }) => type === "usage")).toMatchObject([
      { usage: { total_tokens: 7 }, total: { total_tokens: 7 } },
      { usage: { total_tokens: 2 }, total: { total_tokens: 9 } },
    ]);
    // The last event of a run that rests stays the last one.
    expect(all.at(-1)?.type).toBe("run.completed");
  });

  it("tell which parts do not count, since their step is tried again", async () => {
    const set = make();
    const run_id = await start(set, async function* (_input, { step }) {
      yield "Before.";
      await Promise.all([
        step(
          "twice",
          async ({ emit, attempt }) => {
            await emit("One ");
            await emit("two.");
            if (attempt < 3) throw new AgentError("no", "No.");
          },
          { retry: { attempts: 3 } },
        ),
        step("once", async ({ emit }) => {
          await emit("A");
          await emit({ role: "agent", parts: [{ content: "B" }, { content: "C" }] } as never);
          await emit("D");
        }),
      ]);
      await step("silent", ({ attempt }) => (attempt < 2 ? Promise.reject(new Error("no")) : null), {
        retry: { attempts: 2 },
      });
      yield "After.";
    });
    const all = await read(set, run_id);
    const torn = all.filter((event) => event.type === "output.torn");
    expect(torn).toHaveLength(2);
    expect(all.filter(({ type }) => type === "message.part").length).toBeGreaterThan(8);
    expect(all.at(-1)?.type).toBe("run.completed");
  });

  it("tell sleeps, messages and receives", async () => {
    const set = make();
    const run_id = await start(set, async (_input, { sleep, receive }) => {
      await sleep(1_000);
      const stop = new AbortController();
      const naps = sleep("24h", { name: "nap", signal: stop.signal }).catch(() => undefined);
      const first = await receive("mail");
      stop.abort();
      await naps;
      const second = await receive("mail");
      await receive("post", { timeoutMs: 500, default: null });
      return JSON.stringify([first, second]);
    });
    await set.clock.advance(1_000);
    await set.clock.settle();
    await set.runtime.send({ to: run_id, name: "mail", data: { n: 1 } }, { idempotencyKey: "one" });
    await set.runtime.send({ to: run_id, name: "mail", data: { n: 1 } }, { idempotencyKey: "one" });
    await set.runtime.send({ to: run_id, name: "mail", data: "two" });
    await set.clock.settle();
    await set.clock.advance(500);
    await set.clock.settle();
    const list = await details(set, run_id);
    const normal = list.map((text) => text.replaceAll(/\d{4}-[\d-]+T[\d:.]+Z/g, "TIME"));
    expect(normal.map((text) => text.replace(/message \d /, "message N ")).sort()).toEqual(
      [
        "sleep.started sleep#1 TIME",
        "sleep.ended sleep#1 elapsed",
        "sleep.started sleep:nap#1 TIME",
        "receive.started receive:mail#1 mail null",
        'message.received mail {"n":1} null',
        "receive.ended receive:mail#1 mail message N null",
        "message.received mail two null",
        "sleep.ended sleep:nap#1 withdrawn",
        "receive.ended receive:mail#2 mail message N null",
        "receive.started receive:post#1 post TIME",
        "receive.ended receive:post#1 post expired null null",
      ].sort(),
    );
    const all = (await read(set, run_id)).filter(isDetail);
    const taken = all.flatMap((event) => (event.type === "receive.ended" && event.name === "mail" ? [event] : []));
    expect(taken.map(({ message }) => all.find(({ position }) => position === message))).toMatchObject([
      { type: "message.received", data: { n: 1 } },
      { type: "message.received", data: "two" },
    ]);
  });

  it("tell that a message was rejected, and what was wrong with it", async () => {
    const set = make();
    const run_id = await start(set, async (_input, { receive }) => {
      const schema = z.object({ cents: z.number("expected a number of cents") });
      await receive("mail", { schema }).catch(() => undefined);
      await receive("mail", { schema });
    });
    await set.runtime.send({ to: run_id, name: "mail", data: { cents: "many" } });
    await set.runtime.send({ to: run_id, name: "mail", data: { cents: 5 } });
    await set.clock.settle();
    const ends = (await read(set, run_id)).filter(({ type }) => type === "receive.ended");
    expect(ends).toMatchObject([
      { how: "rejected", issues: [{ path: ["cents"], message: "expected a number of cents" }] },
      { how: "message", issues: null },
    ]);
  });

  it("tell all questions, and how each is settled", async () => {
    const set = make();
    const run_id = await start(set, async (_input, { ask }) => {
      const stop = new AbortController();
      const answers = Promise.all([
        ask("One?", { name: "first" }),
        ask("Two?", { kind: "approval" }).catch(() => "declined"),
        ask("Three?", { timeoutMs: 100, default: { n: 3 } }),
        ask("Four?", { signal: stop.signal }).catch(() => "withdrawn"),
      ]);
      stop.abort();
      await answers;
      await ask("Five?");
    });
    const ada = set.runtime.scope({ principal: "ada" });
    await ada.resume({ run_id, await_id: "ask#2", decline: { reason: "No." }, mode: "async" });
    await set.clock.advance(100);
    await set.clock.settle();
    await set.runtime.scope({ principal: { name: "bob" } }).resume({ run_id, await_resume: { ok: true } });
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    const list = await details(set, run_id);
    expect(list.filter((text) => text.startsWith("question.asked"))).toEqual(
      [1, 2, 3, 4, 5].map((n) => `question.asked ask#${n}`),
    );
    expect(list.filter((text) => text.startsWith("question.settled")).sort()).toEqual([
      'question.settled ask#1 answer {"name":"bob"} null {"ok":true}',
      "question.settled ask#2 declined ada No. null",
      "question.settled ask#3 default null null null",
      "question.settled ask#4 withdrawn null null null",
      "question.settled ask#5 withdrawn null null null",
    ]);
    const all = await read(set, run_id);
    const questions = all.flatMap((event) => (event.type === "question.asked" ? [event.question] : []));
    expect(questions[0]).toMatchObject({ name: "first", kind: "input", expires_at: null, of: null });
    expect(questions[1]).toMatchObject({ name: null, kind: "approval" });
    expect(questions[2]?.expires_at).toMatch(/Z$/);
    // The events of the protocol show the first one only.
    expect(all[2]).toMatchObject({ type: "question.asked" });
    expect(all[3]).toMatchObject({ type: "run.awaiting", run: { await_request: { await_id: "ask#1" } } });
  });

  it("tell that a question has expired with its run", async () => {
    const set = make();
    const run_id = await start(set, (_input, { ask }) => Promise.all([ask("One?"), ask("Two?", { timeoutMs: 50 })]));
    await set.clock.advance(50);
    await set.clock.settle();
    expect((await details(set, run_id)).slice(2)).toEqual([
      "question.settled ask#2 expired null null null",
      "question.settled ask#1 withdrawn null null null",
    ]);
  });

  it("tell sub-runs, and their questions", async () => {
    const set = make();
    set.runtime.register("child", durable, (_input, { ask }) => ask("Which?"));
    set.runtime.register("bad", durable, () => Promise.reject(new AgentError("no", "No.")));
    const run_id = await start(set, async (_input, { run }) => {
      await run("child", "x");
      await run("bad", "x");
      await run("missing", "x").catch(() => undefined);
    });
    await set.runtime.resume({ run_id, await_resume: { ok: true } });
    await set.clock.settle();
    const { children } = await set.runtime.details(run_id);
    const [child, bad] = children;
    const list = await details(set, run_id);
    const missing = list.at(-1)?.split(" ")[3];
    expect(list).toEqual([
      `sub_run.started run:child#1 child ${child}`,
      "question.asked run:child#1/ask#1 of a sub-run",
      'question.settled run:child#1/ask#1 answer null null {"ok":true}',
      `sub_run.ended run:child#1 child ${child} completed null`,
      `sub_run.started run:bad#1 bad ${bad}`,
      `sub_run.ended run:bad#1 bad ${bad} failed {"code":"server_error","message":"No.","data":{"reason":"no"}}`,
      `sub_run.started run:missing#1 missing ${missing}`,
      expect.stringContaining(`sub_run.ended run:missing#1 missing ${missing} null {"code":"server_error"`),
    ]);
    // Each run tells what it asks itself.
    expect(await details(set, child ?? "")).toEqual([
      "question.asked ask#1",
      'question.settled ask#1 answer null null {"ok":true}',
    ]);
  });

  it("tell nothing of what the runtime records for itself", async () => {
    const set = make();
    const run_id = await start(set, async (_input, { session }) => {
      await session.setState({ n: (await session.history()).length });
      return JSON.stringify(await session.getState());
    });
    expect(await details(set, run_id)).toEqual([]);
  });

  it("leave the events of the protocol as they are, and follow each of them", async () => {
    const set = make();
    const run_id = await start(set, async function* (_input, { step, ask }) {
      yield "a";
      yield { parts: [{ content: "b" }, { content: "c" }] };
      await step("one", (s) => s.emit("d"));
      await ask("?");
      await step("two", () => 1);
      yield "e";
    });
    await set.runtime.resume({ run_id, await_resume: { ok: true } });
    const all = await read(set, run_id);
    const plain: StreamedEvent[] = [];
    for await (const event of set.runtime.events(run_id)) plain.push(event);
    expect(all.filter((event) => !isDetail(event))).toEqual(plain);
    expect(all.filter(isDetail)).toHaveLength(6);
    // A reader that reconnects after an event gets all that follows it.
    for (const { id } of [{ id: 0 }, ...plain]) {
      const index = all.findIndex((event) => "id" in event && event.id === id);
      expect(await read(set, run_id, id)).toEqual(all.slice(index + 1));
    }
    expect(await read(set, run_id, 1_000)).toEqual([]);
  });

  it("are told as they happen", async () => {
    const set = make();
    set.runtime.register("agent", durable, async (_input, { step, ask }) => {
      await step("one", () => 1);
      await ask("?");
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    const seen: string[] = [];
    const reading = (async () => {
      for await (const { type } of set.runtime.events(run_id, { detail: true, until: "end" })) seen.push(type);
    })();
    await set.clock.settle();
    expect(seen.at(-1)).toBe("run.awaiting");
    await set.runtime.resume({ run_id, await_resume: { ok: true } });
    await reading;
    const once: string[] = [];
    for await (const { type } of set.runtime.events(run_id, { detail: true })) once.push(type);
    expect(seen).toEqual(once);
    expect(seen.slice(-4)).toEqual(["run.awaiting", "question.settled", "run.in-progress", "run.completed"]);
  });
});

unlessReplayed(TOO_LONG)("a plain agent tells what its log has: no steps, and all that it waits for", async () => {
  const set = setUp();
  set.runtime.register("agent", async (_input, { step, ask, sleep, run }) => {
    await step("one", () => 1);
    await sleep(10);
    await run("child", "x");
    await ask("?");
  });
  set.runtime.register("child", () => "ok");
  const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
  await set.clock.advance(10);
  await set.clock.settle();
  expect((await read(set, run_id)).filter(isDetail).map(({ type }) => type)).toEqual([
    "sleep.started",
    "sleep.ended",
    "question.asked",
  ]);
});

it("with exposeErrors a step's error is shown with its message", async () => {
  const set = setUp({ exposeErrors: true });
  set.runtime.register("agent", durable, (_input, { step }) =>
    step("one", () => Promise.reject(new Error("Broken."))).catch(() => undefined),
  );
  const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "x" });
  expect((await read(set, run_id)).filter(isDetail)[1]).toMatchObject({ error: { message: "Broken." } });
});

it("runtime.events refuses an option detail that is neither true nor false", async () => {
  const { runtime } = setUp();
  const events = runtime.events("00000000-0000-4000-8000-000000000001", { detail: "yes" as never });
  expect(await refusal(events[Symbol.asyncIterator]())).toMatchObject({ code: "invalid_argument" });
});

it("the type of runtime.events follows from the option detail", () => {
  const { runtime } = setUp();
  expectTypeOf(runtime.events("x")).toEqualTypeOf<AsyncIterableIterator<StreamedEvent>>();
  expectTypeOf(runtime.events("x", { after: 1 })).toEqualTypeOf<AsyncIterableIterator<StreamedEvent>>();
  expectTypeOf(runtime.events("x", { detail: false })).toEqualTypeOf<AsyncIterableIterator<StreamedEvent>>();
  expectTypeOf(runtime.events("x", { detail: true })).toEqualTypeOf<AsyncIterableIterator<DetailedEvent>>();
  expectTypeOf<(DetailEvent & { type: "step.failed" })["error"]["code"]>().toEqualTypeOf<
    "server_error" | "invalid_input" | "not_found"
  >();
});
