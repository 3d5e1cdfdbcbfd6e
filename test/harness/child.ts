import { AgentError, AgentRuntime } from "cadenza";

/*
 * Scenarios for a process of their own, since they may end it. The parameter is the name of a scenario.
 */

const never = (): Promise<never> => new Promise(() => {});

/** Agents that handle no promise of the library, and end or are ended in every way. */
async function hostile(): Promise<void> {
  let unhandled = 0;
  process.on("unhandledRejection", (error) => {
    unhandled += 1;
    process.stdout.write(`${String(error)}\n`);
  });
  const runtime = new AgentRuntime({ cancelGraceMs: 20, timeoutMs: 100, awaitTimeoutMs: 30 });
  runtime.on("run.created", () => Promise.reject(new Error("a listener rejected")));
  runtime.register("child", () => {
    throw new AgentError("not_found", "gone");
  });
  runtime.register("floats", async (input, { ask, step, sleep, receive, run, emit, session }) => {
    void ask("?");
    void ask("?", { timeoutMs: 5, default: 1 as unknown as undefined });
    void step("fails", () => Promise.reject(new Error("in a step")));
    void step("emits", (body) => void body.emit(5));
    void sleep("soon");
    void receive("none", { timeoutMs: 0 });
    void run("missing", "x");
    void run("child", "x");
    void emit(5);
    void session.setState(1n as unknown as string);
    if (input.length > 0) throw new Error("at once");
    await never();
  });
  runtime.register("finally", async function* () {
    try {
      yield "a";
      await never();
    } finally {
      yield Promise.reject(new Error("in finally"));
    }
  });
  runtime.register("rejects", function* () {
    yield Promise.reject(new Error("yielded"));
  });
  const names = ["floats", "finally", "rejects", "child"];
  const runs = names.flatMap((agent_name) => [
    runtime.createRun({ agent_name, input: "x" }),
    runtime.createRun({ agent_name, input: [] }),
    runtime.createRun({ agent_name, input: [] }, { signal: AbortSignal.timeout(1) }).catch(() => undefined),
  ]);
  // These streams have no reader.
  for (const agent_name of names) runtime.createRun({ agent_name, input: "x", mode: "stream" });
  runtime.createRun({ agent_name: "missing", input: "x", mode: "stream" });
  for (const { run_id } of await runtime.listRuns()) runtime.cancel(run_id).catch(() => undefined);
  await Promise.all(runs);
  await new Promise((resolve) => setTimeout(resolve, 300));
  const { live } = await runtime.stats();
  process.stdout.write(
    `${Object.keys(live).length === 0 ? "all ended" : JSON.stringify(live)}, ${unhandled} unhandled\n`,
  );
}

/** An agent whose own code does not handle a rejection. */
async function floating(): Promise<void> {
  const runtime = new AgentRuntime();
  runtime.register("agent", async () => {
    void Promise.reject(new Error("the agent left this one"));
    return "ok";
  });
  await runtime.createRun({ agent_name: "agent", input: "x" });
  await new Promise((resolve) => setTimeout(resolve, 50));
  process.stdout.write("went on\n");
}

/** So deep a tree, on a stack of 200 kB, is as one of 5,000 levels on the stack that a process has by default. */
const DEPTH = 1_000;

/** Trees of runs that are deep for the stack, and are cancelled and closed. */
async function deep(): Promise<void> {
  const limits = { maxDepth: Number.POSITIVE_INFINITY };
  for (const ends of ["cancelled", "closed", "closed while it asks"]) {
    const runtime = new AgentRuntime({ limits });
    let reachBottom = (): void => {};
    const bottom = new Promise<void>((resolve) => {
      reachBottom = resolve;
    });
    runtime.register("deep", async (input, { ask, run }) => {
      const left = Number(input[0]?.parts[0]?.content);
      if (left > 0) return String((await run("deep", String(left - 1))).status);
      reachBottom();
      return ends === "closed" ? never() : JSON.stringify(await ask("?"));
    });
    const { run_id } = await runtime.createRun({ agent_name: "deep", input: String(DEPTH), mode: "async" });
    await bottom;
    await new Promise((resolve) => setTimeout(resolve, 50));
    if (ends === "cancelled") {
      await runtime.cancel(run_id);
      for await (const _ of runtime.events(run_id, { until: "end" })) {
        // Waits for the end of the stream.
      }
      while ((await runtime.listRuns({ status: "in-progress", roots: false, limit: 1 })).length > 0)
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const { left } = await runtime.close({ drainMs: 0 });
    process.stdout.write(`${ends}: ${left.length} left\n`);
  }
}

/** Callbacks of the host and of agents that throw, where no caller can catch it. */
async function callbacks(): Promise<void> {
  const fail = (): never => {
    throw new Error("the host's callback failed");
  };
  const failLater = (): Promise<never> => Promise.reject(new Error("the host's callback failed later"));
  const listen = (signal: AbortSignal): void => {
    signal.addEventListener("abort", fail);
    signal.addEventListener("abort", failLater);
    signal.addEventListener("abort", { handleEvent: fail });
    signal.onabort = fail;
    const removed = fail.bind(undefined);
    signal.addEventListener("abort", removed, { once: true });
    signal.removeEventListener("abort", removed);
  };
  for (const log of [fail, failLater]) {
    const logger = { debug: log, info: log, warn: log, error: log };
    const runtime = new AgentRuntime({ cancelGraceMs: 20, logger });
    for (const type of ["run.created", "run.completed", "run.failed", "run.cancelled"] as const) {
      runtime.on(type, fail);
      runtime.on(type, failLater);
    }
    runtime.register("waits", (_input, { signal }) => {
      listen(signal);
      return never();
    });
    runtime.register("steps", (_input, { step }) =>
      step(
        "slow",
        ({ signal }) => {
          listen(signal);
          return never();
        },
        { timeoutMs: 10 },
      ),
    );
    runtime.register("fails", fail);
    const waits = await runtime.createRun({ agent_name: "waits", input: "x", mode: "async" });
    await new Promise((resolve) => setTimeout(resolve, 20));
    await runtime.cancel(waits.run_id);
    const steps = await runtime.createRun({ agent_name: "steps", input: "x" });
    const fails = await runtime.createRun({ agent_name: "fails", input: "x" });
    await new Promise((resolve) => setTimeout(resolve, 50));
    const { status } = await runtime.getRun(waits.run_id);
    process.stdout.write(`${status}, ${steps.status}, ${fails.status}\n`);
    await runtime.close({ drainMs: 0 });
  }
}

const scenarios: Readonly<Record<string, () => Promise<void>>> = { hostile, floating, deep, callbacks };
await scenarios[process.argv[2] ?? ""]?.();
