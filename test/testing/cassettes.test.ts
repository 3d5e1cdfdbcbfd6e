import type { AgentFunction, Run } from "cadenza";
import { AgentError, AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import type { StoredRun } from "cadenza/store";
import type { Cassette } from "cadenza/testing";
import { CassetteMismatch, createFakeClock, drive, record, replay } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { deferred } from "../harness/promises.ts";
import { hookedStore, lastingStore } from "../harness/store-proxy.ts";

const trip: AgentFunction = async function* (_input, { ask, random, run, session, step, uuid }) {
  const plan = await step("plan", async ({ emit }) => {
    await emit("thinking… ");
    return { via: "Brussels", seat: 12 };
  });
  yield `via ${plan.via}`;
  const price = await step("price", () => 49).catch(() => 0);
  const { ok } = await ask(`Go for ${price}?`, { schema: z.object({ ok: z.boolean() }), timeoutMs: 1_000 });
  const hotel = await run("hotel", "Paris");
  yield { ok, hotel: hotel.output.length, uuid: uuid(), random: random(), history: (await session.history()).length };
};
const hotel = defineAgent("hotel", async function* (_input, { ask }) {
  await ask("Breakfast?");
  yield "Room booked.";
});

async function recordedTrip(): Promise<Cassette> {
  const t = drive(trip, "Paris", { agents: { hotel } });
  await t.finish();
  await t.answer({ ok: true });
  await t.finish();
  await t.answer("Yes, please");
  expect((await t.finish()).status).toBe("completed");
  return JSON.parse(JSON.stringify(await record(t)));
}

describe("a cassette of a drive", () => {
  it("is plain JSON", async () => {
    const t = drive(trip, "Paris");
    await t.finish();
    const cassette = await record(t);
    expect(JSON.parse(JSON.stringify(cassette))).toEqual(cassette);
  });

  it("replays its agent with the metadata and the labels of its run", async () => {
    const agent: AgentFunction = (_input, { metadata, labels }) => JSON.stringify([metadata, labels]);
    const t = drive(agent, "x", { metadata: 17, labels: { order: "O-17" } });
    await t.finish();
    const run = await replay(agent, await record(t));
    expect(run.output).toMatchObject([{ parts: [{ content: '[17,{"order":"O-17"}]' }] }]);
  });

  it("replays its agent, without the bodies of its steps and its sub-agents", async () => {
    const steps: string[] = [];
    const counted: AgentFunction = (input, context) =>
      trip(input, {
        ...spread(context),
        step: ((name: string, fn: never, options: never) => {
          steps.push(name);
          return context.step(name, fn, options);
        }) as typeof context.step,
      });
    const run = await replay(counted, await recordedTrip());
    expect(run).toMatchObject({
      status: "completed",
      output: [{ parts: [{ content: "thinking… " }] }, { parts: [{ content: "via Brussels" }] }],
    });
    expect(steps).toEqual(["plan", "price"]);
  });

  it("reports the first mismatch", async () => {
    const changed: AgentFunction = async function* (_input, { step }) {
      const plan = await step("plan", () => ({ via: "" }));
      yield `over ${plan.via}`;
    };
    const error = await replay(changed, await recordedTrip()).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CassetteMismatch);
    expect((error as CassetteMismatch).difference).toMatchObject({ entry: 4, expected: { content: "via Brussels" } });
    expect((error as Error).message).toMatchInlineSnapshot(`
      ""agent" does not match its cassette any more. Entry 4 of 10 is the first mismatch: - cassette, + agent

            {
              "emits": "part",
              "content_type": "text/plain",
          -   "content": "via Brussels",
          +   "content": "over Brussels",
              "content_encoding": "plain"
            }

      The entries before it match, up to: part "thinking… "."
    `);
  });

  it("names a step that it does not hold, and one that is not used any more", async () => {
    const other: AgentFunction = async function* (_input, { step }) {
      yield await step("plan", () => "");
      yield await step("sell", () => "");
    };
    await expect(replay(other, await recordedTrip())).rejects.toThrow(/CassetteMismatch|does not match its cassette/);
    const shorter = drive(async (_input, { step }) => void (await step("a", () => 1)), "x");
    await shorter.finish();
    await expect(replay(async () => undefined, await record(shorter))).rejects.toThrow("does not use a#1 any more");
  });

  it("holds errors of steps, cancels and deadlines", async () => {
    const agent: AgentFunction = async function* (_input, { ask, step }) {
      try {
        yield await step("look", () => {
          throw new AgentError("not_found", "No such thing.", { at: 1 });
        }).catch((error: AgentError) => ({ code: error.code, data: error.data ?? null }));
        yield await ask("Sure?", { timeoutMs: 1_000, default: { text: "no" } });
        await ask("Really?", { timeoutMs: 1_000 });
      } finally {
        yield "bye";
      }
    };
    const t = drive(agent, "x");
    await t.finish();
    await t.clock.advance("1s");
    await t.finish();
    const waiting = await record(t);
    await t.cancel();
    const cancelled = await record(t);
    expect((await replay(agent, cancelled)).status).toBe("cancelled");
    expect((await replay(agent, waiting)).status).toBe("awaiting");

    const late = drive(agent, "x");
    await late.finish();
    await late.clock.advance("1s");
    await late.finish();
    await late.clock.advance("1s");
    expect((await late.finish()).status).toBe("failed");
    expect((await replay(agent, await record(late))).status).toBe("failed");
  });
});

