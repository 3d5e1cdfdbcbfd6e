import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Command, Script } from "../test/harness/commands/commands.ts";
import { command, start } from "../test/harness/commands/commands.ts";
import type { Report } from "../test/harness/commands/report.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

interface Part {
  readonly about: string;
  readonly lines: readonly string[];
  /** Whether it looks at the built library. */
  readonly isOfBuild?: true;
}

/** In the order in which all of them run. */
const parts: Readonly<Record<string, Part>> = {
  types: { about: "The types of all sources.", lines: ["tsc --noEmit", "tsc --noEmit -p src/inspector-page"] },
  style: { about: "Formatting, and the rules of biome.", lines: ["biome check ."] },
  words: { about: "The words of texts and comments.", lines: ["tsx test/architecture/words.ts"] },
  unused: { about: "Files, exports and dependencies that nothing uses.", lines: ["knip"] },
  house: {
    about: "How deep the modules of the two rooms are, what each entry exports, and whether it has a docstring.",
    lines: ["house", "api", "docstrings"].map((name) => `tsx test/architecture/${name}.ts`),
  },
  build: { about: "The build.", lines: ["npm run build"] },
  package: { about: "The packed package, as a user installs and uses it.", lines: ["tsx scripts/test-package.ts"] },
  size: { about: "The size of each entry.", lines: ["size-limit"], isOfBuild: true },
  bytes: { about: "What a run allocates and keeps.", lines: ["tsx test/bench/check-bytes.ts"], isOfBuild: true },
  install: { about: "What an installation costs.", lines: ["tsx test/bench/check-install.ts"], isOfBuild: true },
};

const all = command({
  about: "All parts, up to the first in which something is wrong.",
  options: {},
  async run(_, report) {
    const done: string[] = [];
    for (const [name, part] of Object.entries(parts)) {
      report.say(`\n${name}: ${part.about}`);
      done.push(name);
      if (!tryPart(name, part, report)) break;
    }
    return done.join(", ");
  },
});

/** `npm run check` */
export const check: Script = {
  name: "check",
  about: "everything but the tests",
  names: ["all", ...Object.keys(parts)],
  load: async (name) => (name === "all" ? all : alone(name)),
  byDefault: "all",
};

function alone(name: string): Command {
  const part = parts[name] as Part;
  return command({
    about: part.about,
    options: {},
    async run(_, report) {
      if (part.isOfBuild !== true || tryPart("build", parts["build"] as Part, report)) tryPart(name, part, report);
      return name;
    },
  });
}

/** Whether a part finds nothing wrong. It prints what it finds itself. */
function tryPart(name: string, { lines }: Part, report: Report): boolean {
  const failed = lines.find((line) => spawnSync(line, { cwd: ROOT, shell: true, stdio: "inherit" }).status !== 0);
  if (failed !== undefined) report.wrong(`${name}: ${failed} has failed`);
  return failed === undefined;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit(await start(check, process.argv.slice(2)));
