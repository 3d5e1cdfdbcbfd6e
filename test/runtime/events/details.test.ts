import type { AgentRuntime, StreamedEvent } from "cadenza";
import { awaitMessage } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { Random } from "../../harness/random.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { drain, refusal, reply, setUp, setUpOnFile, textOf } from "../../harness/runtimes.ts";
import { lateStore } from "../../harness/store-proxy.ts";
import { OUTSIDE, unlessReplayed } from "../../harness/unless-replayed.ts";

/* `details` and `transcript`: what is known of a run beside its record, and what was said in it. */

const UNKNOWN = "00000000-0000-4000-8000-0000000000ff";
const tokens = { input_tokens: 5, output_tokens: 2 };
const places = [
  ["in memory", () => setUp()],
  ["on SQLite", setUpOnFile],
] as const;

describe.each(places)("the details of a run %s", (_where, make) => {
  it("have its status, its times and its last event, which move on", async () => {
    const { runtime, clock } = make();
    runtime.register("agent", async (_input, { ask }) => {
      await ask("?");
    });
    const startAt = clock.now() + 1_000;
    const { run_id, session_id, created_at } = await runtime.createRun(
      { agent_name: "agent", input: "x", mode: "async" },
      { startAt },
    );
    const scheduled = { created_at, start_at: new Date(startAt).toISOString(), session_id, usage: null, blocked: null };
    expect(await runtime.details(run_id)).toMatchObject({
      ...scheduled,
      ...{ status: "created", started_at: null, finished_at: null, last_event_id: 1 },
    });
    await clock.advance(1_000);
    await clock.settle();
    const waiting = await runtime.details(run_id);
    expect(waiting).toMatchObject({ ...scheduled, status: "awaiting", finished_at: null, last_event_id: 3 });
    expect(Date.parse(waiting.started_at ?? "")).toBeGreaterThanOrEqual(startAt);
    const run = await runtime.resume({ run_id, await_resume: { ok: true } });
    expect(await runtime.details(run_id)).toEqual({
      ...waiting,
      ...{ status: "completed", finished_at: run.finished_at, last_event_id: 5, await_requests: [], waits_for: [] },
    });
    const ended = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    expect((await runtime.details(ended.run_id)).start_at).toBeNull();
  });

  it("have what it has used, as its last event has", async () => {
    const { runtime } = make();
    runtime.register("child", (_input, { usage }) => {
      usage.add(tokens);
      return null;
    });
    runtime.register("agent", async (_input, { usage, ask, run }) => {
      usage.add(tokens);
      await run("child", "x");
      await ask("?");
      usage.add(tokens);
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x" });
    expect((await runtime.details(run_id)).usage).toMatchObject({
      input_tokens: 10,
      output_tokens: 4,
      total_tokens: 14,
    });
    await runtime.resume({ run_id, await_resume: { ok: true } });
    const { usage } = await runtime.details(run_id);
    expect(usage).toMatchObject({ input_tokens: 15, output_tokens: 6, total_tokens: 21 });
    const events = await drain(runtime.events(run_id));
    expect(events.map((event) => ("usage" in event ? event.usage : "none")).slice(-2)).toEqual(["none", usage]);
    expect(events.filter((event) => "usage" in event)).toHaveLength(1);
    runtime.register("failing", () => Promise.reject(new Error("no")));
    const failed = await drain(runtime.createRun({ agent_name: "failing", input: "x", mode: "stream" }));
    expect(failed.at(-1)).toMatchObject({ type: "run.failed", usage: null });
  });

  it("are refused for a run that does not exist", async () => {
    const { runtime } = make();
    runtime.register("agent", () => "ok");
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x" });
    for (const [scope, id] of [[runtime, UNKNOWN] as const, [runtime.scope({ tenant: "other" }), run_id] as const]) {
      expect((await refusal(scope.details(id))).code).toBe("run_not_found");
      expect((await refusal(scope.transcript(id))).code).toBe("run_not_found");
    }
  });
});

describe.each(places)("the transcript of a run %s", (_where, make) => {
  /** What was said in a run, each message with its role. */
  async function said(runtime: Pick<AgentRuntime, "transcript">, run_id: string): Promise<string[]> {
    return (await runtime.transcript(run_id)).map((message) => `${message.role}: ${textOf(message)}`);
  }

  async function start(set: Setup, body: Parameters<AgentRuntime["register"]>[2]): Promise<string> {
    set.runtime.register("agent", body as never);
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "Go", mode: "async" });
    await set.clock.settle();
    return run_id;
  }
  const begin = ["user: Go"];

  it("has input, questions, answers and output in their order, and equals what its session gets", async () => {
    const set = make();
    const run_id = await start(set, async function* (_input, { ask }) {
      yield "One.";
      const both = Promise.all([ask("A?"), ask("B?")]);
      await both;
      yield "Two.";
      yield awaitMessage("C?");
      return "Three.";
    });
    expect(await said(set.runtime, run_id)).toEqual([
      ...begin,
      "agent/agent: One.",
      "agent/agent: A?",
      "agent/agent: B?",
    ]);
    await set.runtime.resume({ run_id, await_id: "ask#2", await_resume: reply("b") });
    await set.runtime.resume({ run_id, await_resume: reply("a") });
    await set.runtime.resume({ run_id, await_resume: { n: 3 } });
    expect(await said(set.runtime, run_id)).toEqual([
      ...[...begin, "agent/agent: One.", "agent/agent: A?", "user: a", "agent/agent: B?", "user: b"],
      ...["agent/agent: Two.", "agent/agent: C?", 'user: {"n":3}', "agent/agent: Three."],
    ]);
    const { session_id } = await set.runtime.getRun(run_id);
    const { history } = await set.runtime.getSession(session_id ?? "");
    expect(await set.runtime.transcript(run_id)).toEqual(history);
  });

  it("has what was said before the run failed", async () => {
    const set = make();
    const run_id = await start(set, async function* () {
      yield "One.";
      throw new Error("no");
    });
    expect(await said(set.runtime, run_id)).toEqual([...begin, "agent/agent: One."]);
  });

  it("has what was said before the run was cancelled, with the question that was open", async () => {
    const set = make();
    const run_id = await start(set, async function* (_input, { ask }) {
      yield "One.";
      await ask("A?");
    });
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    expect((await set.runtime.getRun(run_id)).status).toBe("cancelled");
    expect(await said(set.runtime, run_id)).toEqual([...begin, "agent/agent: One.", "agent/agent: A?"]);
  });

  it("has no answer to a question that was declined, expired or was withdrawn", async () => {
    const set = make();
    const run_id = await start(set, async (_input, { ask }) => {
      await ask("A?").catch(() => undefined);
      await ask("B?", { timeoutMs: 10, default: { b: 1 } });
      const stop = new AbortController();
      const third = ask("C?", { signal: stop.signal }).catch(() => undefined);
      stop.abort();
      await third;
      return "One.";
    });
    await set.runtime.resume({ run_id, decline: { reason: "Not now." }, mode: "async" });
    await set.clock.settle();
    await set.clock.advance(10);
    await set.clock.settle();
    expect(await said(set.runtime, run_id)).toEqual([
      ...[...begin, "agent/agent: A?", "agent/agent: B?", "agent/agent: C?", "agent/agent: One."],
    ]);
  });

  it("grows while the run is at work", async () => {
    const set = make();
    const gate = deferred();
    const run_id = await start(set, async function* (_input, { step }) {
      yield "One. ";
      await step("work", () => gate.promise);
      yield "Two.";
    });
    expect(await said(set.runtime, run_id)).toEqual([...begin, "agent/agent: One. "]);
    const before = await set.runtime.transcript(run_id);
    expect(before.at(-1)?.completed_at).toBeNull();
    gate.resolve();
    await set.clock.settle();
    expect(await said(set.runtime, run_id)).toEqual([...begin, "agent/agent: One. |Two."]);
    // A transcript does not change any more.
    expect(textOf(before.at(-1) ?? { parts: [] })).toBe("One. ");
  });
});

