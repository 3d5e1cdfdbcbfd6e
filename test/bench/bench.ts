import { fileURLToPath } from "node:url";
import type { Command, Script } from "../harness/commands/commands.ts";
import { command, start } from "../harness/commands/commands.ts";
import { writeFiles } from "./pages.ts";
import { planned } from "./planned.ts";

const pages = command({
  about: "Writes the kept figures of test/bench/figures into the pages that show them.",
  options: {},
  async run(_, report) {
    const changed = writeFiles();
    for (const path of changed) report.say(`${path} has changed.`);
    return `${changed.length} changed files`;
  },
});

const commands: Readonly<Record<string, () => Promise<Command>>> = {
  floors: async () => planned("floors", "Measures the library against floors written by hand. Takes a minute or two."),
  peers: async () => planned("peers", "Measures the library beside its peers, which it installs into test/bench."),
  growth: async () => planned("growth", "Measures how costs grow. Takes some minutes, and some gigabytes of memory."),
  postgres: async () =>
    planned("postgres", "Measures the store on PostgreSQL, beside DBOS, which it installs into test/bench."),
  admin: async () => (await import("./admin.ts")).bench,
  inspector: async () => (await import("./inspector.ts")).bench,
  "inspector-page": async () => (await import("./inspector-page.ts")).bench,
  json: async () => (await import("./json.ts")).bench,
  pages: async () => pages,
};

/** `npm run bench` */
export const bench: Script = {
  name: "bench",
  about: "what the library costs",
  names: Object.keys(commands),
  load: async (name) => (commands[name] as () => Promise<Command>)(),
  byDefault: "floors",
};

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit(await start(bench, process.argv.slice(2)));
