import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Command, Script } from "../test/harness/commands/commands.ts";
import { command, start } from "../test/harness/commands/commands.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const CHAT_PAGES = "docs/guides/pages.md";

const api = command({
  about: "Writes the surface of the package into test/api.txt.",
  options: {},
  async run() {
    const { API_FILE, currentApi } = await import("../test/architecture/api.ts");
    writeFileSync(API_FILE, currentApi());
    return "1 file";
  },
});

const reference = command({
  about: "Writes the reference of the API from the docstrings of the sources.",
  options: {},
  async run() {
    const { REFERENCE, referenceOfSources } = await import("./docs/reference.ts");
    const { pages } = referenceOfSources();
    rmSync(ROOT + REFERENCE, { recursive: true, force: true });
    mkdirSync(ROOT + REFERENCE);
    for (const [path, text] of pages) writeFileSync(ROOT + path, text);
    return `${pages.size} pages`;
  },
});

const chatTable = command({
  about: `Writes the table of ${CHAT_PAGES} from the rows of test/browser/chat-rows.ts, which are tested in a browser.`,
  options: {},
  async run() {
    const { withChatTable } = await import("../test/browser/chat-table.ts");
    writeFileSync(ROOT + CHAT_PAGES, withChatTable(readFileSync(ROOT + CHAT_PAGES, "utf8")));
    return "1 file";
  },
});

const goldenLogs = command({
  about: "Writes the logs that every later version has to read. A log that exists is kept.",
  options: {
    replace: {
      about: "Logs that are written again, which declares that later versions need not read the old ones.",
      default: [],
    },
  },
  async run({ replace }, report) {
    const { agents } = await import("../test/golden/agents.ts");
    const { record } = await import("../test/golden/play.ts");
    // The library does not keep the process alive.
    const alive = setInterval(() => undefined, 1_000);
    const names = Object.keys(agents);
    for (const name of names) {
      const file = `${ROOT}test/golden/${name}.json`;
      const isKept = existsSync(file) && !replace.includes(name);
      if (!isKept) writeFileSync(file, `${JSON.stringify(await record(name), null, 1)}\n`);
      report.say(`${isKept ? "kept   " : "written"} ${name}`);
    }
    clearInterval(alive);
    return `${names.length} logs`;
  },
});

const pictures = command({
  about: "Makes the pictures in docs/pictures, of the inspector and of the examples, and the moving one of the demo.",
  options: {},
  async run(_, report) {
    const { takeInspector } = await import("../test/browser/inspector-pictures.ts");
    const { takeExamples } = await import("../test/browser/example-pictures.ts");
    const { takeMovingPicture } = await import("../test/browser/moving-picture.ts");
    let taken = 0;
    const onTaken = (path: string): void => {
      taken += 1;
      report.say(path);
    };
    await takeInspector(onTaken);
    await takeExamples(onTaken);
    await takeMovingPicture(onTaken);
    return `${taken} pictures`;
  },
});

const killedRun = command({
  about: "Kills the process of a run, lets another one go on, and draws docs/killed-run.svg from what they say.",
  options: {},
  async run() {
    const { killRun, pictureOf } = await import("../test/docs/killed-run.ts");
    writeFileSync(`${ROOT}docs/killed-run.svg`, pictureOf(await killRun()));
    return "1 picture";
  },
});

const llms = command({
  about: "Writes llms.txt from the titles and first sentences of the pages.",
  options: {},
  async run() {
    const { currentLlms } = await import("../test/docs/llms.ts");
    writeFileSync(`${ROOT}llms.txt`, currentLlms(ROOT));
    return "1 file";
  },
});

const commands: Readonly<Record<string, Command>> = {
  api,
  "chat-table": chatTable,
  "golden-logs": goldenLogs,
  "killed-run": killedRun,
  llms,
  pictures,
  reference,
};

/** `npm run generate` */
export const generate: Script = {
  name: "generate",
  about: "files that are made from others",
  names: Object.keys(commands),
  load: async (name) => commands[name] as Command,
};

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit(await start(generate, process.argv.slice(2)));
