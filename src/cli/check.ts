import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import thisProcess, { argv, cwd, env, execArgv, execPath, stderr, stdout } from "node:process";
import { AgentRuntime } from "cadenza";
import type { Cassette } from "cadenza/testing";
import { checkUpgrade } from "cadenza/testing";
import { registerFile } from "./agents.ts";
import { loaderOf } from "./dev.ts";
import { CommandError, printable, UsageError } from "./errors.ts";
import { openToRead } from "./stores.ts";

/** The options of `check`. */
interface CheckOptions {
  readonly store: string | undefined;
  readonly schema: string | undefined;
  readonly cassettes: string | undefined;
  readonly patienceMs: number | undefined;
  readonly json: boolean;
}

/** What the process gets that replays the runs. */
interface Told extends CheckOptions {
  /** The ids of the runs whose code does not let go of the process. */
  readonly stuck: readonly string[];
  /** Whether one run is replayed at a time, so that it is known which one does not let go. */
  readonly isCareful: boolean;
}

/** What that process says. `alive`: its event loop turns. */
type Said = "alive" | { readonly begun: string } | { readonly blocked: number };

/** After so long without a word the code of a run holds the process, in milliseconds. */
const SILENT_MS = 10_000;
const ALIVE_MS = 1_000;
/** Of so many runs the code may hold the process, before the check is given up. */
const MAX_STUCK = 10;

/**
 * `cadenza check`: replays the open runs of a store in a process of its own, which is ended where the code of a run does not
 * let go of it. The exit status is 1 if a run would be blocked, or holds the process.
 */
export async function check(file: string, options: CheckOptions): Promise<void> {
  if (!existsSync(file)) throw new CommandError(`There is no file ${file}.`);
  if (options.store === undefined && options.cassettes === undefined)
    throw new UsageError("check: expected --store, --cassettes or both.");
  const stuck: string[] = [];
  let isCareful = false;
  for (;;) {
    const ended = await replayed(file, { ...options, stuck, isCareful });
    if (ended.is === "over") {
      if (ended.status !== 0 || stuck.length > 0) thisProcess.exitCode = ended.status || 1;
      return;
    }
    if (isCareful && ended.last !== undefined) {
      stuck.push(ended.last);
      stderr.write(`✗ ${ended.last}: its code computes without end.\n`);
    }
    if (stuck.length === MAX_STUCK || (isCareful && ended.last === undefined))
      throw new CommandError(`${file} holds its process.`);
    isCareful = true;
  }
}

type Ended =
  | { readonly is: "over"; readonly status: number }
  | { readonly is: "silent"; readonly last: string | undefined };

function replayed(file: string, told: Told): Promise<Ended> {
  const child: ChildProcess = spawn(execPath, [...execArgv, ...loaderOf(file), argv[1] ?? "", "check", file], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    // Arguments are seen by every user of the machine, the environment is not.
    env: { ...env, CADENZA_CHECK: JSON.stringify(told) },
  });
  return new Promise((resolve, reject) => {
    let last: string | undefined;
    const onSilence = (): void => {
      child.kill("SIGKILL");
      resolve({ is: "silent", last });
    };
    let timer = setTimeout(onSilence, SILENT_MS);
    child.on("message", (said: Said) => {
      clearTimeout(timer);
      timer = setTimeout(onSilence, SILENT_MS);
      if (typeof said === "object" && "begun" in said) last = said.begun;
    });
    child.once("error", reject);
    child.once("exit", (status) => {
      clearTimeout(timer);
      resolve({ is: "over", status: status ?? 1 });
    });
  });
}

/** The process that `check` starts. */
export async function checkAgents(file: string, passed: string): Promise<void> {
  const { store, schema, cassettes, patienceMs, json, stuck, isCareful } = JSON.parse(passed) as Told;
  const say = (said: Said): void => {
    thisProcess.send?.(said);
  };
  const alive = setInterval(() => say("alive"), ALIVE_MS);
  const runtime = new AgentRuntime();
  await registerFile(runtime, file);
  const opened = store === undefined ? undefined : await openToRead(store, schema);
  const found = await checkUpgrade({
    agents: runtime,
    store: opened?.store,
    cassettes: cassettes === undefined ? undefined : readCassettes(cassettes),
    patienceMs,
    without: stuck,
    ...(isCareful && { atOnce: 1 }),
    onRun: ({ run_id }, is) => {
      if (is === "begun" && isCareful) say({ begun: run_id });
    },
  });
  await opened?.close();
  clearInterval(alive);
  const shown = json ? JSON.stringify(found) : found.toString().replaceAll(`${cwd()}/`, "");
  stdout.write(`${printable(shown)}\n`, () => {
    // Timers and connections of the agents' own code would hold the process.
    thisProcess.exit(found.ok ? 0 : 1);
  });
}

function readCassettes(folder: string): readonly Cassette[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  if (files.length === 0)
    throw new CommandError(`There is no cassette (*.json) in ${relative(cwd(), folder) || folder}.`);
  return files.map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")) as Cassette);
}
