/*
 * One of the processes of `sqlite-processes.system.test.ts`: writes runs of its own to a file, and to a run that all
 * share. Parameters: the file, the number of this process, how many runs.
 */

import { SqliteStore } from "cadenza/sqlite";
import {
  append,
  create,
  created,
  ended,
  head,
  message,
  over,
  part,
  runId,
  runKey,
  sessionId,
  write,
} from "../../../src/stores/contract/samples.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

const SHARED = 0;
const [file = "", number = "", count = ""] = process.argv.slice(2);
const store = new SqliteStore(openDatabase(file), { synchronous: "NORMAL", closeDatabase: true });
const owner = `process ${number}`;
await store.renew(owner, Number.MAX_SAFE_INTEGER);
await store.create(runKey(SHARED), write([created(SHARED)]), "shared");

await Promise.all(Array.from({ length: Number(count) }, (_, index) => oneRun(Number(number) * 1_000 + index)));
for (let index = 0; index < Number(count); index++) await shared(`${owner}: ${index}`);
store.close();

async function oneRun(n: number): Promise<void> {
  const session = { session_id: sessionId(1), create: true, messages: () => [message(runId(n))], at: n };
  const key = await create(store, n, { head: head({ owner }) });
  await append(store, key, 1, write([part("a")], { head: head({ owner }) }));
  await append(store, key, 2, write([ended()], { head: over(n), session }));
}

/** Adds a part to the run that all write to, at its current position. */
async function shared(text: string): Promise<void> {
  for (;;) {
    const position = store.find(runKey(SHARED))?.position ?? 0;
    if ((await store.append(runKey(SHARED), { epoch: 1, position }, write([part(text)]))) === undefined) return;
  }
}
