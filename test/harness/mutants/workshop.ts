import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Mutant } from "./mutants.ts";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** What the tests read of the project. */
const COPIED = ["src", "test", "scripts", "examples", "docs", "package.json", "tsconfig.json", "vitest.config.ts"];
/** A mutant may make a test wait for ever. */
const LONGEST_MS = 120_000;

export type Outcome = "survived" | "found" | "found, by its time";

/** A copy of the project, in which mutants are tried. */
export class Workshop {
  readonly #copy = mkdtempSync(join(tmpdir(), "mutants-"));

  constructor() {
    for (const name of COPIED) cpSync(join(ROOT, name), join(this.#copy, name), { recursive: true });
    symlinkSync(join(ROOT, "node_modules"), join(this.#copy, "node_modules"));
  }

  /** Whether the tests of a mutant find it. */
  async outcomeOf({ edits, tests }: Mutant): Promise<Outcome> {
    for (const { file, find, put } of edits) {
      const path = join(this.#copy, file);
      const mutated = readFileSync(path, "utf8").replace(find, () => put);
      writeFileSync(path, mutated);
    }
    const outcome = await this.#run(tests);
    for (const { file } of edits) cpSync(join(ROOT, file), join(this.#copy, file));
    return outcome;
  }

  remove(): void {
    rmSync(this.#copy, { recursive: true, force: true });
  }

  /** Runs tests in the copy, up to the first that fails. */
  #run(tests: readonly string[]): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
      const given = [vitest, "run", "--bail", "1", ...tests];
      const child = spawn(process.execPath, given, { cwd: this.#copy, stdio: "ignore", detached: true });
      let isLate = false;
      const late = setTimeout(() => {
        isLate = true;
        // With the processes that it has started.
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      }, LONGEST_MS);
      child.once("error", reject).once("exit", (code) => {
        clearTimeout(late);
        resolve(isLate ? "found, by its time" : code === 0 ? "survived" : "found");
      });
    });
  }
}
