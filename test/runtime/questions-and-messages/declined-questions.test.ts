import type { AgentContext, ResumeRequest, Run } from "cadenza";
import { awaitMessage } from "cadenza";
import type { Entry } from "cadenza/store";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { T0 } from "../../harness/logs.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { drain, eventsOf, questionOf, refusal, setUp, textsOf, typesOf } from "../../harness/runtimes.ts";
import { begin, codeOf, outcome, reasonOf, shown } from "../../harness/waiting-agents.ts";

/* How a question is asked and declined, and what the agent learns of its answer. */

const schema = z.object({ ok: z.boolean() });
const fallback = { ok: false };

function decline({ runtime }: Setup, run_id: string, reason?: string, more: Partial<ResumeRequest> = {}): Promise<Run> {
  return runtime.resume({ run_id, decline: { reason }, ...more, mode: "sync" });
}

async function logOf({ store }: Setup, run_id: string): Promise<readonly Entry[]> {
  return (await store.read({ tenant: "", run_id }, 0, 1_000)) ?? [];
}

describe("a declined question", () => {
  it.each([
    { options: {}, name: "without options" },
    { options: { schema }, name: "with a schema" },
    { options: { default: fallback }, name: "with a default" },
    { options: { schema, default: fallback, timeoutMs: 1_000 }, name: "with a schema, a default and a deadline" },
    { options: { schema, details: true }, name: "with details" },
  ])("rejects with answer_declined and the reason: $name", async ({ options }) => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask }) => {
      try {
        await ask("Go on?", options as object);
        return "answered";
      } catch (error) {
        return `${codeOf(error)}: ${(error as Error).message}`;
      }
    });
    const run = await decline(set, run_id, "Not today.");
    expect(run.status).toBe("completed");
    expect(textsOf(run)).toEqual([`answer_declined: The question ask#1 of run ${run_id} was declined: Not today.`]);
  });

  it.each([
    { reason: undefined, said: "was declined." },
    { reason: null, said: "was declined." },
    { reason: "No.", said: "was declined: No." },
  ])("without a catch fails the run with that reason ($reason)", async ({ reason, said }) => {
    const set = setUp();
    const run_id = await begin(set, ({ ask }) => ask("Go on?", { default: fallback }));
    const run = await set.runtime.resume({ run_id, decline: { reason } });
    expect(run.status).toBe("failed");
    expect(reasonOf(run)).toBe("answer_declined");
    expect(run.error?.message).toContain(said);
  });

  it("of a yielded request is thrown where it was yielded", async () => {
    const set = setUp();
    set.runtime.register("agent", async function* () {
      try {
        yield awaitMessage("Go on?");
        yield "answered";
      } catch (error) {
        yield codeOf(error);
      } finally {
        yield "cleaned up";
      }
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "" });
    expect(textsOf(await decline(set, run_id))).toEqual(["answer_declined|cleaned up"]);
  });

  it("of a yielded request without a catch fails the run, and its `finally` blocks run", async () => {
    const set = setUp();
    set.runtime.register("agent", function* () {
      try {
        yield awaitMessage("Go on?");
      } finally {
        yield "cleaned up";
      }
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "" });
    const run = await decline(set, run_id, "No.");
    expect([run.status, reasonOf(run), ...textsOf(run)]).toEqual(["failed", "answer_declined", "cleaned up"]);
  });

  it("is one of several: the others stay open", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask }) =>
      (await Promise.all([outcome(ask("One?")), outcome(ask("Two?")), outcome(ask("Three?"))])).join(),
    );
    expect(questionOf(await decline(set, run_id, "No.", { await_id: "ask#2" })).await_id).toBe("ask#1");
    // Without an id it is for the first open one.
    expect(questionOf(await decline(set, run_id)).await_id).toBe("ask#3");
    const run = await set.runtime.resume({ run_id, await_resume: { is: 3 } });
    expect(textsOf(run)).toEqual(['answer_declined,answer_declined,{"is":3}']);
  });

  it("tells its agent who has declined it, and why", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask }) => {
      const errors = await Promise.all([ask("One?").catch(String), ask("Two?").catch((error) => error)]);
      const { message, reason, by } = errors[1];
      return JSON.stringify({ message, reason, by });
    });
    await set.runtime.resume({ run_id, await_id: "ask#1", decline: {}, mode: "async" });
    const ada = set.runtime.scope({ principal: "ada" });
    const run = await ada.resume({ run_id, await_id: "ask#2", decline: { reason: "Too late." } });
    expect(JSON.parse(textsOf(run)[0] ?? "")).toEqual({
      message: `The question ask#2 of run ${run_id} was declined: Too late.`,
      reason: "Too late.",
      by: "ada",
    });
  });

  it("goes on with the events of an answered one", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ ask }) => outcome(ask("Go on?")));
    const events = await drain(set.runtime.resume({ run_id, decline: {}, mode: "stream" }));
    expect(typesOf(events)).toEqual([
      ...["run.in-progress", "message.created", "message.part", "message.completed", "run.completed"],
    ]);
    expect((await eventsOf(set.runtime, run_id)).map(({ id }) => id)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it("may be declined again with the same reason, and is answered no more", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask }) => [await outcome(ask("One?")), await outcome(ask("Two?"))].join());
    const again = { await_id: "ask#1" };
    for (let time = 0; time < 3; time++)
      expect(questionOf(await decline(set, run_id, "No.", again)).await_id).toBe("ask#2");
    expect((await refusal(decline(set, run_id, "Never.", again))).code).toBe("answer_conflict");
    const answering = set.runtime.resume({ run_id, await_id: "ask#1", await_resume: { ok: true } });
    expect((await refusal(answering)).code).toBe("answer_conflict");
    const run = await set.runtime.resume({ run_id, await_resume: { ok: true } });
    expect(textsOf(run)).toEqual(['answer_declined,{"ok":true}']);
    expect((await refusal(decline(set, run_id, "No.", { await_id: "ask#2" }))).code).toBe("answer_conflict");
    expect((await refusal(decline(set, run_id))).code).toBe("not_awaiting");
  });

  it("is told from another by its idempotency key", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask }) => [await outcome(ask("One?")), await outcome(ask("Two?"))].join());
    const one = { run_id, decline: { reason: "No." } };
    for (let time = 0; time < 3; time++)
      expect(questionOf(await set.runtime.resume(one, { idempotencyKey: "k1" })).await_id).toBe("ask#2");
    const other = set.runtime.resume({ run_id, await_resume: { ok: true } }, { idempotencyKey: "k1" });
    expect((await refusal(other)).code).toBe("idempotency_conflict");
    expect(textsOf(await set.runtime.resume(one, { idempotencyKey: "k2" }))).toEqual([
      "answer_declined,answer_declined",
    ]);
  });

  it.each([
    { decline: "No." },
    { decline: 5 },
    { decline: [] },
    { decline: { reason: 5 } },
    { decline: { reason: "" } },
    { decline: { why: "No." } },
    { decline: {}, await_resume: { ok: true } },
    { decline: undefined },
    { decline: null },
  ])("is not declined by %j", async (request) => {
    const set = setUp();
    const run_id = await begin(set, ({ ask }) => ask("Go on?"));
    expect((await refusal(set.runtime.resume({ run_id, ...(request as object) }))).code).toBe("invalid_argument");
    expect(await shown(set, run_id)).toBe("awaiting");
  });

  it.each(["completed", "cancelling", "unknown"])("of a run that is %s is refused", async (which) => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask }) => {
      if (which === "completed") return;
      await ask("Go on?").catch(() => new Promise(() => {}));
    });
    if (which === "cancelling") await set.runtime.cancel(run_id);
    const to = which === "unknown" ? "00000000-0000-4000-8000-0000000000ff" : run_id;
    const expected = { completed: "not_awaiting", cancelling: "run_cancelling", unknown: "run_not_found" }[which];
    expect((await refusal(decline(set, to))).code).toBe(expected);
  });

  it("of a sub-run is declined at its parent", async () => {
    const set = setUp();
    set.runtime.register("child", async (_input, { ask }) => `${await outcome(ask("Go on?", { default: fallback }))}`);
    const run_id = await begin(set, async ({ run }) => textsOf(await run("child", "")).join());
    expect(questionOf(await set.runtime.getRun(run_id)).await_id).toBe("run:child#1/ask#1");
    expect(textsOf(await decline(set, run_id, "No."))).toEqual(["answer_declined"]);
  });
});

