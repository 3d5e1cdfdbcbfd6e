import type { AgentRuntime, AuditRecord, StepScope } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { DurabilityOptions, RunWrite } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { setUp } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/** By then each process knows of a pause or a resume: `scanMs` and a second. */
const KNOWN_MS = 1_100;

const answer = (run_id: string) =>
  ({
    run_id,
    await_resume: { type: "message", message: { role: "user", parts: [{ content: "yes" }] } },
    mode: "async",
  }) as const;

/** Bodies of steps that take some time, and note when they begin and end. */
function newBodies({ clock }: Replicas) {
  const done: string[] = [];
  const body = (name: string, ms: number) => async (): Promise<string> => {
    done.push(`${name} begins`);
    await new Promise<void>((resolve) => clock.setTimeout(resolve, ms));
    done.push(`${name} ends`);
    return name;
  };
  return { done, body };
}

const create = async (runtime: Pick<AgentRuntime, "createRun">, agent_name: string): Promise<string> =>
  (await runtime.createRun({ agent_name, input: "", mode: "async" })).run_id;

const statusOf = async ({ runtime }: Replica, run_id: string, tenant = "") =>
  (await runtime.scope({ tenant }).getRun(run_id)).status;

const ownerOf = async ({ store }: Replica, run_id: string, tenant = "") =>
  (await store.find({ tenant, run_id }))?.head.owner;

