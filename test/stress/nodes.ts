import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { programsFor, tryPage } from "../docs/programs.ts";
import { examplePrograms, tryExample } from "../examples/programs.ts";
import { command } from "../harness/commands/commands.ts";
import { makeProject } from "../harness/project.ts";

const VERSIONS = ["20", "22", "24", "26"] as const;
const AT_ONCE = 2;

export const trial = command({
  about:
    "Runs every program of the documentation and every example as a plain script under each version of Node that is supported. npm fetches the versions.",
  options: { versions: { about: "The versions of Node.", default: VERSIONS, oneOf: VERSIONS } },
  async run({ versions }, report) {
    const project = await makeProject();
    let tried = 0;
    try {
      for (const version of versions) {
        const [node = "", exact = ""] = nodeOf(version);
        const where = { cwd: project.folder, node };
        const trials = [
          ...programsFor(exact).map((page) => [page.name, () => tryPage(page, where)] as const),
          ...Object.entries(examplePrograms).map(
            ([file, program]) => [`examples/${file}`, () => tryExample(file, program, where)] as const,
          ),
        ];
        const waiting = trials.values();
        const work = async (): Promise<void> => {
          for (const [name, run] of waiting) {
            const wrong = await run();
            if (wrong !== undefined) report.wrong(`Node ${exact}: ${name}: ${wrong}`, { versions: [version] });
          }
        };
        await Promise.all(Array.from({ length: AT_ONCE }, work));
        tried += trials.length;
        report.say(`Node ${exact}: ${trials.length} programs`);
      }
    } finally {
      project.remove();
    }
    return `${tried} programs`;
  },
});

/** The path of a version of Node, and which it is exactly. */
function nodeOf(version: string): readonly string[] {
  const asked = ["--yes", "-p", `node@${version}`, "node", "-p", "[process.execPath, process.version].join()"];
  const stdio = ["ignore", "pipe", "ignore"] as const;
  return execFileSync("npx", asked, { cwd: tmpdir(), encoding: "utf8", stdio: [...stdio] })
    .trimEnd()
    .split(",");
}