describe("details: true", () => {
  const asked = async (set: Setup, options: object) =>
    begin(set, async ({ ask }) => JSON.stringify(await ask("Go on?", { ...options, details: true })));

  it.each([
    { principal: null, by: null },
    { principal: "ann", by: "ann" },
    { principal: { id: 7, roles: ["a"] }, by: { id: 7, roles: ["a"] } },
  ])("names who answered ($principal) and when", async ({ principal, by }) => {
    const set = setUp();
    const run_id = await asked(set, { schema });
    await set.clock.advance(300);
    const scope = set.runtime.scope({ principal });
    const run = await scope.resume({ run_id, await_resume: { ok: true } });
    expect(JSON.parse(textsOf(run).join())).toEqual({ value: { ok: true }, by, at: T0 + 300, how: "answer" });
  });

  it("names the default that was taken at the deadline", async () => {
    const set = setUp();
    const run_id = await asked(set, { schema, timeoutMs: 500, default: fallback });
    await set.clock.advance(1_000);
    const [text] = textsOf(await set.runtime.getRun(run_id));
    expect(JSON.parse(text ?? "")).toEqual({ value: fallback, by: null, at: T0 + 500, how: "default" });
  });

  it("without a schema holds the message or the object", async () => {
    const set = setUp();
    const run_id = await asked(set, {});
    const run = await set.runtime.resume({ run_id, await_resume: { any: 1 } });
    expect(JSON.parse(textsOf(run).join())).toMatchObject({ value: { any: 1 }, how: "answer" });
  });

  it.each([{ details: false }, { details: undefined }, {}])("is off with %j", async (options) => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask }) => JSON.stringify(await ask("Go on?", options as object)));
    expect(textsOf(await set.runtime.resume({ run_id, await_resume: { any: 1 } }))).toEqual(['{"any":1}']);
  });

  it("names who answered the question of a sub-run at its parent", async () => {
    const set = setUp();
    set.runtime.register("child", async (_input, { ask }) =>
      JSON.stringify((await ask("Go on?", { details: true })).by),
    );
    const run_id = await begin(set, async ({ run }) => textsOf(await run("child", "")).join());
    const run = await set.runtime.scope({ principal: "ann" }).resume({ run_id, await_resume: { any: 1 } });
    expect(textsOf(run)).toEqual(['"ann"']);
  });
});

