import { readFileSync } from "node:fs";
import { inspect } from "node:util";
import { AgentRuntime, CadenzaError, textOf } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { SqliteStore } from "cadenza/sqlite";
import { expect, it } from "vitest";
import { SCOPE_VERSION } from "../../../src/otel/scope.ts";
import { refusal } from "../../harness/runtimes.ts";

it("an unknown agent's error lists those that are registered, and clients do not read the list", async () => {
  const runtime = new AgentRuntime();
  expect((await refusal(runtime.createRun({ agent_name: "x", input: "" }))).message).toBe(
    'There is no agent "x". None is registered.',
  );
  for (let n = 1; n <= 12; n++) runtime.register(`a${n}`, () => "");
  expect((await refusal(runtime.createRun({ agent_name: "x", input: "" }))).message).toBe(
    'There is no agent "x". Registered: "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10", and 2 more.',
  );
  const response = await createAcpHandler(runtime)(new Request("http://localhost/agents/x"));
  expect([response.status, await response.json()]).toMatchObject([404, { message: 'There is no agent "x".' }]);
});

it("an error has no properties without a value", () => {
  const error = new CadenzaError("run_not_found", "There is no run.", { run_id: "1" });
  expect(Object.keys(error)).toEqual(["name", "code", "run_id"]);
  expect(error.limit).toBeUndefined();
  expect(inspect(error)).not.toContain("undefined");
});

it("a path in place of a database names the function that takes it", () => {
  const open = () => new SqliteStore("x.db" as never);
  expect(open).toThrow(
    'db: expected a database handle of node:sqlite, better-sqlite3 or libsql, received string. openSqliteStore("x.db") opens',
  );
});

it("the text of an output leaves out messages without text", () => {
  const message = (content: string) => ({
    role: "agent" as const,
    parts: [{ content_type: "text/plain", content_encoding: "plain" as const, content }],
  });
  expect(textOf({ output: [message(""), message("Done."), message(""), message("Bye.")] } as never)).toBe(
    "Done.\nBye.",
  );
});

it("the instrumentation scope has the version of the package", () => {
  const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  expect(SCOPE_VERSION).toBe(version);
});
