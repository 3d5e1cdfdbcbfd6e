import type { EventOrigin, StreamedEvent } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred, never } from "../../harness/promises.ts";
import { drain, eventsOf, refusal, reply, runAgent, setUp, typesOf } from "../../harness/runtimes.ts";
import { lateStore } from "../../harness/store-proxy.ts";
import { TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

describe("a stream with a signal", () => {
  const asks = async (_input: unknown, { ask }: { ask: (question: string) => Promise<unknown> }) => {
    await ask("First?");
    await never();
  };

  it.each(["createRun", "resume"] as const)(
    "of %s ends with the reason of the signal, and the run goes on",
    async (call) => {
      const { runtime, clock } = setUp();
      runtime.register("waits", call === "createRun" ? () => never() : asks);
      const stopping = new AbortController();
      const { signal } = stopping;
      const create = { agent_name: "waits", input: "" };
      const asked = call === "createRun" ? undefined : await runtime.createRun(create);
      const stream =
        asked === undefined
          ? runtime.createRun({ ...create, mode: "stream" }, { signal })
          : runtime.resume({ run_id: asked.run_id, await_resume: reply("yes"), mode: "stream" }, { signal });
      await stream.next();
      if (call === "createRun") await stream.next();
      const waiting = stream.next();
      waiting.catch(() => {});
      await clock.settle();
      stopping.abort(new Error("enough"));
      await expect(waiting).rejects.toThrow("enough");
      expect(await stream.next()).toEqual({ done: true, value: undefined });
      const [run] = await runtime.listRuns();
      expect(run?.status).toBe("in-progress");
    },
  );

  it("ends between two events, too", async () => {
    const { runtime } = setUp();
    runtime.register("says", () => ["a", "b"]);
    const stopping = new AbortController();
    const stream = runtime.createRun({ agent_name: "says", input: "", mode: "stream" }, { signal: stopping.signal });
    expect((await stream.next()).value?.type).toBe("run.created");
    stopping.abort(new Error("enough"));
    await expect(stream.next()).rejects.toThrow("enough");
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it("can be left while it waits", async () => {
    const { runtime, clock } = setUp();
    runtime.register("waits", () => never());
    const { signal } = new AbortController();
    const stream = runtime.createRun({ agent_name: "waits", input: "", mode: "stream" }, { signal });
    for (let i = 0; i < 2; i++) await stream.next();
    const waiting = stream.next();
    await clock.settle();
    await stream.return?.();
    expect(await waiting).toEqual({ done: true, value: undefined });
  });
});

describe("events", () => {
  /** A run that has emitted two parts, and waits at the gate before the next. */
  async function halfway() {
    const set = setUp();
    const gate = deferred();
    set.runtime.register("agent", async function* () {
      yield "a";
      yield "b";
      await gate.promise;
      yield "c";
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await set.clock.settle();
    return { ...set, gate, run_id };
  }

  it("are those so far, then the new ones", async () => {
    const { runtime, gate, run_id } = await halfway();
    const reading = drain(runtime.events(run_id));
    gate.resolve();
    const events = await reading;
    expect(typesOf(events)).toEqual([
      "run.created",
      "run.in-progress",
      "message.created",
      "message.part",
      "message.part",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
    expect(await eventsOf(runtime, run_id)).toEqual(events);
  });

  it.each([0, 1, 3, 4, 7, 8])(
    "after the %ith are the remaining ones, also from the middle of an entry",
    async (after) => {
      const { runtime, gate, run_id, clock } = await halfway();
      gate.resolve();
      await clock.settle();
      const all = await eventsOf(runtime, run_id);
      expect(await drain(runtime.events(run_id, { after }))).toEqual(all.slice(after));
    },
  );

  it("after the last are none, of a run that has ended", async () => {
    const { runtime } = setUp();
    const { run_id } = await runAgent(runtime, () => "ok");
    expect(await drain(runtime.events(run_id, { after: 6 }))).toEqual([]);
    expect(await drain(runtime.events(run_id, { after: 600 }))).toEqual([]);
  });

  it("until rest end when the run rests, until end when it has ended", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async function* (_input, { ask }) {
      yield "a";
      await ask("?");
      yield "b";
    });
    const toEnd = drain(runtime.events(run.run_id, { until: "end" }));
    expect(typesOf(await drain(runtime.events(run.run_id, { until: "rest" }))).at(-1)).toBe("run.awaiting");
    expect(typesOf(await drain(runtime.events(run.run_id))).at(-1)).toBe("run.awaiting");
    await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    expect(typesOf(await toEnd).slice(-5)).toEqual([
      "run.in-progress",
      "message.created",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
  });

  it("a reader that leaves the loop is detached, and the run goes on", async () => {
    const { runtime, gate, run_id, clock } = await halfway();
    const seen: string[] = [];
    for await (const { type } of runtime.events(run_id)) {
      seen.push(type);
      if (type === "message.part") break;
    }
    gate.resolve();
    await clock.settle();
    expect(seen).toHaveLength(4);
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "completed" });
  });

  it("a reader that leaves while it waits is detached", async () => {
    const { runtime, run_id } = await halfway();
    const stream = runtime.events(run_id, { after: 5 });
    const waiting = stream.next();
    expect(await stream.return?.()).toEqual({ done: true, value: undefined });
    expect(await waiting).toEqual({ done: true, value: undefined });
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it("a reader that leaves before it reads is detached", async () => {
    const { runtime, run_id } = await halfway();
    const stream = runtime.events(run_id);
    await stream.return?.();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it("a reader that asks ahead is answered in order", async () => {
    const { runtime, gate, run_id } = await halfway();
    const stream = runtime.events(run_id);
    const asked = Array.from({ length: 10 }, () => stream.next());
    gate.resolve();
    const answers = await Promise.all(asked);
    expect(answers.map(({ value }) => (value as StreamedEvent | undefined)?.id)).toEqual([
      1,
      2,
      3,
      4,
      5,
      6,
      7,
      8,
      undefined,
      undefined,
    ]);
  });

  it("readers share nothing: each gets all events", async () => {
    const { runtime, gate, run_id } = await halfway();
    const readers = Array.from({ length: 5 }, () => drain(runtime.events(run_id)));
    gate.resolve();
    const [first, ...others] = await Promise.all(readers);
    expect(first).toHaveLength(8);
    for (const other of others) expect(other).toEqual(first);
  });

  it("a slow reader gets all events of a run that has ended meanwhile", async () => {
    const { runtime, gate, run_id, clock } = await halfway();
    const stream = runtime.events(run_id);
    const seen: StreamedEvent[] = [];
    gate.resolve();
    for (let next = await stream.next(); next.done !== true; next = await stream.next()) {
      seen.push(next.value);
      await clock.advance(50);
    }
    expect(typesOf(seen).at(-1)).toBe("run.completed");
    expect(seen).toEqual(await eventsOf(runtime, run_id));
  });

  unlessReplayed(TOO_LONG)("a reader of a run that has been removed is told so", async () => {
    const { runtime, gate, run_id, clock } = await halfway();
    const stream = runtime.events(run_id);
    await stream.next();
    gate.resolve();
    await clock.settle();
    await clock.advance(10 * 3_600_000);
    expect((await refusal(runtime.getRun(run_id))).code).toBe("run_not_found");

    const rest = await drain(stream);
    expect(rest.at(-1)).toMatchObject({
      type: "error",
      error: { code: "server_error", data: { reason: "events_lost" } },
    });
    expect(rest.filter(({ type }) => type === "error")).toHaveLength(1);
  });

  it("of a run that does not exist reject the first next, and end", async () => {
    const { runtime } = setUp();
    const stream = runtime.events("00000000-0000-4000-8000-000000000000");
    expect((await refusal(stream)).code).toBe("run_not_found");
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it("of a run that does not exist reject once, also a reader that asks ahead", async () => {
    const { runtime } = setUp();
    const stream = runtime.events("00000000-0000-4000-8000-000000000000");
    const [first, second] = await Promise.allSettled([stream.next(), stream.next()]);
    expect(first).toMatchObject({ status: "rejected", reason: { code: "run_not_found" } });
    expect(second).toEqual({ status: "fulfilled", value: { done: true, value: undefined } });
  });

  it("contain nothing that the store has not committed", async () => {
    const { runtime, clock, store } = setUp({ store: lateStore() });
    runtime.register("agent", async function* () {
      for (let i = 0; i < 20; i++) yield `${i}`;
    });
    const stream = runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" });
    let run_id = "";
    for await (const event of stream) {
      if (event.type === "run.created") run_id = event.run.run_id;
      const entries = (await store.read({ tenant: "", run_id }, 0, 1_000)) ?? [];
      const parts = entries.filter((entry) => entry.type === "emitted").length;
      if (event.type === "message.part") expect(parts).toBeGreaterThan(Number(event.part.content));
    }
    await clock.settle();
  });

  it("of a stream end with the first rest, even if the run has gone on since", async () => {
    const { runtime } = setUp();
    runtime.register("agent", (_input, { ask }) => ask("?").then(() => "ok"));
    const stream = runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" });
    const first = await stream.next();
    const { run_id } = (first.value as StreamedEvent & { type: "run.created" }).run;
    await runtime.resume({ run_id, await_resume: reply("ok") });
    expect(typesOf(await drain(stream))).toEqual(["run.in-progress", "run.awaiting"]);
  });
});

describe("listeners", () => {
  it("get every event of their type, of all runs, after its commit, with its origin", async () => {
    const { runtime, clock } = setUp();
    const heard: [string, EventOrigin][] = [];
    for (const type of ["run.created", "message.part", "run.completed"] as const)
      expect(runtime.on(type, (event, origin) => heard.push([event.type, origin]))).toBe(runtime);
    runtime.register("agent", () => ["a", "b"]);
    const run = await runtime.createRun({ agent_name: "agent", input: "x" });
    await runtime.scope({ tenant: "one" }).createRun({ agent_name: "agent", input: "x" });
    await clock.settle();

    const types = ["run.created", "message.part", "message.part", "run.completed"];
    const ofTenant = (tenant: string) => heard.filter(([, origin]) => origin.tenant === tenant).map(([type]) => type);
    expect([ofTenant(""), ofTenant("one")]).toEqual([types, types]);
    expect(heard[0]?.[1]).toStrictEqual({
      run_id: run.run_id,
      agent_name: "agent",
      session_id: run.session_id,
      tenant: "",
    });
  });

  it("are given the event of their type", async () => {
    const { runtime, clock } = setUp();
    const contents: (string | undefined)[] = [];
    runtime.on("message.part", ({ part }) => contents.push(part.content));
    runtime.on("run.awaiting", ({ run }) => contents.push(run.await_request?.await_id));
    await runAgent(runtime, async (_input, { ask, emit }) => {
      await emit("a");
      await ask("?");
    });
    await clock.settle();
    expect(contents).toEqual(["a", "ask#1"]);
  });

  it("that throw, or whose promises reject, affect neither the run nor each other", async () => {
    const { runtime, clock, said } = setUp();
    let heard = 0;
    runtime.on("run.created", () => {
      throw new Error("a listener threw");
    });
    runtime.on("run.created", async () => {
      throw new Error("a listener rejected");
    });
    runtime.on("run.created", () => {
      heard += 1;
    });
    expect(await runAgent(runtime, () => "ok")).toMatchObject({ status: "completed" });
    await clock.settle();
    expect(heard).toBe(1);
    const errors = said.filter(({ level }) => level === "error").map(({ fields }) => String(fields.error));
    expect(errors).toEqual(["Error: a listener threw", "Error: a listener rejected"]);
  });

  it("get one event with once, and none after off", async () => {
    const { runtime, clock } = setUp();
    const heard: string[] = [];
    const listener = (): void => void heard.push("on");
    runtime.once("run.completed", () => void heard.push("once"));
    runtime.on("run.completed", listener);
    await runAgent(runtime, () => "ok");
    await clock.settle();
    runtime.off("run.completed", listener);
    await runAgent(runtime, () => "ok");
    await clock.settle();
    expect(heard).toEqual(["once", "on"]);
  });

  it("of once can be removed with off", async () => {
    const { runtime, clock } = setUp();
    const heard: string[] = [];
    const listener = (): void => void heard.push("once");
    runtime.once("run.completed", listener).off("run.completed", listener);
    await runAgent(runtime, () => "ok");
    await clock.settle();
    expect(heard).toEqual([]);
  });

  it("that are added late get the later events, also of runs in progress", async () => {
    const { runtime, clock } = setUp();
    const gate = deferred();
    runtime.register("agent", async function* () {
      yield "early";
      await gate.promise;
      yield "late";
    });
    await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    const heard: unknown[] = [];
    runtime.on("message.part", ({ part }) => heard.push(part.content));
    gate.resolve();
    await clock.settle();
    expect(heard).toEqual(["late"]);
  });

  it("get each event once, also if they were removed and added again", async () => {
    const { runtime, clock } = setUp();
    const gate = deferred();
    runtime.register("agent", async function* () {
      yield "a";
      await gate.promise;
      yield "b";
    });
    const heard: string[] = [];
    const listener = (): void => void heard.push("part");
    runtime.once("message.part", listener);
    await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    runtime.on("message.part", listener).off("message.part", listener);
    runtime.on("message.part", listener);
    gate.resolve();
    await clock.settle();
    expect(heard).toEqual(["part", "part"]);
  });

  it("of run.failed get the error that the agent threw, as does the logger, and the client does not", async () => {
    const { runtime, clock, said } = setUp();
    const origins: EventOrigin[] = [];
    runtime.on("run.failed", (_event, origin) => origins.push(origin));
    const cause = new Error("the password is wrong");
    const run = await runAgent(runtime, async () => {
      throw cause;
    });
    await clock.settle();
    expect(run.error).toStrictEqual({
      code: "server_error",
      message: "The agent failed.",
      data: { reason: "agent_failed" },
    });
    expect(JSON.stringify(await eventsOf(runtime, run.run_id))).not.toContain("password");
    expect(origins[0]?.cause).toBe(cause);
    expect(said.some(({ fields }) => fields.error === cause)).toBe(true);
  });

  it("may call the runtime", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", (_input, { ask }) => ask("?").then(() => "ok"));
    runtime.on("run.awaiting", ({ run }) => runtime.resume({ run_id: run.run_id, await_resume: reply("at once") }));
    await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    expect(await runtime.listRuns()).toMatchObject([{ status: "completed" }]);
  });

  it("that have been removed cost a run nothing", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", () => never());
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    const before = clock.timers;
    const listener = (): void => {};
    runtime.on("run.completed", listener).off("run.completed", listener);
    await runtime.cancel(run_id);
    await clock.advance(500);
    expect(clock.timers).toBeLessThanOrEqual(before + 1);
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
  });
});

describe("exposeErrors", () => {
  it.each<[thrown: unknown, shown: string]>([
    [new Error("the disk is full"), "the disk is full"],
    ["a text", "a text"],
    [undefined, "undefined"],
    [null, "null"],
    [5, "5"],
    [Object.freeze({ toString: () => "frozen" }), "frozen"],
    [Object.create(null), "an error without a message"],
  ])("shows the text of the thrown value: %o", async (thrown, shown) => {
    const exposed = await runAgent(setUp({ exposeErrors: true }).runtime, async () => {
      throw thrown;
    });
    expect(exposed).toMatchObject({
      status: "failed",
      error: { code: "server_error", message: shown, data: { reason: "agent_failed" } },
    });
    const hidden = await runAgent(setUp().runtime, async () => {
      throw thrown;
    });
    expect(hidden.error?.message).toBe("The agent failed.");
  });
});
