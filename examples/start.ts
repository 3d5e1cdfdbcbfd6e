/**
 * Starts an example: `npm run demo -- <name>`. Without the name of one it is the agent whose process is killed, and at a
 * terminal the inspector then shows its run. `npm run demo -- --yes` ends without it.
 */
import { fileURLToPath } from "node:url";
import { inspect } from "../src/cli/inspect.ts";

const STORE = ".cadenza/demo.db";

/** The module of each example, with its first arguments. */
export const demos: Readonly<Record<string, readonly [path: string, ...args: string[]]>> = {
  inspect: ["src/cli/main.ts", "inspect", STORE],
  licences: ["examples/licence-audit/main.ts"],
  serve: ["examples/serve.ts"],
  chat: ["examples/chat/main.ts"],
  desk: ["examples/desk/server.ts"],
  cluster: ["examples/cluster/main.ts"],
  mcp: ["examples/mcp-approval/demo.ts"],
};
const USAGE = `npm run demo            an agent with a model asks, its process is killed, and another one goes on
npm run demo -- --yes   the same, and ends before the inspector opens
npm run demo -- <name>  of ${Object.keys(demos).join(", ")}`;

if (process.argv[1] === fileURLToPath(import.meta.url)) await start(process.argv.slice(2));

async function start([first, ...others]: readonly string[]): Promise<void> {
  const { [first ?? ""]: demo } = demos;
  if (demo !== undefined) {
    const [path, ...args] = demo;
    await load(path, [...args, ...others]);
  } else if (first === undefined || first === "--yes") await showKill(first === undefined && isTerminal());
  else {
    console.log(USAGE);
    process.exitCode = first === "--help" ? 0 : 2;
  }
}

async function showKill(isStaying: boolean): Promise<void> {
  const { run_id } = (await load("examples/demo/main.ts", [STORE])) as typeof import("../examples/demo/main.ts");
  if (!isStaying) return console.log("\nTo see the run on a page: npm run demo -- inspect");
  console.log("\nThe run on a page, until you press Ctrl-C:");
  await inspect(STORE, { port: 0, open: true, run_id });
}

/** Loads a program with its arguments. */
function load(path: string, args: readonly string[]): Promise<unknown> {
  const file = new URL(`../${path}`, import.meta.url);
  process.argv = [process.argv[0] ?? "", fileURLToPath(file), ...args];
  return import(file.href);
}

function isTerminal(): boolean {
  return process.stdin.isTTY && process.stdout.isTTY;
}
