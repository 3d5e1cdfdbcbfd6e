import type { AgentFunction, DetailedEvent, Run, StreamedEvent } from "cadenza";
import { CadenzaError } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { drain, eventsOf, questionOf, refusal, setUp, shownIn, textOf } from "../../harness/runtimes.ts";
import { hookedStore, lateStore } from "../../harness/store-proxy.ts";
import { AFTERWARDS, OUTSIDE, unlessReplayed } from "../../harness/unless-replayed.ts";

const shown = { show: true } as const;
const start = { agent_name: "parent", input: "" } as const;

/** A parent that shows one sub-run, and emits a text before and after it. */
function setUpPair(child: AgentFunction, options?: Parameters<typeof setUp>[0]): Setup {
  const made = setUp(options);
  made.runtime.register("child", child);
  made.runtime.register("parent", async function* (input, { run }) {
    yield "before";
    const { status } = await run("child", input, shown);
    yield `after ${status}`;
  });
  return made;
}

/** An agent that emits a bit of everything. */
const everything: AgentFunction = async function* () {
  yield "one ";
  yield "two";
  yield null;
  yield { parts: [{ content: "whole" }, { content: "message" }] };
  yield { step: 1 };
  yield { name: "file.txt", content: "an artifact" };
};

const ofEverything = ["child: one |two", "child: whole|message", "child: an artifact"];

/** The messages of a run, each with the name of the agent that its role names. */
function spoken({ output }: Pick<Run, "output">): string[] {
  return output.map((message) => `${message.role.replace("agent/", "")}: ${textOf(message)}`);
}

async function childOf({ runtime }: Setup, { run_id }: Run): Promise<string> {
  const [child] = (await runtime.details(run_id)).children;
  return child ?? expect.fail("there is no sub-run");
}

/** What an event says, without its number and its times. */
function contentOf(event: StreamedEvent): unknown {
  const { type } = event;
  if (type === "message.created" || type === "message.completed")
    return { type, role: event.message.role, parts: event.message.parts };
  return type === "message.part" ? { type, part: event.part } : { type, ...("generic" in event && event.generic) };
}

