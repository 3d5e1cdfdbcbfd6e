import { execFileSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "tsup";
import ts from "typescript";
import config from "../../tsup.config.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/**
 * A project of a user. It holds the built library, the packages of the repository, and the examples as plain
 * JavaScript.
 */
export interface Project {
  readonly folder: string;
  remove(): void;
}

/** Builds the library into a new project. */
export async function makeProject(): Promise<Project> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "cadenza-project-")));
  const own = join(folder, "node_modules/cadenza");
  mkdirSync(own, { recursive: true });
  await build({ ...config, config: false, format: "esm", dts: false, silent: true, outDir: join(own, "dist") });
  execFileSync(process.execPath, [join(ROOT, "scripts/finish-build.mjs"), join(own, "dist")]);
  for (const name of ["package.json", "templates"]) cpSync(join(ROOT, name), join(own, name), { recursive: true });
  for (const name of readdirSync(join(ROOT, "node_modules")).filter((name) => !name.startsWith(".")))
    symlinkSync(join(ROOT, "node_modules", name), join(folder, "node_modules", name));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "project", private: true, type: "module" }));
  // The licence audit reads the lock file in its folder.
  cpSync(join(ROOT, "package-lock.json"), join(folder, "package-lock.json"));
  const files = readdirSync(join(ROOT, "examples"), { recursive: true, encoding: "utf8" });
  for (const file of files.filter((file) => file.endsWith(".ts") && !file.includes("node_modules")))
    write(
      folder,
      `examples/${file.replace(/ts$/, "js")}`,
      javascriptOf(readFileSync(join(ROOT, "examples", file), "utf8")),
    );
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Writes a program of the project. */
export function write(folder: string, file: string, code: string): void {
  mkdirSync(dirname(join(folder, file)), { recursive: true });
  writeFileSync(join(folder, file), code);
}

/** The code without its types. */
export function javascriptOf(code: string): string {
  const { outputText } = ts.transpileModule(code, {
    compilerOptions: {
      target: ts.ScriptTarget.ES2023,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
      rewriteRelativeImportExtensions: true,
    },
  });
  return outputText;
}
