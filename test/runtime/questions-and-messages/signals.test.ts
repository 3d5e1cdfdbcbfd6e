import { getEventListeners } from "node:events";
import type { AgentContext, Run } from "cadenza";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { deferred, nextTurn } from "../../harness/promises.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { eventsOf, questionOf, refusal, setUp, typesOf } from "../../harness/runtimes.ts";
import { OUTSIDE, unlessReplayed } from "../../harness/unless-replayed.ts";
import { begin, outcome, shown } from "../../harness/waiting-agents.ts";

/* The `signal` of what an agent waits for. */

interface Wait {
  readonly name: string;
  begin(context: AgentContext, signal: AbortSignal | undefined): Promise<unknown>;
  /** Lets the wait end with its result. */
  end(set: Setup, run_id: string): Promise<unknown>;
  /** The result, as text. */
  readonly result: string;
  /** The status of the run meanwhile. */
  readonly status: Run["status"];
}

const waits: readonly Wait[] = [
  {
    name: "ask",
    begin: ({ ask }, signal) => ask("Well?", { signal }),
    end: ({ runtime }, run_id) => runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" }),
    result: '{"ok":true}',
    status: "awaiting",
  },
  {
    name: "ask with a default",
    begin: ({ ask }, signal) => ask("Well?", { signal, timeoutMs: 1_000, default: { ok: false } }),
    end: ({ clock }) => clock.advance(1_000),
    result: '{"ok":false}',
    status: "awaiting",
  },
  {
    name: "sleep",
    begin: ({ sleep }, signal) => sleep(1_000, { signal }),
    end: ({ clock }) => clock.advance(1_000),
    result: "undefined",
    status: "in-progress",
  },
  {
    name: "receive",
    begin: ({ receive }, signal) => receive("mail", { signal }),
    end: ({ runtime }, run_id) => runtime.send({ to: run_id, name: "mail", data: "hello" }),
    result: '"hello"',
    status: "in-progress",
  },
  {
    name: "receive with a deadline",
    begin: ({ receive }, signal) => receive("mail", { signal, timeoutMs: 1_000, default: "none" }),
    end: ({ clock }) => clock.advance(1_000),
    result: '"none"',
    status: "in-progress",
  },
];

async function typesIn({ store }: Setup, run_id: string): Promise<string[]> {
  return ((await store.read({ tenant: "", run_id }, 0, 1_000)) ?? []).map(({ type }) => type);
}