/** How many readers join a run at a random moment. `npm run stress -- fuzz` lets 10,000 join. */
const JOINS = process.env["CADENZA_FUZZ"] === "full" ? 10_000 : 400;
const READERS = 20;

unlessReplayed(OUTSIDE)(
  "a reader that continues after the last event of the details gets exactly the rest, under load",
  async () => {
    const random = new Random(Number(process.env["SEED"] ?? 7));
    let joins = 0;
    for (let round = 0; joins < JOINS; round++) {
      const store = round % 3 === 0 ? undefined : round % 3 === 1 ? lateStore() : setUpOnFile().store;
      const { runtime, clock } = setUp(store && { store });
      const turns = (count: number): Promise<void> =>
        count === 0 ? Promise.resolve() : clock.turn().then(() => turns(count - 1));
      runtime.register("agent", { durable: round % 2 === 0 }, async function* (_input, { ask, emit, step }) {
        for (let part = 0; part < 60; part++) {
          yield `${part} `;
          if (part % 7 === 0) yield null;
          if (part % 11 === 0) await emit({ n: part });
          if (part % 13 === 0) await step("work", () => turns(2));
          if (part % 29 === 0) await ask("Go on?");
          if (part % 3 === 0) await turns(1);
        }
      });
      const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
      const answering = (async () => {
        for await (const { type } of runtime.events(run_id, { until: "end" }))
          if (type === "run.awaiting") await runtime.resume({ run_id, await_resume: reply("yes"), mode: "async" });
      })();
      const join = async (): Promise<void> => {
        await turns(random.below(90));
        const before = await drain(runtime.events(run_id, { until: "now" }));
        const { last_event_id, status } = await runtime.details(run_id);
        const after = await drain(runtime.events(run_id, { until: "now" }));
        const rest = await drain(runtime.events(run_id, { after: last_event_id, until: "end" }));
        const all = await drain(runtime.events(run_id, { until: "end" }));
        // No event that was there is missing before it, and none that was not there is skipped.
        expect(last_event_id).toBeGreaterThanOrEqual(before.length);
        expect(last_event_id).toBeLessThanOrEqual(after.length);
        expect(rest).toEqual(all.slice(last_event_id));
        expect(status).toBe(statusAt(all, last_event_id));
      };
      await Promise.all([answering, ...Array.from({ length: READERS }, join)]);
      joins += READERS;
      await runtime.close();
    }
  },
);

/** The status of a run after its event of this number. */
function statusAt(events: readonly StreamedEvent[], id: number): string | undefined {
  return events
    .slice(0, id)
    .flatMap((event) => ("run" in event ? [event.run.status] : []))
    .at(-1);
}
