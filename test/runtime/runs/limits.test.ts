import { setImmediate as inNextTurn } from "node:timers/promises";
import type { AgentRuntime } from "cadenza";
import { expect, it } from "vitest";
import type { FakeClock } from "../../harness/clock.ts";
import { setUp } from "../../harness/runtimes.ts";
import { RUN_ONCE, TIMERS, unlessReplayed } from "../../harness/unless-replayed.ts";

const reply = { type: "message", message: { role: "user", parts: [{ content: "yes" }] } } as const;

/** Agents that say when they begin, and work for 100 ms. */
function atWork(): { runtime: AgentRuntime; clock: FakeClock; began: string[]; work: (name: string) => Promise<void> } {
  const { runtime, clock } = setUp();
  const began: string[] = [];
  const work = async (name: string): Promise<void> => {
    began.push(name);
    await new Promise<void>((resolve) => clock.setTimeout(resolve, 100));
  };
  return { runtime, clock, began, work };
}

async function create(runtime: AgentRuntime, agent_name: string, input: string, tenant = "", priority?: number) {
  const scope = tenant === "" ? runtime : runtime.scope({ tenant });
  return (await scope.createRun({ agent_name, input, mode: "async" }, { priority })).run_id;
}

unlessReplayed(RUN_ONCE)("agents that name the same limit share it, and each key has one of its own", async () => {
  const { runtime, clock, began, work } = atWork();
  for (const agent of ["one", "two", "three"])
    runtime.register(agent, { limits: [{ name: "customer", key: ({ tenant }) => tenant, max: 2 }] }, (input) =>
      work(`${agent} ${input[0]?.parts[0]?.content}`),
    );
  for (const agent of ["one", "two", "three"])
    for (const tenant of ["acme", "bolt"]) await create(runtime, agent, tenant, tenant);
  await clock.settle();
  expect(began).toEqual(["one acme", "one bolt", "two acme", "two bolt"]);
  await clock.advance(100);
  expect(began.slice(4)).toEqual(["three acme", "three bolt"]);
});

unlessReplayed(RUN_ONCE)("a run that lacks one of two limits holds none, and lets others pass", async () => {
  const { runtime, clock, began, work } = atWork();
  const both = [
    { name: "first", max: 1 },
    { name: "second", max: 1 },
  ];
  runtime.register("both", { limits: both }, () => work("both"));
  for (const limit of both) runtime.register(limit.name, { limits: [limit] }, () => work(limit.name));
  await create(runtime, "second", "");
  await create(runtime, "both", "");
  await create(runtime, "first", "");
  await clock.settle();
  expect(began).toEqual(["second", "first"]);
  await clock.advance(100);
  expect(began).toEqual(["second", "first", "both"]);
});

unlessReplayed(TIMERS)("a rate lets so many begin in any window, and counts a run once", async () => {
  const { runtime, clock } = setUp();
  const began: number[] = [];
  runtime.register(
    "rated",
    { limits: [{ name: "rate", rate: { count: 2, perMs: 1_000 } }] },
    async (_input, { ask }) => {
      began.push(clock.now());
      await ask("Well?");
    },
  );
  const start = clock.now();
  const ids: string[] = [];
  for (let n = 0; n < 5; n++) {
    ids.push(await create(runtime, "rated", ""));
    await clock.advance(100);
  }
  await runtime.resume({ run_id: ids[0] ?? "", await_resume: reply, mode: "async" });
  await clock.advance(2_500);
  expect(began.map((time) => time - start)).toEqual([0, 100, 1_000, 1_100, 2_000]);
  expect((await runtime.getRun(ids[0] ?? "")).status).toBe("completed");
});