describe.each([
  ["in memory", () => inMemory()],
  ["on a file", () => onFile()],
] as const)("pauses with `now`, of processes %s", (_where, open) => {
  const begin = (register: (runtime: AgentRuntime, bodies: ReturnType<typeof newBodies>) => unknown) => {
    const processes = open();
    const bodies = newBodies(processes);
    const start = (hook?: Hook): Replica => {
      const process = processes.start({ stepLimits: { narrow: { max: 1 } } }, hook);
      register(process.runtime, bodies);
      return process;
    };
    return { start, clock: processes.clock, done: bodies.done };
  };

  const threeSteps = (runtime: AgentRuntime, { body }: ReturnType<typeof newBodies>) =>
    runtime.register("agent", { durable: true }, async (_input, { step }) => {
      const names: string[] = [];
      for (const name of ["a", "b", "c"]) names.push(await step(name, body(name, 2_000)));
      return names.join();
    });

  it.each([{ agent_name: "agent" }, { tenant: "acme" }])(
    "a run at work is released after its step, and goes on after a restart and the resume: %j",
    async (query) => {
      const { start, clock, done } = begin(threeSteps);
      const [first, second] = [start(), start()];
      const run = await create(first.runtime.scope({ tenant: "acme" }), "agent");
      await clock.advance(100);
      expect(await createAdmin(second.runtime).pause(query, { now: true })).toEqual({ changed: true });
      await clock.advance(KNOWN_MS);
      expect([await ownerOf(second, run, "acme"), ...done]).toEqual([expect.any(String), "a begins"]);
      await clock.advance(5_000);
      expect([await ownerOf(second, run, "acme"), ...done]).toEqual([null, "a begins", "a ends"]);
      expect(await statusOf(second, run, "acme")).toBe("in-progress");
      first.kill();
      second.kill();
      const third = start();
      await clock.advance(5_000);
      expect(done).toEqual(["a begins", "a ends"]);
      await createAdmin(third.runtime).resume(query);
      await clock.advance(10_000);
      expect((await third.runtime.scope({ tenant: "acme" }).getRun(run)).output[0]?.parts[0]?.content).toBe("a,b,c");
      expect(done).toEqual(["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
    },
  );

  it("a pause without `now` that becomes one with it releases what is at work", async () => {
    const { start, clock, done } = begin(threeSteps);
    const first = start();
    const admin = createAdmin(first.runtime);
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent" });
    await clock.advance(2_500);
    expect(await admin.pause({ agent_name: "agent" }, { now: true })).toEqual({ changed: true });
    expect(await admin.pause({ agent_name: "agent" }, { now: true })).toEqual({ changed: false });
    await clock.advance(5_000);
    expect([await ownerOf(first, run), ...done]).toEqual([null, "a begins", "a ends", "b begins", "b ends"]);
    expect(await admin.pauses()).toMatchObject([{ agent_name: "agent", now: true }]);
  });

  it("a run that is paused and resumed during a step goes on in its process", async () => {
    const { start, clock, done } = begin(threeSteps);
    const first = start();
    const admin = createAdmin(first.runtime);
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent" }, { now: true });
    await admin.resume({ agent_name: "agent" });
    await admin.pause({ agent_name: "agent" }, { now: true });
    await clock.advance(1_000);
    await admin.resume({ agent_name: "agent" });
    const epoch = (await first.store.find({ tenant: "", run_id: run }))?.head.epoch;
    await clock.advance(3_000);
    expect((await first.store.find({ tenant: "", run_id: run }))?.head.epoch).toBe(epoch);
    await clock.advance(3_000);
    expect(await statusOf(first, run)).toBe("completed");
    expect(done).toHaveLength(6);
  });

  it("a run that is resumed as it is released goes on, and no step of it runs twice", async () => {
    const { start, clock, done } = begin(threeSteps);
    const [first] = [start(), start()];
    const admin = createAdmin(first.runtime);
    const run = await create(first.runtime, "agent");
    for (let n = 0; n < 5; n++) {
      await clock.advance(1_000);
      await admin.pause({ agent_name: "agent" }, { now: true });
      await clock.advance(1_000 + n);
      await admin.resume({ agent_name: "agent" });
    }
    await clock.advance(10_000);
    expect(await statusOf(first, run)).toBe("completed");
    expect(done).toEqual(["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
  });

  it("a run is released after its step by a process that was closing already", async () => {
    const { start, clock, done } = begin(threeSteps);
    const [first, second] = [start(), start()];
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    const closing = first.runtime.close({ drainMs: 60_000 });
    await clock.advance(100);
    await createAdmin(second.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(10_000);
    expect([await ownerOf(second, run), ...done]).toEqual([null, "a begins", "a ends"]);
    await closing;
    await createAdmin(second.runtime).resume({ agent_name: "agent" });
    await clock.advance(10_000);
    expect(await statusOf(second, run)).toBe("completed");
    expect(done).toEqual(["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
  });

  it("a run is released once, also if another pause comes meanwhile", async () => {
    const { start, clock } = begin(threeSteps);
    const second = start();
    let releases = 0;
    const first = start(async (call, method, parameters) => {
      const write = parameters[2] as RunWrite | undefined;
      if (method !== "append" || write?.head.owner !== null) return call();
      releases += 1;
      if (releases === 1) await createAdmin(first.runtime).pause({ tenant: "" }, { now: true });
      return call();
    });
    await create(first.runtime, "agent");
    await clock.advance(100);
    await createAdmin(second.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(5_000);
    expect(releases).toBe(1);
  });

  it("a run whose process dies during a step is taken when it is resumed", async () => {
    const { start, clock, done } = begin(threeSteps);
    const [first, second] = [start(), start()];
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    const owner = await ownerOf(second, run);
    await createAdmin(second.runtime).pause({ agent_name: "agent" }, { now: true });
    first.kill();
    await clock.advance(20_000);
    // What the dead process does has no effect.
    expect(done.filter((line) => line !== "a ends")).toEqual(["a begins"]);
    expect(await ownerOf(second, run)).toBe(owner);
    await createAdmin(second.runtime).resume({ agent_name: "agent" });
    await clock.advance(10_000);
    expect(await statusOf(second, run)).toBe("completed");
    expect(done.filter((line) => line.endsWith("begins"))).toEqual(["a begins", "a begins", "b begins", "c begins"]);
  });

  const branches = (runtime: AgentRuntime, { body }: ReturnType<typeof newBodies>) =>
    runtime.register("agent", { durable: true }, async (_input, { step, sleep, run }) => {
      const branch = async (name: string, ms: number, next: () => Promise<unknown>): Promise<void> => {
        await step(name, body(name, ms));
        await next();
        await step(`${name}2`, body(`${name}2`, 10));
      };
      await Promise.all([
        branch("a", 1_500, async () => undefined),
        branch("b", 1_000, () => sleep(10)),
        branch("c", 500, () => run("other", "")),
        step("d", body("d", 4_000)),
      ]);
      return "done";
    });

  const withOther = (runtime: AgentRuntime, bodies: ReturnType<typeof newBodies>) => {
    branches(runtime, bodies);
    return runtime.register("other", { durable: true }, (_input, { step }) => step("e", bodies.body("e", 10)));
  };

  it("a run with several branches begins nothing, and is released when the last step at work has ended", async () => {
    const { start, clock, done } = begin(withOther);
    const [first, second] = [start(), start()];
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    const begun = [...done];
    await createAdmin(second.runtime).pause({ agent_name: "agent" }, { now: true });
    const key = { tenant: "", run_id: run };
    const { position = 0 } = (await second.store.find(key)) ?? {};
    await clock.advance(3_000);
    expect(done).toEqual([...begun, "c ends", "b ends", "a ends"]);
    expect((await second.store.find(key))?.position).toBe(position + 3);
    expect(await ownerOf(second, run)).not.toBe(null);
    await clock.advance(2_000);
    expect([await ownerOf(second, run), ...done]).toEqual([null, ...begun, "c ends", "b ends", "a ends", "d ends"]);
    expect(Object.keys((await first.runtime.stats()).live)).toEqual([]);
    first.kill();
    await createAdmin(second.runtime).resume({ agent_name: "agent" });
    await clock.advance(10_000);
    expect(await statusOf(second, run)).toBe("completed");
    expect(done.filter((line) => line.endsWith("begins"))).toHaveLength(8);
    expect(new Set(done).size).toBe(16);
  });

  it("a run with several branches that is resumed during a step begins what waited, in its process", async () => {
    const { start, clock, done } = begin(withOther);
    const first = start();
    const admin = createAdmin(first.runtime);
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent" }, { now: true });
    await clock.advance(3_000);
    await admin.resume({ agent_name: "agent" });
    await clock.advance(500);
    expect(done.slice(4)).toEqual(expect.arrayContaining(["a2 ends", "b2 ends", "e ends", "c2 ends"]));
    expect(done).not.toContain("d ends");
    await clock.advance(1_000);
    expect(await statusOf(first, run)).toBe("completed");
    expect(new Set(done).size).toBe(done.length);
  });

  it("a run in which another pause has taken over from `now` leaves when no step is at work", async () => {
    const { start, clock, done } = begin((runtime, { body }) =>
      runtime.register("agent", { durable: true }, async (_input, { step }) => {
        await Promise.all([
          step("a", body("a", 500)).then(() => step("b", body("b", 500))),
          step("c", body("c", 4_000)),
        ]);
      }),
    );
    const first = start();
    const admin = createAdmin(first.runtime);
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent" }, { now: true });
    await clock.advance(1_000);
    await admin.pause({ tenant: "" });
    await admin.resume({ agent_name: "agent" });
    await clock.advance(10_000);
    expect([await ownerOf(first, run), done.includes("b begins")]).toEqual([null, false]);
    await admin.resume({ tenant: "" });
    await clock.advance(10_000);
    expect([await statusOf(first, run), new Set(done).size]).toEqual(["completed", done.length]);
  });

  it.each(["while a step is at work", "when it is released"])("a run can be cancelled %s", async (when) => {
    const { start, clock, done } = begin((runtime, bodies) =>
      runtime.register("agent", { durable: true }, async (_input, { step }) => {
        try {
          await Promise.all([
            step("a", bodies.body("a", 500)).then(() => step("b", bodies.body("b", 1))),
            step("c", bodies.body("c", 3_000)),
          ]);
          await step("d", bodies.body("d", 1));
        } finally {
          bodies.done.push("cleans up");
          await new Promise<void>((resolve) => clock.setTimeout(resolve, 4_000));
          bodies.done.push("cleaned up");
        }
      }),
    );
    const first = start();
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await createAdmin(first.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(when === "when it is released" ? 5_000 : 1_000);
    expect(done).not.toContain("b begins");
    await first.runtime.cancel(run);
    await clock.advance(10_000);
    expect(await statusOf(first, run)).toBe("cancelled");
    expect(done.filter((line) => line.startsWith("clean"))).toEqual(["cleans up", "cleaned up"]);
    expect(done.filter((line) => /^[bd]/.test(line))).toEqual([]);
  });

  it("a run that is being cancelled cleans up where it is, whatever has come for it", async () => {
    const { start, clock, done } = begin((runtime, { body }) =>
      runtime.register("agent", { durable: true }, async (_input, { receive, step }) => {
        try {
          await Promise.all([
            step("a", body("a", 100)).then(() => step("b", body("b", 1))),
            step("c", body("c", 300)),
            receive("news"),
          ]);
        } finally {
          done.push("cleans up");
          await new Promise<void>((resolve) => clock.setTimeout(resolve, 4_000));
          done.push("cleaned up");
        }
      }),
    );
    const first = start();
    const run = await create(first.runtime, "agent");
    await clock.advance(50);
    await createAdmin(first.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(150);
    await first.runtime.send({ to: run, name: "news", data: 1 });
    await first.runtime.cancel(run);
    await clock.advance(500);
    await createAdmin(first.runtime).pause({ tenant: "" }, { now: true });
    await clock.advance(5_000);
    expect(await statusOf(first, run)).toBe("cancelled");
    expect(done).toEqual(["a begins", "c begins", "a ends", "cleans up", "c ends", "cleaned up"]);
  });

  it("a run that another process cancels as it is released is unwound", async () => {
    const { start, clock, done } = begin((runtime, bodies) =>
      runtime.register("agent", { durable: true }, async (_input, { step }) => {
        try {
          await step("a", bodies.body("a", 2_000));
          await step("b", bodies.body("b", 1));
        } finally {
          bodies.done.push("cleaned up");
        }
      }),
    );
    let run = "";
    let cancelled: Promise<unknown> | undefined;
    const second = start();
    const first = start(async (call, method, parameters) => {
      const write = parameters[2] as RunWrite | undefined;
      if (method !== "append" || write?.head.owner !== null || cancelled !== undefined) return call();
      cancelled = second.runtime.cancel(run);
      await cancelled;
      return call();
    });
    run = await create(first.runtime, "agent");
    await clock.advance(100);
    await createAdmin(first.runtime).pause({ agent_name: "agent" }, { now: true });
    // The store has unwound it before the end of a lease, which would end it without its `finally` blocks.
    await clock.advance(2_500);
    expect(cancelled).toBeDefined();
    expect(await statusOf(first, run)).toBe("cancelled");
    expect(done).toContain("cleaned up");
    expect(done).not.toContain("b begins");
  });

  it("a run that is released while it shows a question takes the answer, and goes on with it when it is resumed", async () => {
    const { start, clock, done } = begin((runtime, { body }) =>
      runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
        const work = step("a", body("a", 1_000)).then(() => step("b", body("b", 10)));
        const [reply] = await Promise.all([ask("Well?"), work]);
        return step("c", () => String(JSON.stringify(reply).includes("yes")));
      }),
    );
    const [first, second] = [start(), start()];
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await createAdmin(first.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(3_000);
    expect([await ownerOf(first, run), await statusOf(first, run), ...done]).toEqual([
      null,
      "awaiting",
      "a begins",
      "a ends",
    ]);
    await second.runtime.resume(answer(run));
    await clock.advance(10_000);
    expect([await ownerOf(first, run), await statusOf(first, run), ...done]).toEqual([
      null,
      "in-progress",
      "a begins",
      "a ends",
    ]);
    await createAdmin(first.runtime).resume({ agent_name: "agent" });
    await clock.advance(5_000);
    const { status, output } = await first.runtime.getRun(run);
    expect([status, output[0]?.parts[0]?.content]).toEqual(["completed", "true"]);
    expect(done).toEqual(["a begins", "a ends", "b begins", "b ends"]);
  });

  it("a run that is answered and gets a message while a step is at work is released after the step", async () => {
    const { start, clock, done } = begin((runtime, { body }) =>
      runtime.register("agent", { durable: true }, async (_input, { ask, receive, step }) => {
        await Promise.all([
          ask("Well?").then(() => step("b", body("b", 10))),
          step("a", body("a", 3_000)),
          receive("news"),
        ]);
      }),
    );
    const first = start();
    const admin = createAdmin(first.runtime);
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent" }, { now: true });
    await first.runtime.resume(answer(run));
    await clock.advance(1_000);
    await first.runtime.send({ to: run, name: "news", data: 1 });
    await clock.advance(1_000);
    expect([await ownerOf(first, run), ...done]).toEqual([expect.any(String), "a begins"]);
    await clock.advance(2_000);
    expect([await ownerOf(first, run), ...done]).toEqual([null, "a begins", "a ends"]);
    await admin.resume({ agent_name: "agent" });
    await clock.advance(2_000);
    expect([await statusOf(first, run), ...done]).toEqual(["completed", "a begins", "a ends", "b begins", "b ends"]);
  });

  it.each(["parent", "agent"])("a sub-run and its parent go on when the %s is resumed", async (agent_name) => {
    const { start, clock, done } = begin((runtime, bodies) => {
      threeSteps(runtime, bodies);
      runtime.register("parent", { durable: true }, async (_input, { run, step }) => {
        const { status } = await run("agent", "");
        return step("p", bodies.body(status, 1));
      });
    });
    const [first, second] = [start(), start()];
    const run = await create(first.runtime, "parent");
    await clock.advance(100);
    await createAdmin(second.runtime).pause({ agent_name }, { now: true });
    await clock.advance(30_000);
    const all = ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"];
    // A sub-run goes on while only its parent is paused.
    expect(done).toEqual(agent_name === "parent" ? all : all.slice(0, 2));
    expect([await statusOf(first, run), await ownerOf(first, run)]).toEqual(["in-progress", null]);
    await createAdmin(second.runtime).resume({ agent_name });
    await clock.advance(10_000);
    expect(await statusOf(first, run)).toBe("completed");
    expect(done).toEqual([...all, "completed begins", "completed ends"]);
  });

  it("a reader of the stream reads on when another process goes on with the run, and a caller that waits gets its end", async () => {
    const { start, clock } = begin((runtime, { body }) =>
      runtime.register("agent", { durable: true }, async function* (_input, { step }) {
        for (const name of ["a", "b", "c"]) yield await step(name, body(name, 1_000));
      }),
    );
    let takes = true;
    const [first, second] = [start((call, method) => (method === "take" && !takes ? [] : call())), start()];
    const waiting = first.runtime.createRun({ agent_name: "agent", input: "" });
    await clock.advance(100);
    const run = (await createAdmin(first.runtime).runs({ agent_name: "agent" })).items[0]?.run_id ?? "";
    const read: unknown[] = [];
    const reading = (async () => {
      for await (const event of first.runtime.events(run))
        if (event.type === "message.part") read.push(event.part.content);
    })();
    await clock.advance(1_400);
    await createAdmin(first.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(5_000);
    expect(read).toEqual(["a"]);
    takes = false;
    await createAdmin(second.runtime).resume({ agent_name: "agent" });
    await clock.advance(10_000);
    await reading;
    expect([(await waiting).status, ...read]).toEqual(["completed", "a", "b", "c"]);
  });

  it("an agent that emits without steps is released, and emits nothing twice", async () => {
    const { start, clock } = begin((runtime) =>
      runtime.register("agent", { durable: true }, async function* () {
        for (let n = 0; n < 5; n++) {
          yield `${n}`;
          await new Promise<void>((resolve) => clock.setTimeout(resolve, 1_000));
        }
      }),
    );
    const [first, second] = [start(), start()];
    const run = await create(first.runtime, "agent");
    await clock.advance(1_500);
    await createAdmin(second.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(500);
    expect(await ownerOf(second, run)).toBe(null);
    await clock.advance(10_000);
    expect(await statusOf(second, run)).toBe("in-progress");
    await createAdmin(second.runtime).resume({ agent_name: "agent" });
    await clock.advance(10_000);
    const { output } = await second.runtime.getRun(run);
    expect(output.map(({ parts }) => parts.map(({ content }) => content).join("")).join("")).toBe("01234");
  });

  it("a run that is not durable goes on", async () => {
    const { start, clock, done } = begin((runtime, { body }) =>
      runtime.register("plain", async (_input, { step }) => {
        for (const name of ["a", "b"]) await step(name, body(name, 1_000));
      }),
    );
    const first = start();
    const run = await create(first.runtime, "plain");
    await clock.advance(100);
    await createAdmin(first.runtime).pause({ agent_name: "plain" }, { now: true });
    await clock.advance(5_000);
    expect([await statusOf(first, run), ...done]).toEqual(["completed", "a begins", "a ends", "b begins", "b ends"]);
  });

  it.each([
    [false, [1], [1, 2, 3]],
    [true, [1, 2, 3], [1, 2, 3]],
  ])("the next attempt at a step with `once: %j` begins after %j", async (once, before, after) => {
    const attempts: number[] = [];
    const { start, clock } = begin((runtime, { body }) =>
      runtime.register("agent", { durable: true }, (_input, { step }) =>
        step(
          "a",
          async ({ attempt }: StepScope) => {
            attempts.push(attempt);
            await body("a", 1_000)();
            if (attempt < 3) throw new Error("Not yet.");
          },
          { once, retry: { attempts: 3 } },
        ),
      ),
    );
    const first = start();
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await createAdmin(first.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(5_000);
    expect([await ownerOf(first, run), ...attempts]).toEqual([null, ...before]);
    await createAdmin(first.runtime).resume({ agent_name: "agent" });
    await clock.advance(10_000);
    expect([await statusOf(first, run), ...attempts]).toEqual(["completed", ...after]);
  });

  it("a run that is paused again is not released during the attempt that was held the first time", async () => {
    const { start, clock, done } = begin((runtime, { body }) =>
      runtime.register("agent", { durable: true }, async (_input, { step }) => {
        const attempt = async ({ attempt: n }: StepScope): Promise<void> => {
          await body(`a${n}`, n === 1 ? 1_000 : 5_000)();
          if (n === 1) throw new Error("Not yet.");
        };
        await Promise.all([step("a", attempt, { retry: { attempts: 2 } }), step("c", body("c", 3_000))]);
      }),
    );
    const first = start();
    const admin = createAdmin(first.runtime);
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent" }, { now: true });
    await clock.advance(2_000);
    expect(done).toEqual(["a1 begins", "c begins", "a1 ends"]);
    await admin.resume({ agent_name: "agent" });
    await clock.advance(1_500);
    await admin.pause({ agent_name: "agent" }, { now: true });
    await clock.advance(2_000);
    expect([await ownerOf(first, run), ...done.slice(3)]).toEqual([expect.any(String), "a2 begins", "c ends"]);
    await admin.resume({ agent_name: "agent" });
    await clock.advance(5_000);
    expect([await statusOf(first, run), ...done.slice(5)]).toEqual(["completed", "a2 ends"]);
  });

  it("a step that waits for its limit does not begin when it gets its permit, and leaves the permit to others", async () => {
    const { start, clock, done } = begin((runtime, { body }) => {
      for (const name of ["agent", "other"])
        runtime.register(name, { durable: true }, (_input, { step }) =>
          step(name, body(name, 2_000), { limit: "narrow" }),
        );
    });
    const first = start();
    const holder = await create(first.runtime, "other");
    await clock.advance(100);
    const run = await create(first.runtime, "agent");
    await clock.advance(100);
    const last = await create(first.runtime, "other");
    await createAdmin(first.runtime).pause({ agent_name: "agent" }, { now: true });
    await clock.advance(10_000);
    expect([await statusOf(first, holder), await statusOf(first, last)]).toEqual(["completed", "completed"]);
    expect([await ownerOf(first, run), done.includes("agent begins")]).toEqual([null, false]);
    await createAdmin(first.runtime).resume({ agent_name: "agent" });
    await clock.advance(10_000);
    expect(await statusOf(first, run)).toBe("completed");
  });
});

/** Processes that end with their store: a run stays where it is. */
describe("pauses with `now` of a store that ends with its process", () => {
  const begin = (durability: DurabilityOptions = {}) => {
    const { runtime, clock, store } = setUp({ durability, stepLimits: { narrow: { max: 1 } } });
    const done: string[] = [];
    const body = (name: string, ms: number) => async (): Promise<void> => {
      done.push(name);
      await new Promise<void>((resolve) => clock.setTimeout(resolve, ms));
    };
    const statusOfRun = async (run_id: string) => (await runtime.getRun(run_id)).status;
    return { runtime, clock, store, done, body, admin: createAdmin(runtime), statusOfRun };
  };

  it("a run begins nothing until it is resumed", async () => {
    const { runtime, clock, done, body, admin, statusOfRun } = begin();
    runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
      await step("a", body("a", 1_000));
      await Promise.all([step("b", body("b", 1_000)), step("c", body("c", 1_000))]);
      await ask("Well?");
    });
    const run = await create(runtime, "agent");
    await clock.advance(100);
    await admin.pause({ tenant: "" }, { now: true });
    await clock.advance(10_000);
    expect(done).toEqual(["a"]);
    await admin.resume({ tenant: "" });
    await clock.advance(100);
    expect(done).toEqual(["a", "b", "c"]);
    await clock.advance(1_000);
    expect(await statusOfRun(run)).toBe("awaiting");
  });

  it("a run can be cancelled meanwhile, and begins nothing in its log", async () => {
    const { runtime, clock, store, body, admin, statusOfRun } = begin();
    runtime.register("agent", { durable: true }, async (_input, { step }) => {
      await step("a", body("a", 1_000));
      await step("b", body("b", 1_000));
    });
    const run = await create(runtime, "agent");
    await clock.advance(100);
    await admin.pause({ tenant: "" }, { now: true });
    await clock.advance(2_000);
    const { position = 0 } = (await store.find({ tenant: "", run_id: run })) ?? {};
    await runtime.cancel(run);
    await clock.advance(100);
    expect(await statusOfRun(run)).toBe("cancelled");
    expect((await store.find({ tenant: "", run_id: run }))?.position).toBe(position + 2);
  });

  it("the time in which a run is held does not count for its `timeoutMs`, and that of a step at work does", async () => {
    const { runtime, clock, body, admin, statusOfRun } = begin();
    runtime.register("held", { durable: true, timeoutMs: 5_000 }, async (_input, { step }) => {
      const attempt = async ({ attempt: n }: StepScope): Promise<void> => {
        await body("a", n === 1 ? 1_000 : 20_000)();
        if (n === 1) throw new Error("Not yet.");
      };
      await step("a", attempt, { retry: { attempts: 2 } });
    });
    runtime.register("works", { durable: true, timeoutMs: 5_000 }, async (_input, { step }) => {
      await Promise.all([
        step("a", body("a", 1_000)).then(() => step("b", body("b", 1))),
        step("c", body("c", 20_000)),
      ]);
    });
    const [held, works] = [await create(runtime, "held"), await create(runtime, "works")];
    await clock.advance(100);
    await admin.pause({ tenant: "" }, { now: true });
    await clock.advance(10_000);
    expect([await statusOfRun(held), await statusOfRun(works)]).toEqual(["in-progress", "failed"]);
    await admin.resume({ tenant: "" });
    await clock.advance(3_500);
    expect(await statusOfRun(held)).toBe("in-progress");
    await clock.advance(1_000);
    expect(await statusOfRun(held)).toBe("failed");
  });

  it("a run that is replayed meanwhile begins what waits once", async () => {
    const { runtime, clock, store, body, admin, statusOfRun } = begin({ alwaysReplay: true });
    runtime.register("other", { durable: true }, () => "");
    runtime.register("agent", { durable: true }, async (_input, { run, step }) => {
      await Promise.all([step("a", body("a", 500)).then(() => run("other", "")), step("c", body("c", 2_000))]);
    });
    const run = await create(runtime, "agent");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent" }, { now: true });
    await clock.advance(5_000);
    expect((await admin.runs({ agent_name: "other" })).items).toHaveLength(0);
    await admin.resume({ agent_name: "agent" });
    await clock.advance(2_000);
    expect(await statusOfRun(run)).toBe("completed");
    const log = (await store.read({ tenant: "", run_id: run }, 0, 1_000)) ?? [];
    expect(log.filter((entry) => entry.type === "intent" && entry.run_id !== null && !entry.stored)).toHaveLength(1);
  });

  it("an attempt that gets its permit while the run is held begins as the same attempt when it is resumed", async () => {
    const { runtime, clock, admin, body, statusOfRun } = begin();
    const attempts: number[] = [];
    for (const name of ["first", "second"])
      runtime.register(name, { durable: true }, async (_input, { step }) => {
        const noted = ({ attempt }: StepScope): Promise<void> => {
          attempts.push(attempt);
          return body(name, 1_000)();
        };
        await step(name, noted, { limit: "narrow" });
      });
    await create(runtime, "first");
    await clock.advance(100);
    const run = await create(runtime, "second");
    await clock.advance(100);
    await admin.pause({ agent_name: "second" }, { now: true });
    await clock.advance(5_000);
    expect(attempts).toEqual([1]);
    await admin.resume({ agent_name: "second" });
    await clock.advance(2_000);
    expect([await statusOfRun(run), ...attempts]).toEqual(["completed", 1, 1]);
  });
});

it("onAudit and the figures say that runs at work are released", async () => {
  const records: AuditRecord[] = [];
  const { runtime } = inMemory().start({ onAudit: (record) => void records.push(record) });
  const admin = createAdmin(runtime);
  await admin.pause({ tenant: "acme" });
  await admin.pause({ tenant: "acme" }, { now: true });
  expect(records).toMatchObject([{ action: "pause" }, { action: "pause", now: true, outcome: "done" }]);
  expect(records[0]).not.toHaveProperty("now");
  expect((await runtime.stats()).pauses).toMatchObject([{ tenant: "acme", now: true }]);
});

it.each([[{ now: 1 as never }], [{ soon: true } as never]])("the options %j are refused", async (options) => {
  const admin = createAdmin(inMemory().start().runtime);
  await expect(admin.pause({ agent_name: "a" }, options)).rejects.toMatchObject({ code: "invalid_argument" });
  expect(await admin.pauses()).toEqual([]);
});
