/**
 * Starts an example: `npm run demo -- <name>`. Without the name of one it is the licence audit, which gets the arguments:
 * `npm run demo -- --yes`, `npm run demo -- path/to/package-lock.json`.
 */
import { fileURLToPath } from "node:url";

/** The module of each example, with its first arguments. */
export const demos: Readonly<Record<string, readonly [path: string, ...args: string[]]>> = {
  inspect: ["src/cli/main.ts", "inspect", ".cadenza/demo.db"],
  serve: ["examples/serve.ts"],
  chat: ["examples/chat/main.ts"],
  desk: ["examples/desk/server.ts"],
  cluster: ["examples/cluster/main.ts"],
  mcp: ["examples/mcp-approval/demo.ts"],
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [node = "", , ...given] = process.argv;
  const { [given[0] ?? ""]: demo } = demos;
  if (given.includes("--help") && demo === undefined)
    console.log(`npm run demo -- <name>, of ${Object.keys(demos).join(", ")}. Without a name:\n`);
  const [path, ...args] = demo ?? ["examples/licence-audit/main.ts"];
  const file = new URL(`../${path}`, import.meta.url);
  process.argv = [node, fileURLToPath(file), ...args, ...(demo === undefined ? given : given.slice(1))];
  await import(file.href);
}
