import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import type { CodeOfRun } from "../../src/inspector/api.ts";
import { eventually } from "../harness/eventually.ts";
import { Browser, Command, Writer } from "../harness/inspected/processes.ts";
import { write } from "../harness/project.ts";
import { temporaryFolder } from "../harness/sqlite-files.ts";
import { listen } from "../http/mounts.ts";

const cwd = inject("projectFolder");
/** The address of a server at a port where none listens. */
const REFUSES = "postgres://reader@127.0.0.1:1/app";

function start(...args: readonly string[]): Command {
  const command = new Command(args, { cwd });
  onTestFinished(() => void command.stop("SIGKILL"));
  return command;
}

function newFile(): string {
  const folder = temporaryFolder();
  onTestFinished(() => folder.remove());
  return join(folder.path, "runs.db");
}

describe("cadenza", () => {
  it.each<[args: readonly string[], code: number, said: string]>([
    [["--help"], 0, "Usage:\n  cadenza init [folder] [--yes]\n"],
    [["init", "a", "b"], 2, "cadenza: init: expected one folder.\n\nUsage:"],
    [["init", "--open"], 2, "cadenza: init has no option --open.\n\nUsage:"],
    [["--version"], 0, "0.1.0\n"],
    [["look", "runs.db"], 2, "cadenza: There is no command look.\n\nUsage:"],
    [["inspect"], 2, "cadenza: inspect: expected one file or URL.\n\nUsage:"],
    [["dev", "a.ts", "--port", "x"], 2, "cadenza: --port: expected a number from 0 to 65535, received x.\n\nUsage:"],
    [["inspect", "runs.db", "--write"], 2, "cadenza: Unknown option '--write'"],
    [["inspect", "runs.db", "--store", "a"], 2, "cadenza: inspect has no option --store.\n\nUsage:"],
    [["inspect", "missing.db"], 1, "cadenza: There is no file missing.db.\n"],
    [["inspect", "package.json"], 1, "cadenza: The database cannot be read: file is not a database.\n"],
    [["inspect", REFUSES], 1, "cadenza: The connection to PostgreSQL failed. connect ECONNREFUSED 127.0.0.1:1\n"],
    [["dev", "missing.ts"], 1, "cadenza: There is no file missing.ts.\n"],
    [["dev", "."], 1, "cadenza: . is a folder. Name a file that exports agents.\n"],
    [["check", ".", "--store", "a.db"], 1, "cadenza: . is a folder. Name a file that exports agents.\n"],
    [["dev", "a.mjs", "--store", "package.json"], 1, "cadenza: The database cannot be read: file is not a database.\n"],
    [["dev", "a.mjs", "--store", "."], 1, "cadenza: EISDIR: illegal operation on a directory, open '.'\n"],
    [["pause", "missing.db", "--agent", "waits"], 1, "cadenza: There is no file missing.db.\n"],
    [["move", "runs.db", "--agent", "a"], 2, "cadenza: move: expected --to VERSION.\n\nUsage:"],
    [["resume", "runs.db", "--now"], 2, "cadenza: resume has no option --now.\n\nUsage:"],
    [["pause", "runs.db", "--status", "created"], 2, "cadenza: pause has no option --status.\n\nUsage:"],
  ])("%j ends with %i", async (args, code, said) => {
    write(cwd, "a.mjs", "");
    const command = start(...args);
    expect(await command.ended()).toBe(code);
    expect(command.output.slice(0, said.length)).toBe(said);
  });
});

it("cadenza runs to its end when its output is closed", () => {
  const command = `set -o pipefail; "${process.execPath}" node_modules/cadenza/dist/cli.js --help | true`;
  const { status, stderr } = spawnSync("bash", ["-c", command], { cwd, encoding: "utf8" });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});