describe("a sub-run that is shown", () => {
  it.each([false, true])(
    "has all that it emits in the output and the events of its parent (late: %s)",
    async (late) => {
      const made = setUpPair(everything, late ? { store: lateStore() } : {});
      const run = await made.runtime.createRun(start);
      expect(spoken(run)).toEqual(["parent: before", ...ofEverything, "parent: after completed"]);
      const child = await childOf(made, run);
      const below = await eventsOf(made.runtime, child);
      const events = await eventsOf(made.runtime, run.run_id);
      const copies = events.filter(({ source }) => source !== undefined);
      expect(copies.map(contentOf)).toEqual(below.filter(({ type }) => !type.startsWith("run.")).map(contentOf));
      expect(new Set(copies.map(({ source }) => source?.run_id))).toEqual(new Set([child]));
      // The sub-run ends with the end of its last message and its own.
      expect(copies.at(-1)?.source?.event).toBe(below.length - 1);
      expect(events.map(({ id }) => id)).toEqual(events.map((_event, index) => index + 1));
    },
  );

  unlessReplayed(OUTSIDE)("is shown while it is at work", async () => {
    const more = deferred();
    const { runtime } = setUpPair(async function* () {
      yield "at once ";
      await more.promise;
      yield "later";
    });
    const seen: unknown[] = [];
    for await (const event of runtime.createRun({ ...start, mode: "stream" })) {
      if (event.type !== "message.part") continue;
      seen.push(event.part.content);
      if (event.part.content === "at once ") more.resolve();
    }
    expect(seen).toEqual(["before", "at once ", "later", "after completed"]);
  });

  it("is not shown without the option", async () => {
    const { runtime } = setUp();
    runtime.register("child", everything);
    runtime.register("parent", async (_input, { run }) => {
      await run("child", "");
      await run("child", "", { show: false });
      return "done";
    });
    expect(spoken(await runtime.createRun(start))).toEqual(["parent: done"]);
  });

  it("shows what it shows of its own sub-runs, each message with the role of its agent", async () => {
    const { runtime } = setUp();
    runtime.register("leaf", everything);
    runtime.register("child", async function* (_input, { run }) {
      yield "I ask the leaf.";
      await run("leaf", "", shown);
      yield "It is done.";
    });
    runtime.register("other", async (_input, { run }) => void (await run("leaf", "")));
    runtime.register("parent", async (_input, { run }) => {
      await run("child", "", shown);
      await run("other", "", shown);
    });
    const run = await runtime.createRun(start);
    const ofLeaf = ofEverything.map((text) => text.replace("child", "leaf"));
    expect(spoken(run)).toEqual(["child: I ask the leaf.", ...ofLeaf, "child: It is done."]);
  });

  it("joins no message of another run, and completes none", async () => {
    const { runtime, clock } = setUp();
    runtime.register("child", async function* (input, { sleep }) {
      const name = textOf(input[0] ?? { parts: [] });
      yield `${name}1 `;
      await sleep(10);
      yield `${name}2 `;
      yield `${name}3`;
      await sleep(10);
      yield { parts: [{ content: `${name}4` }] };
    });
    runtime.register("parent", async (_input, { run, emit, sleep }) => {
      const a = run("child", "a", shown);
      await sleep(2);
      await emit("mine ");
      const b = run("child", "b", shown);
      await sleep(6);
      await emit("again ");
      await a;
      await emit("and again");
      // The end of the other's message completes that one alone.
      await b;
      await emit("!");
    });
    const creating = runtime.createRun(start);
    await clock.advance(100);
    const run = await creating;
    expect(spoken(run)).toEqual([
      "child: a1 ",
      "parent: mine ",
      "child: b1 ",
      "parent: again ",
      "child: a2 |a3",
      "child: b2 |b3",
      "child: a4",
      "parent: and again",
      "child: b4",
      "parent: !",
    ]);
    const events = await eventsOf(runtime, run.run_id);
    const opened = events.filter(({ type }) => type === "message.created");
    expect(events.filter(({ type }) => type === "message.completed")).toHaveLength(opened.length);
  });

  it("asks after what it has emitted, and goes on in a message of its own", async () => {
    const made = setUpPair(async function* (_input, { ask }) {
      yield "Let me see. ";
      yield `So ${JSON.stringify(await ask("How many?"))}`;
    });
    const { runtime } = made;
    const asked = await runtime.createRun(start);
    expect(questionOf(asked).await_id).toBe("run:child#1/ask#1");
    expect(spoken(asked)).toEqual(["parent: before", "child: Let me see. "]);
    expect(asked.output.at(-1)?.completed_at).not.toBeNull();
    const run = await runtime.resume({ run_id: asked.run_id, await_resume: { n: 3 } });
    expect(spoken(run)).toEqual([...spoken(asked), 'child: So {"n":3}', "parent: after completed"]);
  });

  unlessReplayed(AFTERWARDS)("asks when all that it has emitted before is shown", async () => {
    const { runtime } = setUpPair(async function* (_input, { ask }) {
      yield "Let me see. ";
      await ask("How many?");
    });
    const types = (await drain(runtime.createRun({ ...start, mode: "stream" }))).map(({ type }) => type);
    expect(types.slice(-3)).toEqual(["message.part", "message.completed", "run.awaiting"]);
  });

  it("shows what it emitted before it failed", async () => {
    const { runtime } = setUpPair(async function* () {
      yield "so far";
      throw new Error("it broke");
    });
    const run = await runtime.createRun(start);
    expect(spoken(run)).toEqual(["parent: before", "child: so far", "parent: after failed"]);
  });

  it("leaves out what a step emitted before its last attempt, as its own output does", async () => {
    const made = setUpPair(async function* (_input, { step }) {
      yield "first ";
      const body = async (emit: (value: unknown) => Promise<void>, attempt: number) => {
        await emit(`attempt ${attempt} `);
        if (attempt < 3) throw new Error("not yet");
        await emit("done");
      };
      await step("model", ({ emit, attempt }) => body(emit, attempt), { retry: { attempts: 3 } });
      yield "last";
    });
    const run = await made.runtime.createRun(start);
    const below = await made.runtime.getRun(await childOf(made, run));
    expect(spoken(below)).toEqual(["child: first ", "child: attempt 3 |done", "child: last"]);
    expect(spoken(run)).toEqual(["parent: before", ...spoken(below), "parent: after completed"]);
    const events: DetailedEvent[] = [];
    for await (const event of made.runtime.events(run.run_id, { detail: true })) events.push(event);
    expect(events.filter(({ type }) => type === "output.torn")).toHaveLength(2);
    expect(shownIn(events)).toEqual(run.output.flatMap(({ parts }) => parts));
  });

  it("is part of the parent's session, and not of the wire's events", async () => {
    const { runtime } = setUpPair(everything);
    const run = await runtime.createRun(start);
    const { history } = await runtime.getSession(run.session_id);
    expect(spoken({ output: history }).slice(2, -1)).toEqual(ofEverything);
    const response = await createAcpHandler(runtime)(new Request(`http://localhost/runs/${run.run_id}/events`));
    const { events } = (await response.json()) as { events: readonly object[] };
    const inProcess = await eventsOf(runtime, run.run_id);
    const onTheWire = inProcess.map((event) => {
      const { id: _, source: _source, usage: _usage, ...shown } = { usage: null, ...event };
      return shown;
    });
    expect(events).toEqual(onTheWire);
  });

  it("emits faster than the store takes its copies, and loses none", async () => {
    const { runtime } = setUpPair(
      async function* () {
        for (let n = 0; n < 100; n++) yield `${n} `;
      },
      { store: lateStore(), limits: { maxBacklog: 8 } },
    );
    const { output } = await runtime.createRun(start);
    expect(output[1]?.parts.map(({ content }) => Number(content))).toEqual([...Array(100).keys()]);
  });

  it("is refused if the parent's log is full, when it has ended", async () => {
    const { runtime } = setUp({ limits: { maxLogEntries: 20 } });
    runtime.register("child", async function* () {
      for (let n = 0; n < 8; n++) yield `${n} `;
    });
    runtime.register("parent", async (_input, { run }) => {
      for (let n = 0; n < 3; n++) await run("child", "", shown);
    });
    const run = await runtime.createRun(start);
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "limit_reached" } } });
    expect(textOf(run.output.at(-1) ?? { parts: [] })).toMatch(/^0 \|1 /);
  });

  it("is read again when the store fails to read it", async () => {
    let failures = 0;
    const store = hookedStore((call, method) => {
      if (method !== "read" || failures === 0) return call();
      failures -= 1;
      throw new Error("the disk is busy");
    });
    const { runtime, clock, said } = setUpPair(everything, { store });
    failures = 2;
    const creating = runtime.createRun(start);
    await clock.advance(1_000);
    expect(spoken(await creating)).toEqual(["parent: before", ...ofEverything, "parent: after completed"]);
    expect(said.some(({ message }) => message.includes("could not be read to show it"))).toBe(true);
  });

  it("goes on to be shown while its parent is being cancelled", async () => {
    const { runtime, clock } = setUpPair(async function* (_input, { ask }) {
      try {
        yield "begun ";
        await ask("Well?");
      } finally {
        yield "cleaned up";
      }
    });
    const { run_id } = await runtime.createRun(start);
    await runtime.cancel(run_id);
    await clock.advance(1_000);
    const run = await runtime.getRun(run_id);
    expect(run.status).toBe("cancelled");
    expect(spoken(run).slice(0, 2)).toEqual(["parent: before", "child: begun "]);
  });

  it.each([{ show: "yes" }, { shown: true }, null])("is refused with the options %j", async (options) => {
    const { runtime } = setUp();
    let error: unknown;
    runtime.register("child", everything);
    runtime.register("parent", async (_input, { run }) => {
      error = await refusal(run("child", "", options as never));
    });
    await runtime.createRun(start);
    expect(CadenzaError.is(error) && error.code).toBe("invalid_argument");
  });
});