describe.each(waits)("the signal of $name", (wait) => {
  it.each([
    { reason: new Error("enough"), said: "Error: enough" },
    { reason: "enough", said: "enough" },
    { reason: null, said: "null" },
    { reason: undefined, said: "AbortError: This operation was aborted" },
  ])(
    "that is aborted before rejects at once with its reason, and nothing is logged: $said",
    async ({ reason, said }) => {
      const set = setUp();
      const run_id = await begin(set, (context) => outcome(wait.begin(context, AbortSignal.abort(reason))));
      expect(await shown(set, run_id)).toBe(`completed: ${said}`);
      const logged = ["awaited", "intent", "withdrawn", "taken", "step"];
      expect((await typesIn(set, run_id)).filter((type) => logged.includes(type))).toEqual([]);
    },
  );

  it("that aborts meanwhile rejects with its reason, and the run goes on", async () => {
    const set = setUp();
    const gate = deferred();
    const run_id = await begin(set, async (context) => {
      const controller = new AbortController();
      const waiting = outcome(wait.begin(context, controller.signal));
      await context.step("work", () => gate.promise);
      controller.abort(new Error("enough"));
      const said = await waiting;
      await context.step("go on", () => 1);
      return said;
    });
    expect(await shown(set, run_id)).toBe(wait.status);
    gate.resolve();
    expect(await shown(set, run_id)).toBe("completed: Error: enough");
    expect((await typesIn(set, run_id)).filter((type) => type === "withdrawn")).toHaveLength(1);
    // Its deadline passes, which changes nothing.
    await set.clock.advance(2_000);
    expect(await shown(set, run_id)).toBe("completed: Error: enough");
  });

  it("that aborts later changes nothing", async () => {
    const set = setUp();
    const run_id = await begin(set, async (context) => {
      const controller = new AbortController();
      const waiting = wait.begin(context, controller.signal);
      await waiting;
      controller.abort();
      await context.step("go on", () => 1);
      return outcome(waiting);
    });
    await wait.end(set, run_id);
    expect(await shown(set, run_id)).toBe(`completed: ${wait.result}`);
    expect(await typesIn(set, run_id)).not.toContain("withdrawn");
  });

  it("that never aborts changes nothing, and has no listener left", async () => {
    const set = setUp();
    let last: AbortSignal | undefined;
    const run_id = await begin(set, (context) => {
      const { signal } = new AbortController();
      last = signal;
      return outcome(wait.begin(context, signal));
    });
    expect(last && getEventListeners(last, "abort")).toHaveLength(1);
    await wait.end(set, run_id);
    expect(await shown(set, run_id)).toBe(`completed: ${wait.result}`);
    expect(last && getEventListeners(last, "abort")).toHaveLength(0);
  });

  it("has no listener left when the run is cancelled, and aborting it then changes nothing", async () => {
    const set = setUp();
    let last: AbortController | undefined;
    const run_id = await begin(set, async (context) => {
      const controller = new AbortController();
      last = controller;
      await context.emit(await outcome(wait.begin(context, controller.signal)));
    });
    await set.runtime.cancel(run_id);
    await set.clock.advance(1_000);
    expect(last && getEventListeners(last.signal, "abort")).toHaveLength(0);
    last?.abort();
    expect(await shown(set, run_id)).toBe("cancelled: run_cancelled");
    expect(await typesIn(set, run_id)).not.toContain("withdrawn");
  });

  it("withdraws the loser of a race, and the run waits for nothing else", async () => {
    const set = setUp();
    const gate = deferred();
    const run_id = await begin(set, async (context) => {
      const controller = new AbortController();
      const waiting = wait.begin(context, controller.signal).then(() => "the wait");
      const first = await Promise.race([waiting, context.step("work", () => gate.promise).then(() => "the step")]);
      controller.abort();
      await context.sleep(5_000);
      return first;
    });
    gate.resolve();
    await set.clock.settle();
    expect(await shown(set, run_id)).toBe("in-progress");
    expect(await typesIn(set, run_id)).toContain("withdrawn");
    await set.clock.advance(5_000);
    expect(await shown(set, run_id)).toBe("completed: the step");
  });

  it("that is the run's own aborts when the run is cancelled", async () => {
    const set = setUp();
    const run_id = await begin(set, async (context) => {
      await context.emit(await outcome(wait.begin(context, context.signal)));
    });
    expect(await shown(set, run_id)).toBe(wait.status);
    await set.runtime.cancel(run_id);
    await set.clock.advance(1_000);
    expect(await shown(set, run_id)).toBe("cancelled: run_cancelled");
  });

  unlessReplayed(OUTSIDE)("may abort from outside the agent", async () => {
    const set = setUp();
    const controller = new AbortController();
    const run_id = await begin(set, (context) => outcome(wait.begin(context, controller.signal)));
    controller.abort("enough");
    expect(await shown(set, run_id)).toBe("completed: enough");
  });
});

it("one signal withdraws everything that an agent waits for with it", async () => {
  const set = setUp();
  const gate = deferred();
  const run_id = await begin(set, async (context) => {
    const controller = new AbortController();
    const all = waits.map((wait) => outcome(wait.begin(context, controller.signal)));
    await context.step("work", () => gate.promise);
    controller.abort("enough");
    return (await Promise.all(all)).join();
  });
  expect(await shown(set, run_id)).toBe("awaiting");
  gate.resolve();
  expect(await shown(set, run_id)).toBe("completed: enough,enough,enough,enough,enough");
});