describe("cadenza check", () => {
  const agents = (code: string) => `
    import { AgentRuntime, defineAgent } from "cadenza";
    const order = async (_input, { step, ask, patched }) => { ${code} };
    export const all = ["1", "2"].map((version) => defineAgent("order", { durable: true, version }, order));
    export default (runtime) => runtime.register(...all);
  `;

  /** A file with two open runs of the agent. */
  async function fileWithRuns(): Promise<string> {
    const file = newFile();
    const program = `${agents('await step("reserve", () => 1); await ask("Ship it?");')}
      import { SqliteStore } from "cadenza/sqlite";
      import Database from "libsql";
      const store = new SqliteStore(new Database(process.argv[2]), { closeDatabase: true });
      const runtime = new AgentRuntime({ store, agents: all });
      await runtime.createRun({ agent_name: "order", input: "" });
      await runtime.createRun({ agent_name: "order", input: "" });
      await runtime.close();
    `;
    write(cwd, "begin-runs.mjs", program);
    const made = new Command([file], { cwd, program: ["begin-runs.mjs"] });
    expect(await made.ended(), made.output).toBe(0);
    return file;
  }

  it("names the runs that new code would block, and ends with 1", async () => {
    const file = await fileWithRuns();
    const code = agents('await step("reserve", () => 2); await ask("Ship?");');
    write(cwd, "same.mjs", code.replace(/export default .*/, ""));
    const same = start("check", "same.mjs", "--store", file);
    expect(await same.ended(), same.output).toBe(0);
    expect(same.output).toContain("2 open runs, 2 of them looked at: 0 would be blocked.");
    write(cwd, "other.mjs", agents('await step("weigh", () => 2); await ask("Ship?");'));
    const other = start("check", "other.mjs", "--store", file, "--patience", "200", "--json");
    expect(await other.ended(), other.output).toBe(1);
    const { blocked } = JSON.parse(other.output) as { blocked: readonly { at: string; asked: string }[] };
    expect(blocked.map(({ asked }) => asked)).toEqual(["weigh#1", "weigh#1"]);
    expect(blocked[0]?.at).toMatch(/other\.mjs:3:\d+$/);
  });

  it("ends the process of code that computes without end, and names the runs", { timeout: 90_000 }, async () => {
    const file = await fileWithRuns();
    write(cwd, "endless.mjs", agents('await step("reserve", () => 2); for (;;);'));
    const command = start("check", "endless.mjs", "--store", file, "--patience", "200");
    expect(await command.ended(), command.output).toBe(1);
    expect(command.output.match(/its code computes without end/g)).toHaveLength(2);
    expect(command.output).toContain("2 runs: an earlier check got stuck on it");
  });

  it("names the runs whose code ends the process, and looks at the others", async () => {
    const file = await fileWithRuns();
    const ends = 'await step("reserve", () => 2); if (runs++ === 0) process.exit(0); await ask("Ship it?");';
    write(cwd, "ends.mjs", `let runs = 0; ${agents(ends)}`);
    const command = start("check", "ends.mjs", "--store", file);
    expect(await command.ended(), command.output).toBe(1);
    expect(command.output.match(/its code ends the process/g), command.output).toHaveLength(2);
  });

  it("prints what the code of runs throws that ends the process", async () => {
    const file = await fileWithRuns();
    write(cwd, "fails.mjs", agents('setImmediate(() => { throw new Error("It broke."); }); await ask("Ship it?");'));
    const command = start("check", "fails.mjs", "--store", file);
    expect(await command.ended(), command.output).toBe(1);
    expect(command.output).toContain("Error: It broke.");
    expect(command.output).toContain("2 runs: an earlier check got stuck on it");
  });

  it.each([
    ["process.exit(0);", "cadenza: Its process ended while it loaded file.mjs.\n"],
    ["await new Promise(() => {});", "cadenza: Its process ended while it loaded file.mjs.\n"],
    ['throw new Error("It broke.");', "Error: It broke."],
    ["export const none = 1;", "cadenza: file.mjs exports no agent."],
    ["export default () => { setInterval(() => {}, 1e6); throw new Error('No.'); };", "Error: No."],
  ])("of a file with %s ends with 1", async (code, said) => {
    write(cwd, "file.mjs", code);
    const command = start("check", "file.mjs", "--store", "package.json");
    expect(await command.ended()).toBe(1);
    expect(command.output.slice(0, said.length)).toBe(said);
  });

  it("of a store that cannot be read ends with 1", async () => {
    write(cwd, "one.mjs", agents('setInterval(() => {}, 1e6); await ask("Ship it?");'));
    const command = start("check", "one.mjs", "--store", "package.json");
    expect(await command.ended()).toBe(1);
    expect(command.output).toBe("cadenza: The database cannot be read: file is not a database.\n");
  });

  it("has nothing but the report on its standard output", async () => {
    const file = await fileWithRuns();
    write(
      cwd,
      "prints.mjs",
      `console.log("loaded"); ${agents('console.log("begun"); await step("reserve", () => 1);')}`,
    );
    const args = [join("node_modules", "cadenza", "dist", "cli.js"), "check", "prints.mjs", "--store", file, "--json"];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd, encoding: "utf8" });
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ blocked: [{ asked: "the agent returned" }, {}] });
    expect(stderr).toMatch(/^loaded\nbegun\nbegun\n$/);
  });

  it("loads TypeScript by the tsx of the project, and tells its lines", async () => {
    const file = await fileWithRuns();
    write(cwd, "typed/steps.ts", 'export enum Steps { Weigh = "weigh" }');
    write(cwd, "typed/agents.ts", `import { Steps } from "./steps.js"; ${agents("await step(Steps.Weigh, () => 1);")}`);
    const command = start("check", "typed/agents.ts", "--store", file);
    expect(await command.ended(), command.output).toBe(1);
    expect(command.output).toMatch(/code: weigh#1, at typed\/agents\.ts:3:\d+/);
  });

  it.each([
    [["check", "missing.mjs"], 1, "cadenza: There is no file missing.mjs.\n"],
    [["check", "package.json"], 2, "cadenza: check: expected --store, --cassettes or both.\n"],
    [["check", "a.mjs", "--patience", "x"], 2, "cadenza: --patience: expected a number, received x.\n"],
  ])("%j ends with %i", async (args, code, said) => {
    const command = start(...args);
    expect(await command.ended()).toBe(code);
    expect(command.output.slice(0, said.length)).toBe(said);
  });
});

