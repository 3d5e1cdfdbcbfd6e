import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { FakeClock } from "../../harness/clock.ts";
import { SECRET, UserCode } from "../../harness/failing-code.ts";

/* Each call of a user's own code fails once, in a first execution and in a replay: schemas, interceptors, listeners, the logger, `authorize`, the body of a step. */

interface Course {
  readonly isDurable: boolean;
  readonly alwaysReplay: boolean;
}

interface Played {
  readonly called: readonly string[];
  readonly status: string;
  readonly reason: unknown;
  readonly blocked: unknown;
  /** What the client has seen. */
  readonly seen: string;
}

const TYPES = [
  "run.created",
  "run.in-progress",
  "run.awaiting",
  "run.completed",
  "run.failed",
  "message.created",
  "message.part",
  "message.completed",
] as const;
/** What an agent does with: a failure of it may fail the run. */
const PARTS_OF_THE_AGENT = /^(interceptor run|interceptor step|output|step body)/;

async function play(code: UserCode, { isDurable, alwaysReplay }: Course): Promise<Played> {
  const clock = new FakeClock(60);
  const base = new MemoryStore({ clock });
  const store = isDurable ? durable(base, { alwaysReplay }) : base;
  const desk = defineAgent("desk", {
    durable: isDurable,
    input: code.schema("input", z.object({ text: z.string() })),
    output: code.schema("output", z.object({ text: z.string() })),
    questions: { approval: code.schema("question", z.object({ approved: z.boolean() })) },
    messages: { hint: code.schema("message", z.object({ text: z.string() })) },
  }).run(async ({ text }, { ask, step, receive, emit }) => {
    const found = await step("look", async () => {
      await code.begin("step body");
      return { at: "now" };
    });
    await emit("Looking. ");
    const { approved } = await ask("Refund?", { name: "approval" });
    const hint = await receive("hint");
    return { text: `${text} ${approved} ${String(JSON.stringify(hint).length > 0)} ${Object.keys(found).length}` };
  });
  const runtime = new AgentRuntime({
    store,
    clock: code.clock(clock),
    agents: [desk],
    logger: code.logger,
    interceptors: [code.interceptor],
  });
  for (const type of TYPES) runtime.on(type, () => code.call(`listener ${type}`));
  const handler = createAcpHandler(runtime, {
    extensions: true,
    authorize: async () => {
      await code.begin("authorize");
      return { tenant: "" };
    },
  });
  let seen = "";
  const send = async (method: string, path: string, body?: unknown): Promise<{ status: number; json: never }> => {
    // A client sends again what was not taken.
    for (let attempt = 1; ; attempt++) {
      const asked = handler(
        new Request(`http://a${path}`, {
          method,
          headers: { "content-type": "application/json", "idempotency-key": `${method} ${path}` },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        }),
      );
      await clock.advance(20_000);
      const response = await asked;
      const text = await response.text();
      seen += text;
      if (response.ok || attempt === 3) return { status: response.status, json: JSON.parse(text) as never };
    }
  };
  const created = await send("POST", "/runs", {
    agent_name: "desk",
    mode: "async",
    input: [{ parts: [{ content_type: "application/json", content: JSON.stringify({ text: "x" }) }] }],
  });
  const { run_id } = created.json as { run_id: string };
  await clock.advance(1_000);
  await send("POST", `/runs/${run_id}`, { run_id, await_resume: { approved: true }, mode: "async" });
  await clock.advance(1_000);
  for (let attempt = 0; attempt < 3; attempt++) {
    const sent = runtime.send({ to: run_id, name: "hint", data: { text: "h" } }, { idempotencyKey: "hint" }).then(
      () => true,
      (error: unknown) => String(error).includes("run_finished"),
    );
    await clock.advance(1_000);
    if (await sent) break;
  }
  await clock.advance(60_000);
  const { json } = await send("GET", `/runs/${run_id}`);
  const { status, error } = json as { status: string; error: { data?: { reason?: unknown } } | null };
  const { blocked } = await runtime.stats();
  const closed = runtime.close({ drainMs: 0 });
  await clock.advance(60_000);
  await closed;
  return { called: code.called, status, reason: error?.data?.reason, blocked, seen };
}

const courses: readonly Course[] = [
  { isDurable: false, alwaysReplay: false },
  { isDurable: true, alwaysReplay: false },
  { isDurable: true, alwaysReplay: true },
];

describe.each(courses)("code of a user (durable: $isDurable, replayed: $alwaysReplay)", (course) => {
  it("fails once, and no run is stuck, blocked or failed by what is no part of its agent", async () => {
    const whole = await play(new UserCode(), course);
    const none = whole.blocked;
    expect(whole).toMatchObject({ status: "completed", blocked: none });
    for (const [index, what] of whole.called.entries()) {
      for (const rejects of [false, true]) {
        const { status, reason, blocked, seen, called } = await play(new UserCode(index + 1, rejects), course);
        expect({ what: called[index], blocked, tells: seen.includes(SECRET) }).toEqual({
          what,
          blocked: none,
          tells: false,
        });
        if (status !== "completed" || !PARTS_OF_THE_AGENT.test(what))
          expect({ what, rejects, status, reason }).toEqual(
            PARTS_OF_THE_AGENT.test(what)
              ? { what, rejects, status: "failed", reason: expect.stringMatching(/agent_failed|invalid_output/) }
              : { what, rejects, status: "completed", reason: undefined },
          );
      }
    }
  });
});