it("a withdrawn question is shown no more, and takes no answer", async () => {
  const set = setUp();
  const gate = deferred();
  const run_id = await begin(set, async ({ ask, step }) => {
    const controller = new AbortController();
    const first = outcome(ask("One?", { signal: controller.signal }));
    const second = ask("Two?");
    await step("work", () => gate.promise);
    controller.abort("enough");
    await second;
    return first;
  });
  expect(questionOf(await set.runtime.getRun(run_id)).await_id).toBe("ask#1");
  gate.resolve();
  await set.clock.settle();
  expect(questionOf(await set.runtime.getRun(run_id)).await_id).toBe("ask#2");
  for (const reply of [{ await_resume: { ok: true } }, { decline: {} }])
    expect((await refusal(set.runtime.resume({ run_id, await_id: "ask#1", ...reply }))).code).toBe("not_awaiting");
  const run = await set.runtime.resume({ run_id, await_resume: { ok: true } });
  expect(run.status).toBe("completed");
  expect(typesOf(await eventsOf(set.runtime, run_id)).slice(1, 7)).toEqual([
    ...["run.in-progress", "run.awaiting", "run.in-progress", "run.awaiting", "run.in-progress", "message.created"],
  ]);
});

it("an answer that is being validated when its question is withdrawn comes too late", async () => {
  const set = setUp();
  const [gate, valid] = [deferred(), deferred<boolean>()];
  const schema = z.object({}).refine(() => valid.promise);
  const run_id = await begin(set, async ({ ask, step }) => {
    const controller = new AbortController();
    const asking = outcome(ask("Well?", { schema, signal: controller.signal }));
    await step("work", () => gate.promise);
    controller.abort("enough");
    return asking;
  });
  const answering = refusal(set.runtime.resume({ run_id, await_resume: {} }));
  await set.clock.settle();
  gate.resolve();
  await set.clock.settle();
  valid.resolve(true);
  expect((await answering).code).toBe("not_awaiting");
  expect(await shown(set, run_id)).toBe("completed: enough");
});

it("a withdrawn receive takes no message: the next receive gets it", async () => {
  const set = setUp();
  const gate = deferred();
  const run_id = await begin(set, async ({ receive, step }) => {
    const controller = new AbortController();
    const first = outcome(receive("mail", { signal: controller.signal }));
    const second = receive("mail");
    await step("work", () => gate.promise);
    controller.abort("enough");
    return [await first, await second].join();
  });
  gate.resolve();
  await set.clock.settle();
  await set.runtime.send({ to: run_id, name: "mail", data: "hello" });
  expect(await shown(set, run_id)).toBe("completed: enough,hello");
});

it.each([0, 1, 2, 3, 4, 5, 6, 7, 8])(
  "no message is lost to a receive that is withdrawn at the same time (%s turns later)",
  async (turns) => {
    const set = setUp();
    const gate = deferred();
    const run_id = await begin(set, async ({ receive, step }) => {
      const controller = new AbortController();
      const first = outcome(receive("mail", { signal: controller.signal }));
      const second = outcome(receive("mail"));
      await step("work", () => gate.promise);
      controller.abort("enough");
      return [await first, await second].join();
    });
    gate.resolve();
    for (let turn = 0; turn < turns; turn++) await nextTurn();
    await set.runtime.send({ to: run_id, name: "mail", data: "one" });
    await set.clock.settle();
    if ((await set.runtime.getRun(run_id)).status === "in-progress")
      await set.runtime.send({ to: run_id, name: "mail", data: "two" });
    expect(['completed: enough,"one"', 'completed: "one","two"']).toContain(await shown(set, run_id));
  },
);

it("a question of a sub-run that is withdrawn is shown no more at its parent", async () => {
  const set = setUp();
  const gate = deferred();
  set.runtime.register("child", async (_input, { ask, step }) => {
    const controller = new AbortController();
    const asking = outcome(ask("Well?", { signal: controller.signal }));
    await step("work", () => gate.promise);
    controller.abort("enough");
    await asking;
    await ask("And now?");
  });
  const run_id = await begin(set, async ({ run }) => (await run("child", "")).status);
  expect(questionOf(await set.runtime.getRun(run_id)).await_id).toBe("run:child#1/ask#1");
  gate.resolve();
  await set.clock.settle();
  expect(questionOf(await set.runtime.getRun(run_id)).await_id).toBe("run:child#1/ask#2");
  const late = set.runtime.resume({ run_id, await_id: "run:child#1/ask#1", await_resume: { ok: true } });
  expect((await refusal(late)).code).toBe("not_awaiting");
  expect((await set.runtime.resume({ run_id, await_resume: { ok: true } })).status).toBe("completed");
});
