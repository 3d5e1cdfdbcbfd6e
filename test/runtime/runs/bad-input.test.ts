import type { RuntimeOptions } from "cadenza";
import { AgentError, AgentRuntime, awaitMessage, CadenzaError, defineAgent, MemoryStore } from "cadenza";
import { describe, expect, it } from "vitest";
import { refusal, runAgent, setUp, snapshot } from "../../harness/runtimes.ts";

const UNKNOWN = "00000000-0000-4000-8000-000000000000";
const cycle: { self?: unknown } = {};
cycle.self = cycle;

/** An argument of a wrong type. */
type Anything = never;
const as = (value: unknown): Anything => value as Anything;

/** What is no number of slots. */
const noSlots: readonly unknown[] = [0, -1, 1.5, Number.NaN, "2"];

/** A call, and the texts in its error: the argument, what was expected, what was found. */
type Row = readonly [
  call: string,
  make: (runtime: AgentRuntime, run_id: string) => unknown,
  ...says: readonly string[],
];

function named(rows: readonly Row[]) {
  return rows.map(([call, make, ...says]) => ({ call, make, says }));
}

const create =
  (request: unknown, ...options: unknown[]) =>
  (runtime: AgentRuntime) =>
    runtime.createRun(as(request), ...(options as Anything[]));
const good = { agent_name: "asks", input: "x" };

const creating: readonly Row[] = [
  ["createRun()", create(undefined), "request", "an object", "undefined"],
  ["createRun(null)", create(null), "request", "an object", "null"],
  ["createRun(a text)", create("asks"), "request", "an object", '"asks"'],
  ["createRun(a list)", create([]), "request", "an object", "an array"],
  ["createRun without an agent", create({ input: "x" }), "agent_name", "a string", "undefined"],
  ["createRun with an empty name", create({ ...good, agent_name: "" }), "agent_name", "not empty", '""'],
  ["createRun with a number for a name", create({ ...good, agent_name: 5 }), "agent_name", "a string", "5"],
  ["createRun without input", create({ agent_name: "asks" }), "input", "a string, a part or a message", "undefined"],
  ["createRun with null for input", create({ ...good, input: null }), "input", "a string", "null"],
  ["createRun with a number for input", create({ ...good, input: 5 }), "input", "a string", "5"],
  ["createRun with null in its input", create({ ...good, input: ["a", null] }), "input[1]", "a string", "null"],
  ["createRun with a number in its input", create({ ...good, input: [5] }), "input[0]", "a string", "5"],
  ["createRun with a gap in its input", create({ ...good, input: new Array(1) }), "input[0]", "a string", "undefined"],
  [
    "createRun with a gap in the parts of a message",
    create({ ...good, input: [{ parts: Object.assign(new Array(2), { 1: { content: "a" } }) }] }),
    "input[0].parts[0]",
  ],
  ["createRun with a list in its input", create({ ...good, input: [["a"]] }), "input[0]", "object", "array"],
  [
    "createRun with a bad role",
    create({ ...good, input: { role: "system", parts: [] } }),
    "input.role",
    "agent/<name>",
  ],
  ["createRun with a bad part", create({ ...good, input: [{ parts: [{ content: 1 }] }] }), "input[0].parts[0].content"],
  [
    "createRun with many bad parts",
    create({ ...good, input: [{ parts: [{ content: "a" }, ...Array.from({ length: 9 }, () => 5)] }] }),
    "input[0].parts[1]: Invalid input: expected object, received number.",
  ],
  [
    "createRun with a part of both kinds",
    create({ ...good, input: { content: "a", content_url: "https://example.org" } }),
    "input.content_url",
    "either",
  ],
  ["createRun with a cycle in its input", create({ ...good, input: { content: "a", cycle } }), "input", "JSON"],
  ["createRun with a bigint in its input", create({ ...good, input: { content: "a", n: 1n } }), "input", "JSON"],
  ["createRun with a bad session", create({ ...good, session_id: "abc" }), "session_id", "UUID"],
  ["createRun with a number for a session", create({ ...good, session_id: 5 }), "session_id", "a UUID", "5"],
  ["createRun with a bad mode", create({ ...good, mode: "later" }), "mode", "sync"],
  ["createRun with bad options", create(good, "x"), "options", "an object", '"x"'],
  ["createRun with null for options", create(good, null), "options", "an object", "null"],
  ["createRun with an unknown option", create(good, { timeout: 5 }), "options", '"timeout"', "timeoutMs"],
  [
    "createRun with an empty key",
    create(good, { idempotencyKey: "" }),
    "options.idempotencyKey",
    "1 to 255 characters",
    '""',
  ],
  ["createRun with a bad signal", create(good, { signal: {} }), "options.signal", "AbortSignal", "an object"],
  ["createRun with a bad time-out", create(good, { timeoutMs: -1 }), "options.timeoutMs", "from 0", "-1"],
  ["createRun with NaN for a time-out", create(good, { timeoutMs: Number.NaN }), "options.timeoutMs", "NaN"],
  ["createRun of an unknown agent", create({ ...good, agent_name: "missing" }), "missing"],
];

