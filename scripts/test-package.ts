/**
 * Packs the built package, installs it into an empty project as a user would, and uses it there:
 * from an ES module, from CommonJS, and from TypeScript under both module resolutions.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { entryNames } from "./entries.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const FIXTURES = join(ROOT, "test/package");
const ALLOWED_FILES = /^(package\.json|README\.md|LICENSE|CHANGELOG\.md|dist\/[\w-]+\.(js|cjs|d\.ts|d\.cts))$/;
/** Entries that run where there is no Node, too. */
const NODE_FREE = new Set(["index", "http"]);

const folder = mkdtempSync(join(tmpdir(), "cadenza-package-"));
try {
  const tarball = pack();
  install(tarball);
  checkEntries();
  checkNodeFree();
  run(process.execPath, ["use.mjs"]);
  run(process.execPath, ["use.cjs"]);
  run(process.execPath, ["leaky.mjs"]);
  run(process.execPath, ["leaky.cjs"]);
  checkTypes();
  console.log(`The packed package works: ${entryNames.join(", ")}; ES module, CommonJS and types.`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Makes the tarball and checks that only what users need is in it. */
function pack(): string {
  const [report] = JSON.parse(run("npm", ["pack", ROOT, "--json", "--ignore-scripts"])) as [PackReport];
  const strangers = report.files.filter(({ path }) => !ALLOWED_FILES.test(path)).map(({ path }) => path);
  if (strangers.length > 0) throw new Error(`the package holds what no user needs: ${strangers.join(", ")}`);
  return report.filename;
}

interface PackReport {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}

function install(tarball: string): void {
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }));
  run("npm", ["install", `./${tarball}`, "--no-audit", "--no-fund", "--prefer-offline"]);
  for (const file of ["use.mjs", "use.cjs", "leaky.mjs", "leaky.cjs", "leaky-agent.cjs"])
    copyFileSync(join(FIXTURES, file), join(folder, file));
  for (const file of ["use.mts", "use.cts"]) copyFileSync(join(FIXTURES, "use.ts"), join(folder, file));
}

/** Every entry loads both ways and exports the same names. */
function checkEntries(): void {
  const loads = entryNames.map((name) => `[${JSON.stringify(specifier(name))}, await import("${specifier(name)}")]`);
  const script = `
    import { createRequire } from "node:module";
    const require = createRequire(import.meta.url);
    for (const [name, entry] of [${loads.join(", ")}]) {
      const [esm, commonjs] = [entry, require(name)].map((one) => Object.keys(one).sort().join(" "));
      if (esm === "" || esm !== commonjs) throw new Error(name + " exports [" + esm + "] and [" + commonjs + "]");
    }
  `;
  writeFileSync(join(folder, "entries.mjs"), script);
  run(process.execPath, ["entries.mjs"]);
}

/** Follows the built files from each entry that must run without Node. */
function checkNodeFree(): void {
  for (const entry of entryNames.filter((name) => NODE_FREE.has(name))) {
    for (const ending of ["js", "cjs"]) {
      const waiting = [join(folder, "node_modules/cadenza/dist", `${entry}.${ending}`)];
      for (const file of waiting) {
        for (const [, target = ""] of readFileSync(file, "utf8").matchAll(
          /\b(?:from|import|require)\s*\(?\s*"([^"]+)"/g,
        )) {
          if (target.startsWith("node:")) throw new Error(`${specifier(entry)} needs ${target}, in ${file}`);
          const next = join(dirname(file), target);
          if (target.startsWith(".") && !waiting.includes(next)) waiting.push(next);
        }
      }
    }
  }
}

/** Compiles a use of the library, and an import of every entry, as ES module and as CommonJS. */
function checkTypes(): void {
  const imports = entryNames.map((name, index) => `export * as entry${index} from "${specifier(name)}";\n`).join("");
  for (const file of ["entries.mts", "entries.cts"]) writeFileSync(join(folder, file), imports);
  for (const [module, moduleResolution] of [
    ["node16", "node16"],
    ["esnext", "bundler"],
  ]) {
    const compilerOptions = {
      module,
      moduleResolution,
      target: "es2022",
      lib: ["es2023"],
      types: ["node"],
      typeRoots: [join(ROOT, "node_modules/@types")],
      strict: true,
      exactOptionalPropertyTypes: true,
      noEmit: true,
    };
    // CommonJS files make no sense to a bundler that is told to emit ES modules.
    const files = moduleResolution === "bundler" ? ["*.mts"] : ["*.mts", "*.cts"];
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: files }));
    run(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), "-p", folder]);
  }
}

function specifier(entry: string): string {
  return entry === "index" ? "cadenza" : `cadenza/${entry}`;
}

function run(command: string, parameters: readonly string[]): string {
  return execFileSync(command, parameters, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
}
