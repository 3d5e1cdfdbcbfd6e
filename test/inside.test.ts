import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, it } from "vitest";

/*
 * Tests use the library as its users do: they import its entries. What the harness needs of the inside comes through one
 * file, `test/harness/internals.ts`. A test of one module imports this module. Each of them is listed here.
 */

const DOOR = "test/harness/internals.ts";

/** The tests of whole folders that have no entry of their own. */
const FOLDERS: Readonly<Record<string, readonly string[]>> = {
  "test/core/": ["core/", "protocol/"],
  "test/protocol/": ["protocol/"],
};

/** The samples of the store contract, for more tests of stores. */
const CONTRACT = ["stores/contract/check", "stores/contract/samples"];
const USERS_OF_CONTRACT = ["test/stores/", "test/postgres/", "test/harness/", "test/bench/", "test/stress/"];

/** What each test of one module imports, and what the harness needs. */
const FILES: Readonly<Record<string, readonly string[]>> = {
  [DOOR]: [
    "core/commands",
    "core/decide",
    "core/detail",
    "core/evolve",
    "core/failure",
    "core/feed",
    "core/fork",
    "core/json",
    "core/log",
    "core/operation-keys",
    "core/pauses",
    "core/ports",
    "core/project",
    "core/promises",
    "core/record",
    "core/run-map",
    "core/slots",
    "core/state",
    "core/statistics",
    "protocol/agent",
    "protocol/error",
    "protocol/event",
    "protocol/message",
    "protocol/run",
    "runtime/execution/random",
    "runtime/log/system",
    "stores/contract/check",
    "stores/gates",
    "stores/memory/memory",
    "stores/postgres/connection",
    "stores/postgres/options",
    "stores/postgres/schema",
    "stores/sqlite/database",
    "stores/sqlite/entries",
  ],
  "test/admin/timeline.test.ts": ["admin/timeline-fold"],
  "test/cli/command-line.system.test.ts": ["inspector/api"],
  "test/client/server-events.test.ts": ["client/server-events"],
  "test/core/background.test.ts": ["runtime/log/system"],
  "test/core/counting.test.ts": ["admin/timeline-fold"],
  "test/docs/tables.test.ts": ["durable/recovery/options", "inspector/options", "runtime/runs/options"],
  "test/durable/store-failures/lost-store-answers.test.ts": [
    ...["durable/recovery/write-conflicts", "runtime/log/refusals", "runtime/log/run-write"],
    "runtime/log/store-failures",
  ],
  "test/durable/sub-runs/shown-sub-runs.test.ts": ["core/emission-source"],
  "test/durable/taking-over/keeping-owners.test.ts": [
    "durable/recovery/keeping-owners",
    "durable/recovery/leased-head",
  ],
  "test/durable/tenants.test.ts": [
    ...["core/format", "durable/recovery/damaged-runs", "durable/recovery/follower", "durable/recovery/heartbeat"],
    ...["durable/recovery/remote-posts", "durable/recovery/wakeups", "durable/recovery/worker"],
    ...["durable/recovery/due-hints", "durable/replay/history", "runtime/runs/committed-above"],
  ],
  "test/http/docs.test.ts": ["faces/acp/options", "http/errors"],
  "test/http/event-text.test.ts": ["faces/acp/event-formats", "http/event-text"],
  "test/http/json-text.test.ts": ["http/json-text"],
  "test/http/same-ids.test.ts": ["http/caller", "http/disconnects", "http/readers"],
  "test/inspector/consequences.test.ts": ["inspector/api", "inspector-page/consequences"],
  "test/inspector/feeds.test.ts": ["inspector/api"],
  "test/inspector/hostile.test.ts": ["inspector/api"],
  "test/inspector/inbox.test.ts": ["inspector/api"],
  "test/inspector/playground.test.ts": ["inspector/api"],
  "test/inspector/schema-form.test.ts": ["inspector-page/schema"],
  "test/inspector/comparison.test.ts": ["admin/timeline", "inspector-page/comparison/pairs"],
  "test/inspector/tenants.test.ts": ["inspector/api", "inspector/states"],
  "test/inspector/waterfall.test.ts": [
    ...["admin/records", "admin/timeline", "inspector-page/waterfall/rows", "inspector-page/waterfall/scale"],
    "inspector-page/waterfall/spans",
  ],
  "test/postgres/operators/feed.test.ts": ["stores/postgres/writes"],
  "test/runtime/events/detailed-events.test.ts": ["protocol/extensions"],
  "test/runtime/limits/active-time.test.ts": ["runtime/log/active-time"],
  "test/runtime/runs/sessions.test.ts": ["durable/replay/cassette"],
  "test/runtime/runs/stores.test.ts": [
    ...["runtime/log/fold-log", "runtime/log/run-log", "runtime/log/shared-by-runs", "runtime/log/store-clock"],
  ],
  "test/runtime/runs/what-errors-say.test.ts": ["otel/scope"],
  "test/schedules/rules.test.ts": ["schedules/state", "schedules/times"],
  "test/schedules/times.test.ts": ["schedules/times"],
  "test/stores/memory/run-index.test.ts": ["stores/memory/run-index"],
  "test/stores/sqlite/work.test.ts": ["stores/sqlite/entries"],
  "test/stores/sqlite/writer.test.ts": ["stores/sqlite/database"],
};