const resume =
  (request: object, ...options: unknown[]) =>
  (runtime: AgentRuntime, run_id: string) =>
    runtime.resume({ run_id, await_resume: {}, ...request } as Anything, ...(options as Anything[]));

const asking: readonly Row[] = [
  ["resume()", (runtime) => runtime.resume(as(undefined)), "request", "an object", "undefined"],
  ["resume without a run", resume({ run_id: undefined }), "run_id", "a UUID", "undefined"],
  ["resume with a bad run", resume({ run_id: "abc" }), "run_id", "UUID"],
  ["resume of an unknown run", resume({ run_id: UNKNOWN }), UNKNOWN],
  [
    "resume without an answer",
    resume({ await_resume: undefined }),
    "await_resume",
    "a message or an object",
    "undefined",
  ],
  ["resume with a text", resume({ await_resume: "yes" }), "await_resume", "an object", '"yes"'],
  ["resume with a list", resume({ await_resume: [] }), "await_resume", "an object", "an array"],
  ["resume with a date", resume({ await_resume: new Date(0) }), "await_resume", "an object", "a Date"],
  ["resume with a message of none", resume({ await_resume: { type: "message" } }), "await_resume.message", "expected"],
  ["resume with a bad message", resume({ await_resume: { message: { parts: [5] } } }), "await_resume.message.parts[0]"],
  ["resume with a cycle", resume({ await_resume: cycle }), "await_resume", "JSON"],
  ["resume with a bad await_id", resume({ await_id: 5 }), "await_id", "a string", "5"],
  ["resume with a bad mode", resume({ mode: 5 }), "mode"],
  ["resume with an unknown option", resume({}, { timeoutMs: 5 }), "options", '"timeoutMs"', "idempotencyKey"],
  ["resume with null for options", resume({}, null), "options", "an object", "null"],
  ["cancel()", (runtime) => runtime.cancel(as(undefined)), "run_id", "a UUID", "undefined"],
  ["cancel of an object", (runtime) => runtime.cancel(as({ run_id: UNKNOWN })), "run_id", "a UUID", "an object"],
  ["cancel of a bad id", (runtime) => runtime.cancel("abc"), "run_id", "UUID"],
  ["getRun()", (runtime) => runtime.getRun(as(null)), "run_id", "a UUID", "null"],
  ["getRun of an unknown run", (runtime) => runtime.getRun(UNKNOWN), UNKNOWN],
  ["events()", (runtime) => runtime.events(as(undefined)), "run_id", "a UUID", "undefined"],
  [
    "events with a bad end",
    (runtime, id) => runtime.events(id, as({ until: "later" })),
    "options.until",
    '"rest"',
    '"later"',
  ],
  [
    "events after a text",
    (runtime, id) => runtime.events(id, as({ after: "3" })),
    "options.after",
    "a whole number",
    '"3"',
  ],
  ["events after -1", (runtime, id) => runtime.events(id, { after: -1 }), "options.after", "from 0", "-1"],
  ["events with an unknown option", (runtime, id) => runtime.events(id, as({ from: 3 })), "options", '"from"', "after"],
  ["events with null for options", (runtime, id) => runtime.events(id, as(null)), "options", "an object", "null"],
  ["listRuns(null)", (runtime) => runtime.listRuns(as(null)), "query", "an object", "null"],
  [
    "listRuns with a gap in its statuses",
    (runtime) => runtime.listRuns({ status: new Array(1) }),
    "query.status[0]: Invalid option",
  ],
  [
    "listRuns with an unknown key",
    (runtime) => runtime.listRuns(as({ agent: "asks" })),
    "query",
    '"agent"',
    "agent_name",
  ],
  [
    "listRuns with a bad agent",
    (runtime) => runtime.listRuns(as({ agent_name: 5 })),
    "query.agent_name",
    "a string",
    "5",
  ],
  ["listRuns with a bad status", (runtime) => runtime.listRuns(as({ status: "done" })), "query.status"],
  [
    "listRuns with bad roots",
    (runtime) => runtime.listRuns(as({ roots: "no" })),
    "query.roots",
    "true or false",
    '"no"',
  ],
  ["listRuns with a bad session", (runtime) => runtime.listRuns({ session_id: "abc" }), "query.session_id", "UUID"],
  ["listRuns with a bad limit", (runtime) => runtime.listRuns({ limit: -1 }), "query.limit", "from 0", "-1"],
  ["listRuns with half a limit", (runtime) => runtime.listRuns({ limit: 1.5 }), "query.limit", "whole", "1.5"],
  ["listRuns with a bad offset", (runtime) => runtime.listRuns(as({ offset: "1" })), "query.offset", "number", '"1"'],
  ["getAgent()", (runtime) => runtime.getAgent(as(undefined)), "name", "a string", "undefined"],
  ["getAgent of a missing one", (runtime) => runtime.getAgent("missing"), "missing"],
  ["getSession()", (runtime) => runtime.getSession(as(undefined)), "session_id", "a UUID", "undefined"],
  ["getSession of an unknown one", (runtime) => runtime.getSession(UNKNOWN), UNKNOWN],
  ["close(null)", (runtime) => runtime.close(as(null)), "options", "an object", "null"],
  ["close with a bad time", (runtime) => runtime.close(as({ drainMs: "1" })), "options.drainMs", "a number", '"1"'],
  ["close with an unknown option", (runtime) => runtime.close(as({ drain: 1 })), "options", '"drain"', "drainMs"],
];

