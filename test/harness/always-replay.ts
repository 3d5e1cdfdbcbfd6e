import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Agent, AgentFunction, AgentOptions, AgentRuntime, Clock } from "cadenza";
import { MemoryStore } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { onTestFinished } from "vitest";
import { makeEmptyFile, openDatabase, temporaryFolder } from "./sqlite-files.ts";

/*
 * The tests of the runtime run a second time with every agent durable, and replayed after each commit: the results have
 * to be the same. `CADENZA_REPLAY` names the store, `memory` or `sqlite`.
 */

const mode = process.env["CADENZA_REPLAY"];

/** Whether this is the second time. */
export const replays = mode !== undefined;

/** How many turns of the event loop an agent needs at most that is replayed so often. */
export const REPLAY_TURNS = 150;

export function openStore(clock: Clock): Store {
  return mode === "sqlite" ? openFile(clock) : new MemoryStore({ clock });
}

/** A store on a file of the test's own. */
export function openFile(clock: Clock): Store {
  const folder = temporaryFolder();
  const path = join(folder.path, "runs.db");
  makeEmptyFile(path);
  const store = new SqliteStore(openDatabase(path), {
    synchronous: "NORMAL",
    closeDatabase: true,
    clock,
  });
  onTestFinished(() => {
    store.close();
    rmSync(folder.path, { recursive: true, force: true });
  });
  return store;
}

function madeDurable(given: unknown): unknown {
  const { fn, options } = (given ?? {}) as Partial<Agent>;
  return fn === undefined ? given : { ...(given as Agent), options: { durable: true, ...options } };
}

/** Makes a runtime register every agent as durable. Invalid arguments reach it unchanged. */
export function makeDurable(runtime: AgentRuntime): AgentRuntime {
  const register = runtime.register.bind(runtime);
  return Object.assign(runtime, {
    register(...given: readonly unknown[]) {
      const [first, second, third] = given;
      if (typeof first === "object") return register(...(given.map(madeDurable) as [Agent]));
      if (typeof second === "function") return register(first as string, { durable: true }, second as AgentFunction);
      const options = (second as AgentOptions | undefined) && { durable: true, ...(second as AgentOptions) };
      return register(first as string, options as AgentOptions, third as AgentFunction);
    },
  });
}
