/*
 * Measures the statements of a process, which loads this file with `--import`. When the process ends, the times in
 * milliseconds are written to the file that CADENZA_TIMES names. A statement outside of a transaction is one itself.
 */
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { getBuiltinModule } from "node:process";

const Database =
  getBuiltinModule("node:sqlite")?.DatabaseSync ?? createRequire(join(process.cwd(), "package.json"))("libsql");
const { prepare } = Database.prototype;
const times = [];
let longest = { ms: 0, cpuMs: 0, sql: "" };

Database.prototype.prepare = function (sql) {
  const statement = prepare.call(this, sql);
  for (const name of ["get", "all"]) {
    const read = statement[name].bind(statement);
    statement[name] = (...values) => {
      const before = process.cpuUsage();
      const began = performance.now();
      try {
        return read(...values);
      } finally {
        const ms = performance.now() - began;
        times.push(ms);
        const { user, system } = process.cpuUsage(before);
        if (ms > longest.ms) longest = { ms, cpuMs: (user + system) / 1_000, sql };
      }
    };
  }
  return statement;
};

process.on("exit", () => writeFileSync(process.env.CADENZA_TIMES, JSON.stringify({ times, longest })));
