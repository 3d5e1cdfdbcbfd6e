/**
 * Leaves the tenant out of each key and query that contains one, in a copy of the project, and runs the tests that have to
 * notice it. Exits with 1 if they do not. `npm run test:mutants -- --only inspector` tries those whose name contains the
 * text, or one of several, `--from 20` those from a number on.
 */
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { Mutant } from "../test/harness/mutants/mutants.ts";
import { tenantMutants } from "../test/harness/mutants/tenants.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** What the tests read of the project. */
const COPIED = ["src", "test", "scripts", "examples", "docs", "package.json", "tsconfig.json", "vitest.config.ts"];
/** A mutant may make a test wait for ever. */
const LONGEST_MS = 120_000;

const { values } = parseArgs({
  options: { only: { type: "string", multiple: true, default: [""] }, from: { type: "string", default: "1" } },
});

const copy = mkdtempSync(join(tmpdir(), "mutants-"));
try {
  for (const name of COPIED) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));
  const survivors: string[] = [];
  for (const [index, one] of tenantMutants.entries()) {
    if (index + 1 < Number(values.from) || !values.only.some((text) => one.name.includes(text))) continue;
    const outcome = await outcomeOf(one);
    if (outcome === "survived") survivors.push(one.name);
    console.log(`${index + 1}/${tenantMutants.length} ${outcome}: ${one.name}`);
  }
  console.log(`${survivors.length} have survived.`);
  for (const name of survivors) console.log(name);
  process.exitCode = survivors.length === 0 ? 0 : 1;
} finally {
  rmSync(copy, { recursive: true, force: true });
}

async function outcomeOf({ edits, tests }: Mutant): Promise<"survived" | "found" | "found, by its time"> {
  for (const { file, find, put } of edits) {
    const source = readFileSync(join(copy, file), "utf8");
    writeFileSync(
      join(copy, file),
      source.replace(find, () => put),
    );
  }
  const outcome = await run(tests);
  for (const { file } of edits) cpSync(join(ROOT, file), join(copy, file));
  return outcome;
}

/** Runs tests in the copy, up to the first that fails. */
function run(tests: readonly string[]): Promise<"survived" | "found" | "found, by its time"> {
  return new Promise((resolve, reject) => {
    const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
    const given = [vitest, "run", "--bail", "1", ...tests];
    const child = spawn(process.execPath, given, { cwd: copy, stdio: "ignore", detached: true });
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