describe("a bad argument", () => {
  describe.each(named([...creating, ...asking]))("of $call", ({ make, says }) => {
    it("rejects with an error that names it, and changes nothing", async () => {
      const { runtime } = setUp();
      const { run_id } = await runAgent(runtime, () => "ended");
      runtime.register("asks", (_input, { ask }) => ask("?"));
      const asks = await runtime.createRun(good);
      const before = await snapshot(runtime);

      const call = make(runtime, asks.run_id);
      const error = await refusal(call as Promise<unknown>);
      for (const said of says) expect(error.message).toContain(said);
      if (error.code === "invalid_argument") expect(error.issues?.length).toBeGreaterThan(0);
      expect(await snapshot(runtime)).toEqual(before);
      expect(await runtime.getRun(run_id)).toMatchObject({ status: "completed" });
    });
  });

  it.each(named(creating.slice(4)))("of $call rejects the first next of a stream", async ({ make, says }) => {
    const { runtime } = setUp();
    runtime.register("asks", (_input, { ask }) => ask("?"));
    const before = await snapshot(runtime);
    const streaming = new Proxy(runtime, {
      get: (target, name) =>
        name === "createRun"
          ? (request: object, options: unknown) =>
              target.createRun(
                { mode: "stream", ...request } as Anything,
                ...((options === undefined ? [] : [options]) as Anything[]),
              )
          : undefined,
    });
    const error = await refusal(make(streaming, "") as AsyncIterator<unknown>);
    for (const said of says) expect(error.message).toContain(said);
    expect(await snapshot(runtime)).toEqual(before);
  });

  const fn = (): string => "ok";
  const synchronous: readonly Row[] = [
    ["register()", (runtime) => runtime.register(as(undefined)), "agent", "an object", "undefined"],
    ["register(an object)", (runtime) => runtime.register(as({})), "name", "undefined"],
    ["register without a function", (runtime) => runtime.register("a", as(undefined)), "fn", "a function", "undefined"],
    ["register with options only", (runtime) => runtime.register("a", as({})), "fn", "a function", "an object"],
    ["register with a bad name", (runtime) => runtime.register("a b", fn), "name", "1 to 63", '"a b"'],
    ["register with a long name", (runtime) => runtime.register("a".repeat(64), fn), "name", "64 characters"],
    [
      "register with null for options",
      (runtime) => runtime.register("a", as(null), fn),
      "options",
      "an object",
      "null",
    ],
    [
      "register with an unknown option",
      (runtime) => runtime.register("a", as({ descr: "" }), fn),
      "options",
      '"descr"',
      "description",
    ],
    [
      "register with a bad description",
      (runtime) => runtime.register("a", as({ description: 5 }), fn),
      "options.description",
      "a string",
      "5",
    ],
    [
      "register with bad metadata",
      (runtime) => runtime.register("a", as({ metadata: { tags: "x" } }), fn),
      "options.metadata.tags",
    ],
    [
      "register with an empty version",
      (runtime) => runtime.register("a", { version: "" }, fn),
      "options.version",
      "1 to 128 characters",
      '""',
    ],
    [
      "register with a bad durable",
      (runtime) => runtime.register("a", as({ durable: 1 }), fn),
      "options.durable",
      "true or false",
      "1",
    ],
    [
      "register with a bad time-out",
      (runtime) => runtime.register("a", { timeoutMs: -5 }, fn),
      "options.timeoutMs",
      "from 0",
      "-5",
    ],
    [
      "register with no content types",
      (runtime) => runtime.register("a", { inputContentTypes: [] }, fn),
      "options.inputContentTypes",
      "not empty",
    ],
    [
      "register with a gap in its content types",
      (runtime) => runtime.register("a", { inputContentTypes: new Array(1) }, fn),
      "options.inputContentTypes",
    ],
    [
      "register with bad content types",
      (runtime) => runtime.register("a", as({ outputContentTypes: "x" }), fn),
      "options.outputContentTypes",
      "a list",
    ],
    [
      "register with bad concurrency",
      (runtime) => runtime.register("a", as({ concurrency: 5 }), fn),
      "options.concurrency",
      "an object",
      "5",
    ],
    ...noSlots.map(
      (max): Row => [
        `register with ${String(max)} slots`,
        (runtime) => runtime.register("a", as({ concurrency: { max } }), fn),
        "options.concurrency.max",
        "a whole number from 1 to Infinity",
      ],
    ),
    [
      "register with a bad scope of slots",
      (runtime) => runtime.register("a", as({ concurrency: { max: 1, per: "run" } }), fn),
      "options.concurrency.per",
      '"agent"',
      '"run"',
    ],
    [
      "register with a bad answer when full",
      (runtime) => runtime.register("a", as({ concurrency: { max: 1, whenFull: "x" } }), fn),
      "whenFull",
      '"queue"',
      '"x"',
    ],
    [
      "register with an unknown key of concurrency",
      (runtime) => runtime.register("a", as({ concurrency: { max: 1, limit: 2 } }), fn),
      "options.concurrency",
      '"limit"',
    ],
    [
      "register with a bad replace",
      (runtime) => runtime.register("a", as({ replace: "yes" }), fn),
      "options.replace",
      "true or false",
      '"yes"',
    ],
    [
      "register of a value with unknown options",
      (runtime) => runtime.register(defineAgent("a", fn), as({ name: "b" })),
      "options",
      '"name"',
      "replace",
    ],
    ["register of a name that is registered", (runtime) => runtime.register("asks", fn), "asks", "version"],
    ["defineAgent()", () => defineAgent(as(undefined), fn), "name", "undefined"],
    ["defineAgent without a function", () => defineAgent("a", as("x")), "fn", "a function", '"x"'],
    ["on with a bad type", (runtime) => runtime.on(as("run.done"), fn), "type", "run.completed", '"run.done"'],
    [
      "on without a listener",
      (runtime) => runtime.on("run.completed", as(undefined)),
      "listener",
      "a function",
      "undefined",
    ],
    ["once with a bad type", (runtime) => runtime.once(as(undefined), fn), "type", "undefined"],
    [
      "once without a listener",
      (runtime) => runtime.once("run.completed", as({})),
      "listener",
      "a function",
      "an object",
    ],
    ["off with a bad type", (runtime) => runtime.off(as(5), fn), "type", "5"],
    ["off without a listener", (runtime) => runtime.off("run.completed", as(null)), "listener", "a function", "null"],
    ["scope(null)", (runtime) => runtime.scope(as(null)), "options", "an object", "null"],
    [
      "scope with a bad tenant",
      (runtime) => runtime.scope(as({ tenant: 5 })),
      "options.tenant",
      "a string of 1 to 128 characters",
      "5",
    ],
    ["scope with a bad principal", (runtime) => runtime.scope(as({ principal: cycle })), "options.principal", "JSON"],
    [
      "scope with an unknown option",
      (runtime) => runtime.scope(as({ tennant: "a" })),
      "options",
      '"tennant"',
      "tenant",
    ],
  ];

  it.each(named(synchronous))("of $call throws an error that names it, and changes nothing", async ({ make, says }) => {
    const { runtime } = setUp();
    runtime.register("asks", (_input, { ask }) => ask("?"));
    const before = { ...(await snapshot(runtime)), agents: await runtime.listAgents() };
    let error: unknown;
    try {
      make(runtime, "");
    } catch (thrown) {
      error = thrown;
    }
    expect(CadenzaError.is(error)).toBe(true);
    for (const said of says) expect((error as CadenzaError).message).toContain(said);
    expect({ ...(await snapshot(runtime)), agents: await runtime.listAgents() }).toEqual(before);
  });

  it.each<[title: string, options: unknown, ...says: readonly string[]]>([
    ["null", null, "options", "an object", "null"],
    ["a text", "x", "options", "an object", '"x"'],
    ["an unknown option", { stores: 1 }, "options", '"stores"', "store"],
    ["an invalid store", { store: {} }, "options.store", "a method create"],
    ["an invalid clock", { clock: Date }, "options.clock"],
    ["invalid ids", { ids: { uuid: () => "x" } }, "options.ids", "a method token"],
    ["an invalid logger", { logger: {} }, "options.logger", "a method debug"],
    ["a bad exposeErrors", { exposeErrors: "yes" }, "options.exposeErrors", "true or false", '"yes"'],
    ["a bad time-out", { timeoutMs: "5s" }, "options.timeoutMs", "a number", '"5s"'],
    ["a bad deadline", { awaitTimeoutMs: -1 }, "options.awaitTimeoutMs", "from 0", "-1"],
    ["a bad grace period", { cancelGraceMs: Number.NaN }, "options.cancelGraceMs", "NaN"],
    ["bad limits", { limits: 5 }, "options.limits", "an object", "5"],
    ["an unknown limit", { limits: { maxRuns: 5 } }, "options.limits", '"maxRuns"', "maxLiveRuns"],
    ["a bad limit", { limits: { maxPartBytes: "1MB" } }, "options.limits.maxPartBytes", "a whole number", '"1MB"'],
    ["half a run", { limits: { maxLiveRuns: 1.5 } }, "options.limits.maxLiveRuns", "a whole number", "1.5"],
    ["bad limits of tenants", { limits: { perTenant: 5 } }, "options.limits.perTenant", "an object", "5"],
    ["an unknown limit of tenants", { limits: { perTenant: { runs: 5 } } }, "perTenant", '"runs"', "liveRuns"],
    ["a bad limit of tenants", { limits: { perTenant: { readers: -1 } } }, "options.limits.perTenant.readers", "-1"],
    ["bad retention", { retention: [] }, "options.retention", "an object", "an array"],
    ["a bad retention", { retention: { maxRuns: -1 } }, "options.retention.maxRuns", "from 0", "-1"],
    [
      "a retention of half a run",
      { retention: { maxRuns: 0.5 } },
      "options.retention.maxRuns",
      "a whole number",
      "0.5",
    ],
    ["half a session", { limits: { perTenant: { sessions: 2.5 } } }, "perTenant.sessions", "a whole number", "2.5"],
  ])("of new AgentRuntime with %s throws an error that names it", (_title, options, ...says) => {
    let error: unknown;
    try {
      new AgentRuntime(options as RuntimeOptions);
    } catch (thrown) {
      error = thrown;
    }
    expect(CadenzaError.is(error)).toBe(true);
    expect((error as CadenzaError).code).toBe("invalid_argument");
    for (const said of says) expect((error as CadenzaError).message).toContain(said);
  });

  it("every option may be given as undefined", async () => {
    const nothing = {
      store: undefined,
      retention: undefined,
      limits: undefined,
      timeoutMs: undefined,
      awaitTimeoutMs: undefined,
      cancelGraceMs: undefined,
      exposeErrors: undefined,
      logger: undefined,
      clock: undefined,
      ids: undefined,
    };
    const runtime = new AgentRuntime(nothing);
    runtime.register("agent", { description: undefined, concurrency: undefined, version: undefined }, () => "ok");
    const options = { idempotencyKey: undefined, signal: undefined, timeoutMs: undefined };
    const run = await runtime.createRun({ agent_name: "agent", input: "x", session_id: undefined }, options);
    expect(run.status).toBe("completed");
    await runtime.close();
    expect(new MemoryStore().persistent).toBe(false);
  });
});

