import { openSqliteStore } from "cadenza/sqlite";
import { expect, it, vi } from "vitest";

/* In a process of its own: it replaces a module. */

vi.mock("node:process", () => ({ getBuiltinModule: () => undefined }));

it("openSqliteStore names the package to install if Node has no SQLite", () => {
  const opening = () => openSqliteStore("runs.db");

  expect(opening).toThrow(expect.objectContaining({ name: "CadenzaError", code: "store_failed" }));
  expect(opening).toThrow("`libsql` or `better-sqlite3`");
  expect(opening).toThrow('new SqliteStore(new Database("runs.db"), { closeDatabase: true })');
});
