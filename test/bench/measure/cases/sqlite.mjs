import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { rateAtOnce, rateOf } from "../rates.mjs";

const WIDTH = 50;

/** Durable runs in a SQLite file that is written through to the disk: one after the other, and 50 at a time. */
export async function measureSqlite(name, scale) {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-bench-"));
  const { openSqliteFloor, openSqliteCadenza } = await import("../subjects/sqlite.mjs");
  const open = { "bare-duties": openSqliteFloor, cadenza: openSqliteCadenza }[name];
  const subject = await open(join(folder, "runs.db"));
  const part = scale === "quick" ? 20 : 1000;
  const figures = {};
  for (const kind of ["run", "cycle"]) {
    const one = (index) => subject[kind](`text ${index}`);
    await rateOf(0.5 * part, one);
    figures[`${kind} in turn`] = await rateOf(part, one);
    await rateAtOnce(WIDTH, 0.3 * part, one);
    figures[`${kind} at once`] = await rateAtOnce(WIDTH, part, one);
  }
  await subject.close();
  rmSync(folder, { recursive: true, force: true });
  return figures;
}