describe("ids of a host", () => {
  const create = (uuid: () => string) =>
    new AgentRuntime({ ids: { uuid, token: () => "owner" } })
      .register("agent", () => "ok")
      .createRun({ agent_name: "agent", input: "x" });

  it("are kept as UUIDs in lower case", async () => {
    const run = await create(() => "0000000000004000800000000000ABCD");
    expect(run.run_id).toBe("00000000-0000-4000-8000-00000000abcd");
  });

  it.each([["run-1"], [undefined]])("that are no UUIDs are refused: %o", async (id) => {
    const error = await create(() => id as string).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "invalid_argument", message: expect.stringContaining("options.ids.uuid()") });
  });
});

describe("a bad argument of the context", () => {
  it.each<
    [
      title: string,
      call: (context: Parameters<Parameters<typeof runAgent>[1]>[1]) => unknown,
      ...says: readonly string[],
    ]
  >([
    ["ask without a question", ({ ask }) => ask(as(undefined)), "question", "undefined"],
    ["ask with a bad message", ({ ask }) => ask(as({ parts: 5 })), "question.parts"],
    ["ask with an unknown option", ({ ask }) => ask("?", as({ timeout: 5 })), "options", '"timeout"', "timeoutMs"],
    ["ask with null for options", ({ ask }) => ask("?", as(null)), "options", "an object", "null"],
    ["ask with a bad time-out", ({ ask }) => ask("?", { timeoutMs: -1 }), "options.timeoutMs", "from 0", "-1"],
    ["ask with a bad schema", ({ ask }) => ask("?", as({ schema: 5 })), "options.schema", "a Standard Schema", "5"],
    ["step without a name", ({ step }) => step(as(undefined), () => 1), "step name", "a string", "undefined"],
    ["step without a function", ({ step }) => step("a", as(undefined)), "step function", "a function", "undefined"],
    [
      "step with an unknown option",
      ({ step }) => step("a", () => 1, as({ retries: 5 })),
      "options",
      '"retries"',
      "retry",
    ],
    ["step with null for options", ({ step }) => step("a", () => 1, as(null)), "options", "an object", "null"],
    [
      "step with no attempts",
      ({ step }) => step("a", () => 1, { retry: { attempts: 0 } }),
      "options.retry.attempts",
      "from 1",
      "0",
    ],
    [
      "step with a bad time-out",
      ({ step }) => step("a", () => 1, { timeoutMs: -1 }),
      "options.timeoutMs",
      "from 0",
      "-1",
    ],
    ["step with null for retry", ({ step }) => step("a", () => 1, { retry: as(null) }), "options.retry", "an object"],
    [
      "step with an unknown option of retry",
      ({ step }) => step("a", () => 1, { retry: as({ attempts: 2, backoff: 5 }) }),
      "options.retry",
      '"backoff"',
      "backoffMs",
    ],
    [
      "step with an endless back-off",
      ({ step }) => step("a", () => 1, { retry: { attempts: 2, backoffMs: Number.POSITIVE_INFINITY } }),
      "options.retry.backoffMs",
      "a finite number from 0",
      "Infinity",
    ],
    [
      "step with a back-off that shrinks",
      ({ step }) => step("a", () => 1, { retry: { attempts: 2, factor: 0.5 } }),
      "options.retry.factor",
      "from 1",
      "0.5",
    ],
    [
      "step with a bad limit of the back-off",
      ({ step }) => step("a", () => 1, { retry: { attempts: 2, maxBackoffMs: Number.NaN } }),
      "options.retry.maxBackoffMs",
      "from 0",
      "NaN",
    ],
    [
      "step with a bad function for when",
      ({ step }) => step("a", () => 1, { retry: { attempts: 2, when: as(true) } }),
      "options.retry.when",
      "a function",
      "true",
    ],
    ["run without an agent", ({ run }) => run(as(undefined), "x"), "agent_name", "a string", "undefined"],
    ["run without input", ({ run }) => run("agent", as(undefined)), "input", "undefined"],
    ["emit of a number", ({ emit }) => emit(5), "5"],
    ["setState of nothing", ({ session }) => session.setState(as(undefined)), "state", "a JSON value", "undefined"],
  ])("%s rejects with an error that names it", async (_title, call, ...says) => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async (_input, context) => {
      let calling: unknown;
      expect(() => {
        calling = call(context);
      }).not.toThrow();
      const error = await refusal(calling as Promise<unknown>);
      for (const said of says) expect(error.message).toContain(said);
      return "went on";
    });
    expect(run).toMatchObject({ status: "completed", error: null });
  });

  it("awaitMessage with a bad message fails the run, and says what was expected", async () => {
    for (const message of [undefined, null, 5, { parts: 5 }, {}]) {
      const { runtime } = setUp();
      const run = await runAgent(runtime, async function* () {
        yield awaitMessage(as(message));
      });
      expect(run).toMatchObject({ status: "failed", error: { message: expect.stringContaining("question") } });
    }
  });
});

