import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { SqliteStore } from "cadenza/sqlite";
import { expect, it } from "vitest";
import { runId, runKey, sessionKey } from "../../../src/stores/contract/samples.ts";
import { openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";

const HAMMER = fileURLToPath(new URL("./hammer.ts", import.meta.url));
const PROCESSES = [1, 2];
const RUNS = 100;

it("processes that write to one file at once lose nothing and fail at no lock", { timeout: 60_000 }, async () => {
  const folder = temporaryFolder();
  const file = join(folder.path, "runs.db");
  const run = promisify(execFile);
  const outputs = await Promise.all(
    PROCESSES.map((number) => run(process.execPath, ["--import", "tsx", HAMMER, file, `${number}`, `${RUNS}`])),
  );
  const store = new SqliteStore(openDatabase(file), { closeDatabase: true });
  const runs = store.list({ tenant: "acme", statuses: ["completed"], limit: 10_000, offset: 0 });
  const texts = store
    .read(runKey(0), 1, 10_000)
    ?.map((entry) => (entry.type === "emitted" && entry.kind === "part" ? entry.part.content : ""));
  const expectedTexts = PROCESSES.flatMap((number) =>
    Array.from({ length: RUNS }, (_, n) => `process ${number}: ${n}`),
  );
  const expectedRuns = PROCESSES.flatMap((number) => Array.from({ length: RUNS }, (_, n) => runId(number * 1_000 + n)));
  const history = store.session(sessionKey(1))?.history.map((one) => one.parts[0]?.content);

  expect(outputs.map(({ stdout }) => stdout)).toEqual(PROCESSES.map(() => ""));
  expect(runs.map(({ key }) => key.run_id).sort()).toEqual(expectedRuns.sort());
  expect(runs.every(({ position }) => position === 3)).toBe(true);
  expect(history?.toSorted()).toEqual(expectedRuns.sort());
  expect(texts?.toSorted()).toEqual(expectedTexts.sort());
  store.close();
  folder.remove();
});