describe("a mismatch is reported", () => {
  const emits = (...values: unknown[]): AgentFunction =>
    async function* () {
      yield* values;
    };

  it.each<[what: string, before: AgentFunction, after: AgentFunction, said: RegExp]>([
    [
      "of an object",
      emits({ a: 1 }),
      emits({ a: 2 }),
      /Entry 3 of 4.*- +"a": 1\n +\+ +"a": 2.*It is the first entry that is compared/s,
    ],
    ["of a message", emits({ parts: [{ content: "a" }] }), emits("a"), /- +"emits": "message".*\+ +"emits": "part"/s],
    ["of the end of a message", emits("a", null, "b"), emits("a", "b"), /"emits": "end of message".*up to: part "a"/s],
    ["of an additional part", emits("a"), emits("a", "b"), /- +"ends": "completed".*\+ +"content": "b"/s],
    [
      "of an artifact",
      emits({ name: "x.png", content_url: "http://x/y" }),
      emits("b"),
      /- +"content_url": "http:\/\/x\/y"/s,
    ],
    [
      "of an error",
      emits(new AgentError("not_found", "No.")),
      emits(new Error("Oh no.")),
      /Entry 3.*"code": "not_found".*\+ +"reason": "invalid_yield"/s,
    ],
    [
      "if the agent does nothing more",
      emits("a", "b"),
      async function* () {
        yield "a";
        await new Promise(() => {});
      },
      /Entry 4 of 5.*\+ \(nothing\).*no activity/s,
    ],
    ["after an object", emits({ a: 1 }, "b"), emits({ a: 1 }, "c"), /match, up to: emitted/s],
  ])("%s", async (_what, before, after, said) => {
    const t = drive(before, "x");
    await t.finish();
    const cassette = await record(t);
    await replay(before, cassette);
    await expect(replay(after, cassette, { patienceMs: 10 })).rejects.toThrow(said);
  });

  it("if an answer of the cassette is refused", async () => {
    const asking =
      (schema: z.ZodType): AgentFunction =>
      async (_input, { ask }) => {
        await ask("How many?", { schema });
      };
    const t = drive(asking(z.unknown()), "x");
    await t.finish();
    await t.answer("many");
    await t.finish();
    const strict = asking(z.unknown().refine((value) => typeof value === "number", "no number"));
    await expect(replay(strict, await record(t))).rejects.toThrow(
      /Entry 4 of 5.*- +"answered": "ask#1".*The entries before it match, up to: question ask#1 "How many\?".*no number/s,
    );
  });

  it("and a question that was withdrawn and a run that timed out are replayed", async () => {
    const hasty: AgentFunction = async function* (_input, { ask }) {
      void ask("Really?");
      yield "Whatever.";
    };
    const t = drive(hasty, "x");
    await t.until("end");
    expect((await replay(hasty, await record(t))).status).toBe("completed");
    const slow: AgentFunction = () => new Promise(() => {});
    const late = drive(slow, "x", { timeoutMs: 1_000, patienceMs: 10 });
    await late.next({ within: "1s" }).catch(() => undefined);
    await late.clock.advance("2s");
    expect(late.run.status).toBe("failed");
    expect((await replay(slow, await record(late), { patienceMs: 10 })).status).toBe("failed");
  });
});

