import { command } from "../harness/commands/commands.ts";
import { runNpm } from "../harness/commands/npm.ts";

const PROJECT = ["--prefix", "test/jest-project"];

export const trial = command({
  about: "Uses cadenza/testing with jest, in a project that installs the built library.",
  options: {},
  async run(_, report) {
    await runNpm("run", "build", "--silent");
    await runNpm(...PROJECT, "install", "--no-audit", "--no-fund");
    await runNpm(...PROJECT, "test").catch((error: Error) => report.wrong(error.message));
    return "the tests of test/jest-project";
  },
});
