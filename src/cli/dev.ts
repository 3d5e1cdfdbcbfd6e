import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import thisProcess, { argv, env, execArgv, execPath, features } from "node:process";
import { pathToFileURL } from "node:url";
import type { AgentsOptions } from "./agents.ts";
import { CommandError } from "./errors.ts";
import { fileOf } from "./project.ts";
import { listen, newToken, stopped } from "./server.ts";
import { openOrMake } from "./stores.ts";

/** The options of `dev`. */
interface DevOptions {
  readonly port: number | undefined;
  readonly store: string;
}

/**
 * `cadenza dev`: has `node --watch` run the agents, which starts a process again when a file that it has imported
 * changes. The port and the token stay, so that an open page goes on with the new process.
 */
export async function dev(file: string, { port, store }: DevOptions): Promise<void> {
  checkFile(file);
  // What is wrong with these is wrong however often the code changes.
  const options: AgentsOptions = { port: await freePort(port), token: newToken(), store };
  await openOrMake(store).close();
  const child = spawn(execPath, [...execArgv, "--watch", ...loaderOf(file), argv[1] ?? "", "dev", file], {
    stdio: "inherit",
    // Arguments are seen by every user of the machine, the environment is not.
    env: { ...env, CADENZA_DEV: JSON.stringify(options) },
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", resolve);
  });
  stopped().then(
    () => child.kill("SIGTERM"),
    () => undefined,
  );
  const code = await ended;
  if (!child.killed) thisProcess.exitCode = code ?? 1;
}

/** Throws unless there is such a file of agents. */
export function checkFile(file: string): void {
  const found = statSync(file, { throwIfNoEntry: false });
  if (found === undefined) throw new CommandError(`There is no file ${file}.`);
  if (found.isDirectory()) throw new CommandError(`${file} is a folder. Name a file that exports agents.`);
}

/** The wanted port, if it is free. Undefined: any free one. */
async function freePort(wanted: number | undefined): Promise<number> {
  const { port, close } = await listen(() => undefined, wanted ?? 0);
  await close();
  return port;
}

/**
 * What Node needs to load the file. The `tsx` of the project comes first: it knows what Node alone refuses, such as `enum`
 * and the `paths` of a tsconfig.json.
 */
export function loaderOf(file: string): readonly string[] {
  if (!/\.[cm]?tsx?$/.test(file)) return [];
  const tsx = fileOf("tsx");
  if (tsx !== undefined) return ["--import", pathToFileURL(tsx).href];
  const stripsTypes = "typescript" in features && features.typescript !== false;
  if (stripsTypes && !file.endsWith("x")) return [];
  throw new CommandError(
    `This version of Node cannot load ${file} by itself. Install tsx: npm install --save-dev tsx.`,
  );
}
