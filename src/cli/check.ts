import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import thisProcess, { argv, cwd, env, execArgv, execPath, stderr, stdout } from "node:process";
import { AgentRuntime } from "cadenza";
import type { Cassette } from "cadenza/testing";
import { checkUpgrade } from "cadenza/testing";
import { registerFile } from "./agents.ts";
import { checkFile, loaderOf } from "./dev.ts";
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
  readonly patienceMs: number;
}

/** What that process says. `alive`: its event loop turns. `loaded`: it has the agents and the store. `failed`: it has printed why. */
type Said =
  | "alive"
  | "loaded"
  | "failed"
  | { readonly begun: string }
  | { readonly report: string; readonly isOk: boolean };

/** After so long without a word the file that is loaded holds the process, in milliseconds. */
const SILENT_MS = 10_000;
/** The code of a run holds it after twice the patience, but not before this: a busy machine may delay a word. */
const MIN_SILENT_MS = 3_000;
const PATIENCE_MS = 5_000;
const ALIVE_MS = 500;
/** The code of so many runs may hold or end the process, before the check is given up. */
const MAX_STUCK = 10;

/**
 * `cadenza check`: replays the open runs of a store in a process of its own. The process is ended where the code of a run does not
 * let go of it, and started again where that code has ended it. The exit status is 1 if a run would be blocked, or its code
 * does one of these.
 */
export async function check(file: string, options: CheckOptions): Promise<void> {
  checkFile(file);
  if (options.store === undefined && options.cassettes === undefined)
    throw new UsageError("check: expected --store, --cassettes or both.");
  const stuck: string[] = [];
  const patienceMs = options.patienceMs ?? PATIENCE_MS;
  let isCareful = false;
  for (;;) {
    const ended = await replayed(file, { ...options, stuck, isCareful, patienceMs });
    if (ended.is === "failed") {
      thisProcess.exitCode = 1;
      return;
    }
    if (ended.is === "over") {
      stdout.write(ended.report);
      if (!ended.isOk || stuck.length > 0) thisProcess.exitCode = 1;
      return;
    }
    const { is, isLoaded, last } = ended;
    if (!isLoaded)
      throw new CommandError(
        is === "silent" ? `${file} holds its process.` : `Its process ended while it loaded ${file}.`,
      );
    if (isCareful) {
      if (last === undefined)
        throw new CommandError(`The process that checks ${file} ${is === "silent" ? "does nothing" : "ended"}.`);
      stuck.push(last);
      stderr.write(`✗ ${last}: its code ${is === "silent" ? "computes without end" : "ends the process"}.\n`);
    }
    if (stuck.length === MAX_STUCK)
      throw new CommandError(
        `The code of ${MAX_STUCK} runs holds or ends the process. Not all of the others were looked at.`,
      );
    isCareful = true;
  }
}

type Ended =
  | { readonly is: "over"; readonly report: string; readonly isOk: boolean }
  | { readonly is: "failed" }
  | { readonly is: "silent" | "gone"; readonly isLoaded: boolean; readonly last: string | undefined };

function replayed(file: string, told: Told): Promise<Ended> {
  const held = Math.max(MIN_SILENT_MS, 2 * told.patienceMs);
  const child: ChildProcess = spawn(execPath, [...execArgv, ...loaderOf(file), argv[1] ?? "", "check", file], {
    // What agents print goes to the standard error, so that the report alone is on the standard output.
    stdio: ["ignore", stderr.fd, "inherit", "ipc"],
    // Arguments are seen by every user of the machine, the environment is not.
    env: { ...env, CADENZA_CHECK: JSON.stringify(told) },
  });
  return new Promise((resolve, reject) => {
    let last: string | undefined;
    let isLoaded = false;
    let timer: ReturnType<typeof setTimeout>;
    const end = (ended: Ended): void => {
      clearTimeout(timer);
      resolve(ended);
    };
    const listen = (): void => {
      clearTimeout(timer);
      timer = setTimeout(
        () => {
          child.kill("SIGKILL");
          end({ is: "silent", isLoaded, last });
        },
        isLoaded ? held : SILENT_MS,
      );
    };
    listen();
    child.on("message", (said: Said) => {
      if (said === "loaded") isLoaded = true;
      listen();
      if (said === "failed") end({ is: "failed" });
      else if (typeof said === "object" && "begun" in said) last = said.begun;
      else if (typeof said === "object" && "report" in said) end({ is: "over", ...said });
    });
    child.once("error", reject);
    // The last message comes before one of them, and perhaps not before the other.
    let isHalfGone = false;
    const onGone = (): void => {
      if (isHalfGone) end({ is: "gone", isLoaded, last });
      isHalfGone = true;
    };
    child.once("exit", onGone);
    child.once("disconnect", onGone);
  });
}

type Say = (said: Said, onSent?: () => void) => void;

/** The process that `check` starts. */
export async function checkAgents(file: string, passed: string): Promise<void> {
  const told = JSON.parse(passed) as Told;
  const say: Say = (said, onSent) => {
    if (thisProcess.send === undefined) onSent?.();
    else thisProcess.send(said, () => onSent?.());
  };
  const sent = (said: Said): Promise<void> => new Promise((resolve) => say(said, resolve));
  // Code that waits for nothing ends the process all the same.
  const alive = setInterval(() => say("alive"), ALIVE_MS).unref();
  try {
    const found = await checked(file, told, say);
    const shown = told.json ? JSON.stringify(found) : found.toString().replaceAll(`${cwd()}/`, "");
    await sent({ report: `${printable(shown)}\n`, isOk: found.ok });
  } catch (error) {
    await sent("failed");
    throw error;
  } finally {
    clearInterval(alive);
  }
  // Timers and connections of the agents' own code would hold the process.
  thisProcess.exit();
}

async function checked(
  file: string,
  { store, schema, cassettes, patienceMs, stuck, isCareful }: Told,
  say: Say,
): ReturnType<typeof checkUpgrade> {
  const runtime = new AgentRuntime();
  await registerFile(runtime, file);
  const opened = store === undefined ? undefined : await openToRead(store, schema);
  const recorded = cassettes === undefined ? undefined : readCassettes(cassettes);
  say("loaded");
  try {
    return await checkUpgrade({
      agents: runtime,
      store: opened?.store,
      cassettes: recorded,
      patienceMs,
      without: stuck,
      ...(isCareful && { atOnce: 1 }),
      onRun: ({ run_id }, is) => {
        // A run that is left out does nothing that could end the process.
        if (is === "begun" && isCareful && !stuck.includes(run_id)) say({ begun: run_id });
      },
    });
  } finally {
    await opened?.close();
  }
}

function readCassettes(folder: string): readonly Cassette[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  if (files.length === 0)
    throw new CommandError(`There is no cassette (*.json) in ${relative(cwd(), folder) || folder}.`);
  return files.map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")) as Cassette);
}
