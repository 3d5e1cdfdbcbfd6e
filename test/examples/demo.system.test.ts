import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import { expect, it } from "vitest";
import { openStore } from "../../examples/durable-approval/store.ts";
import { noKeys } from "../browser/servers.ts";
import type { Ended } from "../harness/processes.ts";
import { faultOf, PROCESS_TIMEOUT_MS, runProgram } from "../harness/processes.ts";

const GATEWAY = import.meta.resolve("../docs/gateway.mjs");
const SCRIPT = fileURLToPath(new URL("../../examples/start.ts", import.meta.url));

/** What the demo prints of a run and its two processes. */
function output(run: string, first: string, second: string): readonly string[] {
  const line = (who: string, what: string, text: string): string => `${who.padEnd(12)}${what.padEnd(8)}${text}`;
  const [one, other] = [`pid ${first}`, `pid ${second}`];
  return [
    line(one, "starts", "A built-in model with prepared answers."),
    line(one, "starts", "Real ones need AI_GATEWAY_API_KEY, ANTHROPIC_API_KEY or OPENAI_API_KEY."),
    line(one, "begins", `run ${run}`),
    line(one, "step", "find the order"),
    line(one, "model", "The night train came five hours late, so I would pay 40 of the 89 € back."),
    line(one, "asks", "Refund 40 €? The run waits for a person."),
    line("demo", "", `kill -9 ${first}`),
    line(other, "starts", `and goes on with run ${run}`),
    line(other, "asks", "Refund 40 €? The run still waits for a person."),
    line("demo", "answers", "yes"),
    line(other, "step", "refund 40 €"),
    line(other, "model", "Sorry for the long night. 40 € are on their way to you."),
    line(other, "ends", "The run is completed."),
    "",
    "Two processes, one run. Each of its steps was run once:",
    line(one, "", "find the order, model"),
    line(other, "", "refund 40 €, model"),
    "",
    "To see the run on a page: npm run demo -- inspect",
  ];
}

/** Runs `npm run demo` in a folder, without a terminal, and without keys for a model but those given. */
function demo(cwd: string, args: readonly string[], keys: Readonly<Record<string, string>> = {}): Promise<Ended> {
  const env = { ...process.env, ...noKeys, ...keys, TSX_TSCONFIG_PATH: join(SCRIPT, "../../tsconfig.json") };
  const flags = ["--disable-warning=ExperimentalWarning", "--import", import.meta.resolve("tsx"), "--import", GATEWAY];
  return runProgram([...flags, SCRIPT, ...args], { cwd, env });
}

it("the demo kills the process of a run, which goes on in another process and runs each step once", {
  timeout: PROCESS_TIMEOUT_MS,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-demo-"));
  try {
    const ended = await demo(folder, ["--yes"]);
    expect(faultOf(ended)).toBeUndefined();
    const lines = ended.stdout.trimEnd().split("\n");
    const [, first = "", run = ""] = /^pid (\d+) +begins +run (\S+)$/m.exec(ended.stdout) ?? [];
    const [, second = ""] = /^pid (\d+) +starts +and goes on/m.exec(ended.stdout) ?? [];
    expect(second).not.toBe(first);
    expect(lines).toEqual(output(run, first, second));
    expect(readdirSync(folder)).toEqual([".cadenza"]);

    // The log says the same: it was asked once.
    const runtime = new AgentRuntime({ store: await openStore(join(folder, ".cadenza/demo.db")) });
    expect(await runtime.getRun(run)).toMatchObject({ status: "completed", agent_name: "refund-desk" });
    const types: string[] = [];
    for await (const { type } of runtime.events(run, { until: "now" })) types.push(type);
    expect(types.filter((type) => type === "run.awaiting")).toHaveLength(1);
    await runtime.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it("the demo says what it takes", { timeout: PROCESS_TIMEOUT_MS }, async () => {
  expect(await demo(tmpdir(), ["--help"])).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("licences, serve"),
  });
  expect(await demo(tmpdir(), ["licence"])).toMatchObject({
    code: 2,
    stdout: expect.stringContaining("licences, serve"),
  });
});

it("the demo says that a real model did not answer", { timeout: PROCESS_TIMEOUT_MS }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-demo-"));
  try {
    // The gateway of the tests refuses to stream.
    const { code, stdout, stderr } = await demo(folder, [], { AI_GATEWAY_API_KEY: "a-key-of-the-tests" });
    expect(stdout).toContain("The model openai/gpt-5-mini of the AI gateway.");
    expect(stderr).toMatch(/^The run has failed: .*Without a key in the environment a built-in model answers\.\n$/s);
    expect(stderr).not.toMatch(/^ +at /m);
    expect(code).toBe(1);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