describe("cadenza inspect", () => {
  it("shows a file that a live process writes, and what is left of it after a kill, without writing", async () => {
    const file = newFile();
    const writer = new Writer(cwd, file);
    const first = await writer.order("create");
    const command = start("inspect", file);
    const browser = await Browser.open(await command.address());
    const events = browser.feed("api/feed/runs");
    expect(await events.next()).toMatchObject({ value: { type: "page", items: [{ run_id: first.run_id }] } });
    const second = await writer.order("create");
    expect(await events.next()).toMatchObject({ value: { type: "change", added: [{ run_id: second.run_id }] } });
    expect(second.busy).toBe(0);
    const refused = await browser.post("api/cancel", { tenant: "", run_id: first.run_id });
    expect(refused.status).toBeGreaterThanOrEqual(400);

    await writer.stop("SIGKILL");
    expect(await command.stop()).toBe(0);
    const before = [readFileSync(file), readFileSync(`${file}-wal`)];
    const again = start("inspect", file);
    const later = await Browser.open(await again.address());
    expect(await later.first("api/feed/questions", /"inbox"/)).toMatch(new RegExp(`${first.run_id}.*${second.run_id}`));
    expect(await again.stop("SIGTERM")).toBe(0);
    expect([readFileSync(file), readFileSync(`${file}-wal`)]).toEqual(before);
  });
});

it.runIf(process.platform === "linux")(
  "cadenza inspect --open opens the address that it prints, and tells it no other user",
  async () => {
    const file = newFile();
    const writer = new Writer(cwd, file);
    await writer.order("create");
    const opened = `${file}.opened`;
    // Arguments are seen by all users of the machine.
    write(
      dirname(file),
      "xdg-open",
      `#!/bin/sh\nstat -c %a "$1" > ${opened}.new\necho "$@" >> ${opened}.new\ncat "$1" >> ${opened}.new\nmv ${opened}.new ${opened}\n`,
    );
    chmodSync(join(dirname(file), "xdg-open"), 0o755);
    const env = { PATH: `${dirname(file)}:${process.env["PATH"]}` };
    const command = new Command(["inspect", file, "--open"], { cwd, env });
    onTestFinished(() => void command.stop("SIGKILL"));
    const address = await command.address();

    const seen = await eventually(() => readFileSync(opened, "utf8"));
    const [mode, page, ...content] = seen.split("\n");
    expect(mode).toBe("600");
    expect(page).not.toContain("token");
    expect(content.join("")).toContain(`url=${address}"`);
    expect(await command.stop()).toBe(0);
    expect(existsSync(page ?? "")).toBe(false);
    await writer.stop("SIGKILL");
  },
);