describe("a value that throws when it is read", () => {
  const secret = (): never => {
    throw new Error("the password of the database is 1234");
  };
  const { proxy: revoked, revoke } = Proxy.revocable({}, {});
  revoke();
  const values: Readonly<Record<string, unknown>> = {
    "a revoked proxy": revoked,
    "a getter": {
      get content() {
        return secret();
      },
    },
    toJSON: { content: "x", name: { toJSON: secret } },
  };

  it.each(Object.keys(values))("is refused, never thrown at once: %s", async (name) => {
    const { runtime, run_id } = await waiting();
    const value = values[name];
    const calls: readonly (() => unknown)[] = [
      () => runtime.createRun(as(value)),
      () => runtime.createRun(as({ ...good, input: [value] })),
      () => runtime.createRun(as(good), as({ metadata: value })),
      () => runtime.createRun(as(good), as({ signal: value })),
      () => runtime.resume(as(value)),
      () => runtime.resume(as({ run_id, await_resume: value })),
      () => runtime.send(as(value)),
      () => runtime.send(as({ to: run_id, name: "m", data: value })),
    ];
    for (const call of calls) {
      const called = call() as Promise<unknown>;
      expect(await refusal(called)).toMatchObject({ code: "invalid_argument" });
    }
    expect((await runtime.getRun(run_id)).status).toBe("awaiting");
    await runtime.close();
  });

  it.each(Object.keys(values))("tells the client nothing of the error when an agent yields it: %s", async (name) => {
    const run = await runAgent(setUp().runtime, function* () {
      yield values[name];
    });
    expect(run.status).toBe("failed");
    expect(JSON.stringify(run.error)).not.toContain("password");
  });

  async function waiting() {
    const { runtime } = setUp();
    runtime.register("asks", (_input, { ask }) => ask("?").then(() => "x"));
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
    return { runtime, run_id };
  }

  it("is no field of an error that the client sees", async () => {
    const run = await runAgent(setUp().runtime, () => {
      throw Object.assign(new AgentError("x", "y"), { code: revoked });
    });
    expect(run.error).toMatchObject({ code: "server_error", data: { reason: "agent_failed" } });
  });

  it.each([2_000, 4_000, 20_000])(
    "is not emitted when it is nested %s deep, since a replay compares it",
    async (depth) => {
      let deep: unknown = [];
      for (let level = 0; level < depth; level++) deep = [deep];
      for (const value of [{ deep }, { content: "x", deep }]) {
        const run = await runAgent(setUp().runtime, () => value);
        expect(run).toMatchObject({ status: "failed", error: { data: { reason: "invalid_yield" } } });
      }
    },
  );
});
