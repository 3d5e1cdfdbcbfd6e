import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../harness/sqlite-files.ts";

const SCRIPT = fileURLToPath(new URL("./hold-programs.ts", import.meta.url));

/** The output of a program. A program that does not end with code 0 fails the test. */
async function linesOf(...args: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, ["--import", "tsx", SCRIPT, ...args]);
  return stdout.trimEnd().split("\n");
}

describe("A program that only its runtime keeps alive", () => {
  it("comes to its end when it waits for a run between two attempts", async () => {
    expect(await linesOf("retry")).toEqual(["completed"]);
  });

  it("comes to its end when it follows a run whose question has a deadline", async () => {
    expect(await linesOf("deadline")).toEqual(["awaiting", "run.in-progress", "generic", "run.completed"]);
  });

  it("releases its runs before it ends, when it is stopped between two attempts", async () => {
    const folder = temporaryFolder();
    const file = join(folder.path, "runs.db");
    expect(await linesOf("handover", file)).toEqual(["left call#1"]);
    expect(await linesOf("next", file)).toEqual(["released", "taken over"]);
    folder.remove();
  });
});