describe("cadenza pause, resume, cancel and retry", () => {
  it("change a store whose runs another process executes", async () => {
    const file = newFile();
    const writer = new Writer(cwd, file);
    for (let n = 0; n < 3; n++) await writer.order("create");
    const saidBy = async (...args: readonly string[]) => {
      const command = start(...args);
      return [await command.ended(), command.output] as const;
    };
    const waits = ["--agent", "waits"];
    expect(await saidBy("pause", file, ...waits)).toEqual([0, '{"agent_name":"waits"} is paused.\n']);
    expect(await saidBy("pause", file, ...waits)).toEqual([0, '{"agent_name":"waits"} was paused before.\n']);
    expect(await saidBy("pause", file, ...waits, "--now")).toEqual([0, '{"agent_name":"waits"} is paused.\n']);
    expect(await saidBy("resume", file, ...waits)).toEqual([0, '{"agent_name":"waits"} is resumed.\n']);
    expect(await saidBy("resume", file, ...waits)).toEqual([0, '{"agent_name":"waits"} was not paused.\n']);
    expect(await saidBy("cancel", file)).toEqual([1, expect.stringContaining("at least one condition")]);
    expect(await saidBy("cancel", file, "--label", "n")).toEqual([2, expect.stringContaining("--label")]);
    const ended = "completed: 3 of 3 done, 0 left alone, 0 refused\n";
    expect(await saidBy("cancel", file, "--tenant", "", "--by", "Ada")).toEqual([0, expect.stringContaining(ended)]);
    const none = "completed: 0 of 0 done, 0 left alone, 0 refused\n";
    expect(await saidBy("retry", file, ...waits)).toEqual([0, expect.stringContaining(none)]);
    await writer.stop("SIGKILL");
  });
});