const ROOT = fileURLToPath(new URL("../", import.meta.url));

interface InnerImport {
  readonly file: string;
  /** The module below `src`, without its extension. */
  readonly module: string;
}

const found = testFiles().flatMap((file) => innerImports(file, readFileSync(join(ROOT, file), "utf8")));

it("each test imports the entries of the library, and of its inside what is listed", () => {
  const unlisted = found.filter((one) => !isListed(one)).map(({ file, module }) => `${file}: src/${module}.ts`);
  expect(unlisted).toEqual([]);
});

it("the list of what tests import of the inside names nothing that they do not import", () => {
  const imported = new Set(found.map(({ file, module }) => `${file}: ${module}`));
  const listed = Object.entries(FILES).flatMap(([file, modules]) => modules.map((module) => `${file}: ${module}`));
  expect(listed.filter((one) => !imported.has(one))).toEqual([]);
});

it.each([
  [`import type { RunState } from "../../src/core/state.ts";`, ["core/state"]],
  [`export { evolve } from "../../src/core/evolve.ts";`, ["core/evolve"]],
  [`const module = await import("../../src/core/evolve.ts");`, ["core/evolve"]],
  [`await vi.importActual("../../src/core/evolve.ts");`, ["core/evolve"]],
  [`import type { Run } from "cadenza";\nimport { World } from "./world.ts";`, []],
])("in %j a test imports %j of the inside", (text, modules) => {
  const file = "test/durable/a.test.ts";
  const imports = innerImports(file, text);
  expect(imports).toEqual(modules.map((module) => ({ file, module })));
  expect(imports.filter(isListed)).toEqual([]);
});

function isListed({ file, module }: InnerImport): boolean {
  if (FILES[file]?.includes(module)) return true;
  if (CONTRACT.includes(module) && USERS_OF_CONTRACT.some((folder) => file.startsWith(folder))) return true;
  const folder = Object.keys(FOLDERS).find((one) => file.startsWith(one)) ?? "";
  return FOLDERS[folder]?.some((place) => module.startsWith(place)) === true;
}

/** Every text in a file that is the path of a source, as imports, exports and mocks have it. */
function innerImports(file: string, text: string): InnerImport[] {
  const paths = ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName);
  const mocked = [...text.matchAll(/\bvi\.\w+\("(\.[^"]+)"/g)].map(([, path = ""]) => path);
  return [...paths, ...mocked]
    .filter((path) => path.startsWith("."))
    .map((path) =>
      relative(ROOT, join(ROOT, dirname(file), path))
        .split(sep)
        .join("/"),
    )
    .filter((path) => path.startsWith("src/"))
    .map((path) => ({ file, module: path.slice("src/".length).replace(/\.tsx?$/, "") }));
}

function testFiles(): string[] {
  return readdirSync(join(ROOT, "test"), { recursive: true, encoding: "utf8" })
    .map((path) => `test/${path.split(sep).join("/")}`)
    .filter((path) => /\.(?:[cm]?[jt]s|[jt]sx)$/.test(path) && !path.includes("node_modules/"));
}