unlessReplayed(RUN_ONCE)("runs of a higher priority begin first, and customers take turns within it", async () => {
  const { runtime, clock, began, work } = atWork();
  runtime.register("one", { concurrency: { max: 1 }, priority: ({ tenant }) => (tenant === "vip" ? 5 : 0) }, (input) =>
    work(input[0]?.parts[0]?.content ?? ""),
  );
  for (const name of ["a1", "a2", "a3", "a4"]) await create(runtime, "one", name, "a");
  await create(runtime, "one", "b1", "b");
  await create(runtime, "one", "v1", "vip");
  await create(runtime, "one", "b2", "b");
  await create(runtime, "one", "late", "a", -1);
  await create(runtime, "one", "urgent", "a", 10);
  await clock.advance(1_000);
  expect(began).toEqual(["a1", "urgent", "v1", "a2", "b1", "a3", "b2", "a4", "late"]);
});

unlessReplayed(RUN_ONCE)("fairBy says whose runs take turns", async () => {
  const { runtime, clock, began, work } = atWork();
  const fairBy = ({ labels }: { labels: { readonly [name: string]: string } }): string => labels["user"] ?? "";
  runtime.register("one", { concurrency: { max: 1 }, fairBy }, (input) => work(input[0]?.parts[0]?.content ?? ""));
  for (const [input, user] of [
    ["a1", "a"],
    ["a2", "a"],
    ["a3", "a"],
    ["b1", "b"],
  ] as const)
    await runtime.createRun({ agent_name: "one", input, mode: "async" }, { labels: { user } });
  await clock.advance(1_000);
  expect(began).toEqual(["a1", "a2", "b1", "a3"]);
});

it("a limit that says reject refuses a run that would wait", async () => {
  const { runtime, clock, work } = atWork();
  runtime.register("one", { limits: [{ name: "few", max: 1, whenFull: "reject" }] }, () => work(""));
  await create(runtime, "one", "");
  expect(await create(runtime, "one", "").catch((error: unknown) => error)).toMatchObject({
    code: "limit_reached",
    limit: "limits.few",
  });
  await clock.advance(200);
  await create(runtime, "one", "");
  await clock.advance(200);
});

it("a refusal names the limit for which the run would wait", async () => {
  const { runtime, clock, work } = atWork();
  const first = { name: "first", key: ({ tenant }: { tenant: string }) => `of/${tenant}`, max: 2 };
  const second = { name: "second", max: 1, whenFull: "reject" } as const;
  runtime.register("both", { limits: [second, first] }, () => work(""));
  runtime.register("own", { limits: [first], concurrency: { max: 1, whenFull: "reject" } }, () => work(""));
  const refusal = async (name: string): Promise<unknown> =>
    create(runtime, name, "", "a").then(
      () => "accepted",
      ({ code, limit }) => [code, limit],
    );
  expect(await refusal("both")).toBe("accepted");
  expect(await refusal("both")).toEqual(["limit_reached", "limits.second"]);
  expect(await refusal("own")).toBe("accepted");
  expect(await refusal("both")).toEqual(["limit_reached", "limits.first"]);
  expect(await refusal("own")).toEqual(["limit_reached", "limits.first"]);
  await clock.advance(200);
  expect(await refusal("own")).toBe("accepted");
  expect(await refusal("own")).toEqual(["limit_reached", "concurrency"]);
  await clock.advance(200);
});

it("a run that begins later is not refused, and waits when its time comes", async () => {
  const { runtime, clock, work } = atWork();
  runtime.register("one", { limits: [{ name: "few", max: 1, whenFull: "reject" }] }, () => work(""));
  await create(runtime, "one", "");
  const startAt = clock.now() + 10;
  const { run_id } = await runtime.createRun({ agent_name: "one", input: "", mode: "async" }, { startAt });
  await clock.advance(20);
  expect((await runtime.getRun(run_id)).status).toBe("created");
  await clock.advance(1_000);
  expect((await runtime.getRun(run_id)).status).toBe("completed");
});

unlessReplayed(RUN_ONCE)("a sub-run needs no permit of its limits", async () => {
  const { runtime, clock, began, work } = atWork();
  runtime.register("inner", { limits: [{ name: "few", max: 1 }] }, () => work("inner"));
  runtime.register("outer", async (_input, { run }) => void (await run("inner", "")));
  await create(runtime, "inner", "");
  await create(runtime, "outer", "");
  await clock.advance(50);
  expect(began).toEqual(["inner", "inner"]);
  await clock.advance(200);
});