describe("cadenza dev", () => {
  it("ends with 1 where its port is in use, before it waits for a save", async () => {
    const { base, close } = await listen(createServer(() => undefined));
    onTestFinished(close);
    const { port } = new URL(base);
    write(cwd, "a.mjs", "");
    const command = start("dev", "a.mjs", "--store", newFile(), "--port", port);
    expect(await command.ended()).toBe(1);
    expect(command.output).toBe(`cadenza: Port ${port} is in use: name another one with --port.\n`);
  });

  const agents = "dev/agents.ts";
  const setWord = (word: string): void =>
    writeFileSync(join(cwd, "dev/word.ts"), `export const word: string = ${word};\n`);

  it("runs agents, replaces their code when a file changes, and leaves no process", async () => {
    write(cwd, "dev/word.ts", "");
    setWord('"one"');
    write(
      cwd,
      agents,
      `import { defineAgent } from "cadenza";
       import { word } from "./word.ts";
       export const says = defineAgent("says", { durable: true, description: word }, async (_input, { ask }) => {
         await ask("Go on?");
         return word;
       });`,
    );
    const command = start("dev", agents, "--store", newFile());
    const address = await command.address();
    const browser = await Browser.open(address);
    expect(await (await browser.get("api/start")).json()).toMatchObject({
      agents: [{ agent_name: "says", description: "one" }],
    });
    const created = await browser.post("api/create", { tenant: "", agent_name: "says", input: "hello" });
    const { run_id } = (await created.json()) as { run_id: string };
    const asked = await browser.first("api/feed/questions", /ask#1/);
    expect(asked).toContain(run_id);

    setWord("");
    await command.printed(/Failed running/);
    await expect(browser.get("api/start")).rejects.toThrow();
    setWord('"two"');
    expect(await command.address(2)).toEqual(address);
    expect(await (await browser.get("api/start")).json()).toMatchObject({ agents: [{ description: "two" }] });
    const answered = await browser.post("api/answer", { tenant: "", run_id, await_id: "ask#1", answer: "yes" });
    expect([answered.status, await answered.text()]).toEqual([200, "{}"]);
    expect(await browser.completed(run_id)).toContain("two");

    const processes = descendantsOf(command.pid);
    expect(processes.length).toBeGreaterThanOrEqual(2);
    expect(await command.stop("SIGINT")).toBe(0);
    expect(processes.filter(isAlive)).toEqual([]);
  });

  it("says from where on saved code differs from a run, forks the run there, and has schedules", async () => {
    const code = (price: number): void =>
      write(
        cwd,
        "dev/tried.ts",
        `import { defineAgent } from "cadenza";
         export const order = defineAgent("order", { durable: true }, async function* (_input, { step }) {
           yield "Price " + (await step("price", () => ${price}));
           yield await step("model", () => ({ model: "m", prompt: {}, answer: " of ${price}." })).then(({ answer }) => answer);
         });`,
      );
    code(40);
    const command = start("dev", "dev/tried.ts", "--store", newFile());
    const browser = await Browser.open(await command.address());
    expect(await (await browser.get("api/start")).json()).toMatchObject({ has_schedules: true, has_playground: true });
    const created = await browser.post("api/create", { tenant: "", agent_name: "order", input: "" });
    const { run_id } = (await created.json()) as { run_id: string };
    await browser.completed(run_id);
    const codeOf = async () => (await (await browser.get(`api/code?tenant=&run_id=${run_id}`)).json()) as CodeOfRun;
    const before = await codeOf();
    code(50);
    await command.address(2);
    const after = await codeOf();
    expect(after.differs).toBeNull();
    const differ = after.operations.filter(({ body }, index) => body !== before.operations[index]?.body);
    expect(differ.map(({ key }) => key)).toEqual(["price#1", "model#1"]);
    const forked = await browser.post("api/fork", { tenant: "", run_id, before: "price#1", stub: "models" });
    const fork = (await forked.json()) as { run_id: string };
    const shown = await browser.completed(fork.run_id);
    expect(shown).toContain("Price 50");
    expect(shown).toContain(" of 40.");
    expect(await command.stop("SIGTERM")).toBe(0);
  });

  it("keeps the runs in a file that only its user may read, and its token from what agents start", async () => {
    write(
      cwd,
      "dev/starts.js",
      `import { execSync } from "node:child_process";
       import { Worker } from "node:worker_threads";
       const environment = "require('node:worker_threads').parentPort.postMessage(JSON.stringify(process.env))";
       export default (runtime) =>
         runtime.register("starts", async () => {
           const worker = new Worker(environment, { eval: true });
           const seen = await new Promise((resolve) => worker.once("message", resolve));
           return execSync("env").toString() + seen + JSON.stringify(process.env);
         });\n`,
    );
    const file = join(dirname(newFile()), "made", "dev.db");
    const command = start("dev", "dev/starts.js", "--store", file);
    const address = await command.address();
    const browser = await Browser.open(address);
    const created = await browser.post("api/create", { tenant: "", agent_name: "starts", input: "" });
    const { run_id } = (await created.json()) as { run_id: string };
    const run = await browser.completed(run_id);
    expect(run).toContain("PATH=");
    expect(run).not.toContain("CADENZA_DEV");
    expect(run).not.toContain(new URL(address).searchParams.get("token"));
    for (const made of [file, `${file}-wal`, `${file}-shm`]) expect(statSync(made).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(dirname(file), ".gitignore"), "utf8")).toBe("*\n");
    expect(await command.stop("SIGTERM")).toBe(0);
  });

  it("prints what an agent was told without the characters that a terminal obeys", async () => {
    write(
      cwd,
      "dev/fails.js",
      `export default (runtime) =>
         runtime.register("fails", ([{ parts }]) => Promise.reject(new Error("No order " + parts[0].content)));\n`,
    );
    const command = start("dev", "dev/fails.js", "--store", newFile());
    const browser = await Browser.open(await command.address());
    const input = "\u001b]0;title\u0007\u001b[2J\u009b2J\u202e71";
    await browser.post("api/create", { tenant: "", agent_name: "fails", input });
    expect(await command.printed(/No order .*/)).toBe("No order \\u001b]0;title\\u0007\\u001b[2J\\u009b2J\\u202e71");
    expect(command.output).not.toMatch(/[^\P{Cc}\n\t]|\p{Bidi_Control}/u);
    expect(await command.stop("SIGTERM")).toBe(0);
  });

  it("takes what a default function registers, and says when a file exports no agent", async () => {
    write(cwd, "dev/registers.js", 'export default (runtime) => runtime.register("hi", () => "hi");\n');
    const command = start("dev", "dev/registers.js", "--store", newFile());
    const browser = await Browser.open(await command.address());
    expect(await (await browser.get("api/start")).json()).toMatchObject({ agents: [{ agent_name: "hi" }] });
    writeFileSync(join(cwd, "dev/registers.js"), "export const nothing = 1;\n");
    await command.printed(/cadenza: dev\/registers\.js exports no agent\. Export what defineAgent returns/);
    expect(await command.stop("SIGTERM")).toBe(0);
  });
});

/** The processes that a process has started, and those that these have started. */
function descendantsOf(pid: number): readonly number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  return children.flatMap((child) => [child, ...descendantsOf(child)]);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