describe("a cassette of a run in production", () => {
  it("replays an agent that exceeds the budget of its run, at the same place", async () => {
    const agent: AgentFunction = async function* (_input, { step, usage }) {
      for (let n = 1; ; n++) {
        await step("call", () => usage.add({ totalTokens: 10 }));
        yield `${n} `;
      }
    };
    const store = lastingStore();
    const runtime = new AgentRuntime({ store }).register("works", { durable: true }, agent);
    const run = await runtime.createRun({ agent_name: "works", input: "" }, { budget: { totalTokens: 35 } });
    expect([run.status, run.error]).toMatchObject(["failed", { data: { reason: "budget_exceeded" } }]);
    const cassette = await record(store, run);
    const again = await replay(agent, cassette);
    expect([again.status, again.error]).toEqual([run.status, run.error]);
    expect(again.output[0]?.parts.map(({ content }) => content)).toEqual(["1 ", "2 ", "3 "]);
    const frugal: AgentFunction = async function* (_input, { step }) {
      for (let n = 1; n < 3; n++) yield `${await step("call", () => n)} `;
    };
    await expect(replay(frugal, cassette)).rejects.toThrow(CassetteMismatch);
    await runtime.close();
  });

  it.each([true, false])("replays, durable: %s", async (durable) => {
    const store = durable ? lastingStore() : new MemoryStore();
    const runtime = new AgentRuntime({ store }).register(hotel).register("trip", { durable, version: "1" }, trip);
    const { run_id } = await runtime.createRun({ agent_name: "trip", input: "Paris" });
    await runtime.resume({ run_id, await_resume: { ok: true } });
    const run = await runtime.resume({ run_id, await_resume: { type: "message", message: { parts: [] } } });
    expect(run.status).toBe("completed");
    const cassette = await record(store, run);

    const agent = defineAgent("trip", { durable }, trip);
    const again = await replay(agent, cassette);
    expect(again.output.map(({ parts }) => parts)).toEqual(run.output.map(({ parts }) => parts));
    await runtime.close();
  });

  it("reads no other runs than its sub-runs, however many are newer", async () => {
    const listed: string[] = [];
    const store = hookedStore((call, method) => {
      const answer = call();
      if (method === "list") listed.push(...(answer as readonly StoredRun[]).map(({ created }) => created.agent_name));
      return answer;
    });
    const runtime = new AgentRuntime({ store }).register("hotel", () => "Room booked.");
    runtime.register("trip", async (_input, { run }) => void (await Promise.all([run("hotel", ""), run("hotel", "")])));
    const run = await runtime.createRun({ agent_name: "trip", input: "" });
    for (let n = 0; n < 300; n++) await runtime.createRun({ agent_name: "hotel", input: "" });
    listed.length = 0;
    const { results } = await record(store, run);
    expect(results.map(({ key }) => key).sort()).toEqual(["run:hotel#1", "run:hotel#2"]);
    expect(listed).toEqual(["hotel", "hotel"]);
    await runtime.close();
  });

  it("replays an agent whose run was active for less than its time-out, and waited for longer", async () => {
    const clock = createFakeClock();
    const store = new MemoryStore({ clock });
    const asleep = defineAgent("asleep", (_input, { sleep }) => sleep("1h"));
    const agent = defineAgent("patient", { timeoutMs: 1_000 }, async function* (_input, { receive, run, sleep, step }) {
      yield (await run("asleep", "")).status;
      yield await step("look", () => " and awake");
      await sleep("5s");
      yield await receive("more", { timeoutMs: 3_000, default: "." });
    });
    const runtime = new AgentRuntime({ store, clock }).register(asleep).register(agent);
    for (const timeoutMs of [undefined, 900, Number.POSITIVE_INFINITY]) {
      const running = runtime.createRun({ agent_name: "patient", input: "" }, { timeoutMs });
      await clock.advance("2h");
      const run = await running;
      expect(run.status).toBe("completed");
      const again = await replay(agent, JSON.parse(JSON.stringify(await record(store, run))));
      expect(again.output[0]?.parts.map(({ content }) => content)).toEqual(["completed", " and awake", "."]);
    }
    await runtime.close();
  });

  it("refuses an unknown run and an invalid cassette", async () => {
    await expect(record(new MemoryStore(), "none")).rejects.toThrow("There is no run none in this store.");
    await expect(replay(trip, JSON.parse("{}"))).rejects.toThrow("cassette: expected the result of record");
  });
});

