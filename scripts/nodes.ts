/**
 * Runs every program of the documentation and every example as a plain script under each version of Node that is
 * supported, or under those that are named: `npm run test:nodes -- 22 24`. npm fetches the versions.
 */
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { programsFor, tryPage } from "../test/docs/programs.ts";
import { examplePrograms, tryExample } from "../test/examples/programs.ts";
import { makeProject } from "../test/harness/project.ts";

const VERSIONS = ["20", "22", "24", "26"];
const AT_ONCE = 2;

const asked = process.argv.slice(2);
const project = await makeProject();
try {
  for (const version of asked.length === 0 ? VERSIONS : asked) await runUnder(version);
} finally {
  project.remove();
}

async function runUnder(version: string): Promise<void> {
  const started = performance.now();
  const [node = "", exact = ""] = execFileSync(
    "npx",
    ["--yes", "-p", `node@${version}`, "node", "-p", "[process.execPath, process.version].join()"],
    { cwd: tmpdir(), encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] },
  )
    .trimEnd()
    .split(",");
  const where = { cwd: project.folder, node };
  const trials = [
    ...programsFor(exact).map((page) => [page.name, () => tryPage(page, where)] as const),
    ...Object.entries(examplePrograms).map(
      ([file, program]) => [`examples/${file}`, () => tryExample(file, program, where)] as const,
    ),
  ];
  const failed: string[] = [];
  const waiting = trials.values();
  const work = async (): Promise<void> => {
    for (const [name, run] of waiting) {
      const wrong = await run();
      if (wrong !== undefined) failed.push(`${name}: ${wrong}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  console.log(`Node ${exact}: ${trials.length - failed.length} of ${trials.length} programs, in ${seconds} s`);
  for (const wrong of failed) console.log(`  ${wrong}`);
  if (failed.length > 0) process.exitCode = 1;
}