describe("the name and the kind of a question", () => {
  it.each([
    { options: { name: "approval", kind: "approval" } },
    { options: { name: "é 🎻" } },
    { options: { kind: "auth" } },
    { options: { kind: "input" } },
    { options: {} },
  ])("are in its log, and not in its key: $options", async ({ options }) => {
    const set = setUp();
    const run_id = await begin(set, ({ ask }) => outcome(ask("Go on?", options as object)));
    const [awaited] = (await logOf(set, run_id)).filter(({ type }) => type === "awaited");
    expect(awaited).toEqual({
      ...{ type: "awaited", at: T0, await_id: "ask#1", emitted: 0, parts: [expect.anything()] },
      ...options,
    });
    expect(Object.keys(questionOf(await set.runtime.getRun(run_id))).sort()).toEqual(["await_id", "message", "type"]);
  });

  it.each([
    { name: "" },
    { name: 5 },
    { kind: "question" },
    { kind: null },
    { details: 1 },
    { details: "true" },
    { signal: {} },
    { timeoutMs: -1 },
    { timeoutMs: Number.NaN },
    { timeoutMs: "1s" },
    { schema: { type: "object" } },
    { timeout: 5 },
    null,
  ])("an ask with the options %j is refused", async (options) => {
    const set = setUp();
    const run_id = await begin(set, ({ ask }) => outcome(ask("Go on?", options as unknown as object)));
    expect(await shown(set, run_id)).toBe("completed: invalid_argument");
  });
});

describe("the principal who replies", () => {
  it.each([
    { principal: null, by: undefined },
    { principal: "ann", by: "ann" },
    { principal: { id: 7 }, by: { id: 7 } },
    { principal: false, by: false },
  ])("$principal is in the log with an answer, a decline and a message", async ({ principal, by }) => {
    const set = setUp();
    const run_id = await begin(set, async ({ ask, receive }) => {
      await ask("One?");
      await ask("Two?").catch(() => {});
      await receive("mail");
    });
    const scope = set.runtime.scope({ principal });
    await scope.resume({ run_id, await_resume: { ok: true } });
    await scope.resume({ run_id, decline: {}, mode: "async" });
    await set.clock.settle();
    await scope.send({ to: run_id, name: "mail", data: 1 });
    await set.clock.settle();
    const log = await logOf(set, run_id);
    const named = log.flatMap((entry) => ("by" in entry ? [[entry.type, entry.by]] : []));
    expect(named).toEqual(by === undefined ? [] : ["resumed", "declined", "received"].map((type) => [type, by]));
    expect(await shown(set, run_id)).toBe("completed");
  });
});

it.each([Number.MAX_SAFE_INTEGER, Number.MAX_VALUE, Number.POSITIVE_INFINITY])(
  "a question that may be answered for %s ms never expires",
  async (timeoutMs) => {
    const set = setUp();
    const run_id = await begin(set, ({ ask }: AgentContext) => ask("Go on?", { timeoutMs }).then(() => "answered"));
    await set.clock.advance(5_000);
    expect(questionOf(await set.runtime.getRun(run_id))).not.toHaveProperty("expires_at");
    expect(textsOf(await set.runtime.resume({ run_id, await_resume: { ok: true } }))).toEqual(["answered"]);
  },
);