describe("a cassette of a run that waits", () => {
  const order: AgentFunction = async function* (_input, { ask, receive, run, sleep, step }) {
    yield "Waiting. ";
    const { cents } = await receive("payment", { schema: z.object({ cents: z.int() }), timeoutMs: 600_000 });
    const parcel = await step("pack", () => "a parcel");
    await sleep("24h", { name: "stock" });
    const wish = await ask("A wish?").catch((error) => error.code);
    const label = await run("hotel", "Paris");
    const note = await receive("note", { timeoutMs: 60_000, default: "no note" });
    const late = await receive("late", { timeoutMs: 0 }).catch((error) => error.code);
    yield `${cents}, ${parcel}, ${wish}, ${label.status}, ${note}, ${late}`;
  };
  const said = "Waiting. 900, a parcel, answer_declined, completed, no note, receive_timeout";
  const textOf = ({ output }: Run): string =>
    output.flatMap(({ parts }) => parts.map(({ content }) => content)).join("");

  it.each([true, false])("replays without waiting, durable: %s", async (durable) => {
    const clock = createFakeClock();
    const store = durable ? lastingStore(clock) : new MemoryStore({ clock });
    const runtime = new AgentRuntime({ store, clock }).register(hotel).register("order", { durable }, order);
    const { run_id } = await runtime.createRun({ agent_name: "order", input: "x", mode: "async" });
    await clock.advance("5m");
    await runtime.send({ to: run_id, name: "payment", data: { cents: 900 } });
    await clock.advance("24h");
    await runtime.resume({ run_id, decline: { reason: "None." }, mode: "async" });
    await clock.advance("5m");
    await runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" });
    await clock.advance("2m");
    const run = await runtime.getRun(run_id);
    expect(textOf(run)).toBe(said);

    const cassette: Cassette = JSON.parse(JSON.stringify(await record(store, run)));
    const options = durable ? {} : { steps: { pack: "a parcel" } };
    expect(textOf(await replay(order, cassette, options))).toBe(said);
    const hasty: AgentFunction = async function* (input, context) {
      yield* order(input, { ...spread(context), sleep: async () => undefined }) as AsyncGenerator;
    };
    await expect(replay(hasty, cassette, { ...options, patienceMs: 10 })).rejects.toThrow(
      '-   "wakes": "sleep:stock#1"',
    );
    const deaf: AgentFunction = async function* () {
      yield "Waiting. ";
    };
    await expect(replay(deaf, cassette, { patienceMs: 10 })).rejects.toThrow('-   "receives": "payment"');
    await runtime.close();
  });

  it("of a drive replays, too", async () => {
    const t = drive(order, "x", { agents: { hotel: "Room booked." } });
    await t.send("payment", { cents: 900 });
    await t.until("await", { within: "25h" });
    await t.decline("None.");
    await t.until("end", { within: "1m" });
    expect(textOf(t.run)).toBe(said);
    expect(textOf(await replay(order, await record(t)))).toBe(said);
  });

  it("gets its messages, answers and results in the order of its log", async () => {
    const [first, second] = [deferred<string>(), deferred<string>()];
    const racing: AgentFunction = async function* (_input, { receive, sleep, step }) {
      const work = step("work", () => first.promise);
      yield `${await Promise.race([work, receive("stop"), sleep(10_000).then(() => "slept")])}, `;
      const more = step("more", () => second.promise);
      yield `${await Promise.race([more, receive("go"), sleep(60_000).then(() => "slept")])}, `;
      yield `${await receive("go", { timeoutMs: 0, default: "none" })}`;
      await receive("end");
    };
    const clock = createFakeClock();
    const store = lastingStore(clock);
    const runtime = new AgentRuntime({ store, clock }).register("racing", { durable: true }, racing);
    const { run_id } = await runtime.createRun({ agent_name: "racing", input: "x", mode: "async" });
    await clock.advance(10_000);
    first.resolve("worked");
    await clock.advance(1_000);
    await runtime.send({ to: run_id, name: "stop", data: "stopped" });
    second.resolve("worked");
    await clock.advance(1_000);
    await runtime.send({ to: run_id, name: "go", data: "went" });
    await clock.advance(60_000);
    await runtime.send({ to: run_id, name: "end", data: null });
    await clock.advance(0);
    const run = await runtime.getRun(run_id);
    expect(textOf(run)).toBe("slept, worked, none");
    expect(textOf(await replay(racing, await record(store, run)))).toBe("slept, worked, none");
    await runtime.close();
  });

  it("steers its agent at the same places", async () => {
    const steered: AgentFunction = async (_input, { receive, step }) => {
      const said: unknown[] = [];
      for (let turn = 1; turn <= 4; turn += 1) {
        await step(`turn ${turn}`, () => turn);
        said.push(await receive("steer", { timeoutMs: 0, default: null }));
      }
      return JSON.stringify(said);
    };
    let turn = 0;
    const t = drive(steered, "x", {
      steps: {
        "turn *": async () => {
          turn += 1;
          if (turn === 2 || turn === 3) await t.send("steer", `left ${turn}`);
        },
      },
    });
    await t.until("end");
    expect(t.text()).toBe('[null,"left 2","left 3",null]');
    expect(textOf(await replay(steered, await record(t)))).toBe('[null,"left 2","left 3",null]');
  });

  it("tells its agent who has answered, and when", async () => {
    const curious: AgentFunction = async (_input, { ask }) => {
      const { by, at } = await ask("Who?", { details: true });
      return JSON.stringify({ by, at });
    };
    const clock = createFakeClock();
    const store = new MemoryStore({ clock });
    const runtime = new AgentRuntime({ store, clock }).register("curious", curious);
    const { run_id } = await runtime.createRun({ agent_name: "curious", input: "x" });
    await clock.advance("3m");
    const run = await runtime.scope({ principal: "Ada" }).resume({ run_id, await_resume: {} });
    expect(textOf(await replay(curious, await record(store, run)))).toBe(textOf(run));
    expect(textOf(run)).toContain("Ada");
  });

  it("may hold a step that never ended, the place of a fork, and answers that another process has offered", async () => {
    const unsettled: AgentFunction = async (_input, { ask, step }) => {
      void step("endless", () => new Promise(() => {}));
      await ask("Done?");
    };
    const t = drive(unsettled, "x", { patienceMs: 10 });
    await t.until("await");
    const cassette = await record(t);
    expect((await replay(unsettled, cassette)).status).toBe("awaiting");
    const offered = { type: "offered", at: 0, offer_id: "o-1", await_id: "ask#1", idempotency_key: null } as const;
    const refused = { type: "refused", at: 0, offer_id: "o-1", code: "not_awaiting" } as const;
    const entries = [...cassette.entries, { type: "forked", at: 0 } as const, offered, refused];
    expect((await replay(unsettled, { ...cassette, entries })).status).toBe("awaiting");
  });
});

/** The members of a context as own properties. */
function spread<T extends object>(context: T): T {
  const names = Object.getOwnPropertyNames(Object.getPrototypeOf(context)).filter((name) => name !== "constructor");
  return Object.fromEntries(names.map((name) => [name, (context as Record<string, unknown>)[name]])) as T;
}