it.each([
  ["limits", { limits: {} }],
  ["limits[0].name", { limits: [{ name: "no name", max: 1 }] }],
  [
    "limits[1].name",
    {
      limits: [
        { name: "twice", max: 1 },
        { name: "twice", max: 2 },
      ],
    },
  ],
  ["limits[0]", { limits: [{ name: "none" }] }],
  ["limits[0]", { limits: [{ name: "all", max: Number.POSITIVE_INFINITY }] }],
  ["limits[0].max", { limits: [{ name: "zero", max: 0 }] }],
  ["limits[0].rate.count", { limits: [{ name: "rate", rate: { count: 0, perMs: 1 } }] }],
  ["limits[0].rate", { limits: [{ name: "rate", rate: { count: 1, perMs: 0 } }] }],
  ["limits[0].key", { limits: [{ name: "key", max: 1, key: "tenant" }] }],
  ["limits[0].whenFull", { limits: [{ name: "full", max: 1, whenFull: "wait" }] }],
  ["limits", { limits: [{ name: "few", max: 1 }], concurrency: { max: 1, per: "process" } }],
  ["priority", { priority: 11 }],
  ["priority", { priority: 0.5 }],
  ["fairBy", { fairBy: "tenant" }],
] as const)("refuses the option %s of an agent where it is %o", (name, options) => {
  const { runtime } = setUp();
  const register = () => runtime.register("agent", options as never, () => "");
  expect(register).toThrow(
    expect.objectContaining({ code: "invalid_argument", message: expect.stringContaining(`options.${name}: `) }),
  );
});

it.each([
  ["gives no text", () => 7],
  ["gives a long text", () => "x".repeat(256)],
  ["gives a promise", async () => "later"],
  [
    "throws",
    () => {
      throw new Error("no");
    },
  ],
])("a run is refused whose key %s", async (_how, key) => {
  const { runtime } = setUp();
  runtime.register("agent", { limits: [{ name: "few", max: 1, key: key as never }] }, () => "");
  expect(await create(runtime, "agent", "").catch((error: unknown) => error)).toMatchObject({
    code: "invalid_argument",
  });
});

it("a run is refused whose priority is none", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { priority: () => Number.NaN }, () => "");
  expect(await create(runtime, "agent", "").catch((error: unknown) => error)).toMatchObject({
    code: "invalid_argument",
  });
  expect(await create(runtime, "agent", "", "", 12).catch((error: unknown) => error)).toMatchObject({
    code: "invalid_argument",
  });
});

it("what a function of limits does to its argument does not reach the run", async () => {
  const { runtime } = setUp();
  const fairBy = ({ labels, input }: { labels: object; input: readonly { parts: readonly object[] }[] }): string => {
    Object.assign(labels, { added: "1" });
    Object.assign(input[0]?.parts[0] ?? {}, { content: "changed" });
    return "";
  };
  runtime.register(
    "one",
    { fairBy },
    (input, { labels }) => `${input[0]?.parts[0]?.content} ${JSON.stringify(labels)}`,
  );
  const run = await runtime.createRun({ agent_name: "one", input: "as it was" }, { labels: { own: "1" } });
  expect(run.output[0]?.parts[0]?.content).toBe('as it was {"own":"1"}');
});

it("a promise of a function of limits is refused, and its failure ends no process", async () => {
  const { runtime } = setUp();
  const unhandled: unknown[] = [];
  const listener = (error: unknown): unknown => unhandled.push(error);
  process.on("unhandledRejection", listener);
  runtime.register("one", { fairBy: (() => Promise.reject(new Error("no"))) as never }, () => "");
  await expect(runtime.createRun({ agent_name: "one", input: "" })).rejects.toMatchObject({ code: "invalid_argument" });
  await inNextTurn();
  process.off("unhandledRejection", listener);
  expect(unhandled).toEqual([]);
});
