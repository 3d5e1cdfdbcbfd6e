import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { SqliteStore } from "cadenza/sqlite";
import { expect, it } from "vitest";
import { beginRuns, blockedOn, namedIn } from "../harness/checked-runs.ts";
import { openDatabase, withFile } from "../harness/sqlite-files.ts";

const RUNS = 100;

/** What is in each file of the database: the file itself, and what SQLite writes beside it. */
function bytesOf(file: string): readonly string[] {
  const folder = dirname(file);
  // SQLite keeps the locks of readers in the shared memory.
  const files = readdirSync(folder).filter((name) => !name.endsWith("-shm"));
  return files.toSorted().map(
    (name) =>
      `${name} ${createHash("sha256")
        .update(readFileSync(join(folder, name)))
        .digest("hex")}`,
  );
}

it("a check of a file names the runs that a deployment blocks, and leaves each byte of it", async () => {
  await withFile(async (file) => {
    const open = () => new SqliteStore(openDatabase(file), { closeDatabase: true });
    await beginRuns(open(), RUNS);
    const before = bytesOf(file);
    const reader = new SqliteStore(openDatabase(file), { readOnly: true, closeDatabase: true });
    const { ids } = await namedIn(reader);
    await reader.close();
    expect(bytesOf(file)).toEqual(before);
    expect(await blockedOn(open())).toEqual(ids);
    expect(ids.length).toBe(RUNS * 0.3);
  });
});
