/**
 * Packs the package from a clean copy of the repository, installs it into an empty project as a user would, and uses it
 * there: from an ES module, from CommonJS, and from TypeScript under both module resolutions. Links in its pages have
 * to lead to files in the package.
 */
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import ts from "typescript";
import { deadLinks } from "../test/docs/links.ts";
import { entryNames } from "./entries.ts";
import { keptLicences } from "./notices.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const FIXTURES = join(ROOT, "test/package");
const ALLOWED_FILES =
  /^(package\.json|README\.md|LICENSE|llms\.txt|skills\/cadenza\/SKILL\.md|templates\/app\/(?!.*node_modules).+|(CHANGELOG|CONTRIBUTING|SECURITY)\.md|docs\/(?:[\w-]+\/){0,2}[\w-]+\.(md|svg)|docs\/pictures\/[\w-]+\.(png|webp)|examples\/(?!.*node_modules).+\.(md|ts|jsx|css|json|go)|dist\/(?:client\/)?[\w-]+\.(js|cjs|d\.ts|d\.cts)|dist\/(THIRD_PARTY_NOTICES\.md|sbom\.cdx\.json))$/;
/** Entries that run where there is no Node, too. */
const NODE_FREE = new Set([
  "index",
  "http",
  "store",
  "ai-sdk",
  "ag-ui",
  "a2a",
  "mcp",
  "client",
  "client/react",
  "otel",
  "schedules",
  "admin",
  "inspector",
]);

/** What esbuild writes before code of a package. It is not in the page, which is minified. */
const origin = /\/\/ \S*node_modules\/((?:@[^/\s]+\/)?[^/\s]+)\//g;
/** The packages of which the inspector's page is made. */
const OF_THE_PAGE = ["@iconify-json/lucide", "preact", "@preact/signals", "@preact/signals-core"];

const workspace = mkdtempSync(join(tmpdir(), "cadenza-package-"));
/** The project of a user. */
const folder = join(workspace, "project");
const installed = join(folder, "node_modules/cadenza");
try {
  const tarball = pack(copyRepository());
  await checkResolution(tarball);
  install(tarball);
  checkEntries();
  checkNodeFree();
  checkLinks();
  checkNotices();
  run(process.execPath, ["use.mjs"]);
  run(process.execPath, ["use.cjs"]);
  run(process.execPath, ["leaky.mjs"]);
  run(process.execPath, ["leaky.cjs"]);
  checkCommand();
  checkTypes();
  checkDeclarations();
  checkInit(tarball);
  // Both tools check the installed package, and pack nothing.
  run(process.execPath, [tool("publint/src/cli.js"), installed, "--strict", "--pack", "false"]);
  console.log(`The packed package works: ${entryNames.join(", ")}; ES module, CommonJS and types.`);
} finally {
  rmSync(workspace, { recursive: true, force: true });
}

/** A copy of the repository with its dependencies, and without built files. */
function copyRepository(): string {
  const ignored = new Set([
    ".git",
    ".ci",
    ...readFileSync(join(ROOT, ".gitignore"), "utf8")
      .split(/\/?\n/)
      .filter((line) => line !== ""),
  ]);
  const copy = join(workspace, "repository");
  cpSync(ROOT, copy, { recursive: true, filter: (path) => !ignored.has(relative(ROOT, path)) });
  symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));
  return copy;
}

/** Makes the tarball and checks that only what users need is in it. */
function pack(repository: string): string {
  const [report] = JSON.parse(run("npm", ["pack", "--json", "--pack-destination", workspace], repository)) as [
    PackReport,
  ];
  const strangers = report.files.filter(({ path }) => !ALLOWED_FILES.test(path)).map(({ path }) => path);
  if (strangers.length > 0) throw new Error(`the package holds what no user needs: ${strangers.join(", ")}`);
  return join(workspace, report.filename);
}

/** Checks that each entry has types that fit its code, for ES modules and for CommonJS. */
async function checkResolution(tarball: string): Promise<void> {
  const analysis = await checkPackage(createPackageFromTarballData(readFileSync(tarball)));
  if (!analysis.types) throw new Error("the package has no types");
  // The resolution of Node 10 knows no `exports`.
  const problems = analysis.problems.filter((one) => !("resolutionKind" in one) || one.resolutionKind !== "node10");
  if (problems.length > 0) throw new Error(`the package has wrong types: ${JSON.stringify(problems, null, 2)}`);
}

interface PackReport {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}

function install(tarball: string): void {
  mkdirSync(folder);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }));
  run("npm", ["install", tarball, "--no-audit", "--no-fund", "--prefer-offline"]);
  for (const file of ["use.mjs", "use.cjs", "leaky.mjs", "leaky.cjs", "leaky-agent.cjs"])
    copyFileSync(join(FIXTURES, file), join(folder, file));
  for (const file of ["use.mts", "use.cts"]) copyFileSync(join(FIXTURES, "use.ts"), join(folder, file));
}

/** Every entry loads both ways and exports the same names. Those for React and OpenTelemetry find them, as with users. */
function checkEntries(): void {
  mkdirSync(join(folder, "node_modules/@opentelemetry"));
  for (const peer of ["react", "@opentelemetry/api"])
    symlinkSync(join(ROOT, "node_modules", peer), join(folder, "node_modules", peer));
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

/** The command line is there under its name. */
function checkCommand(): void {
  const { version } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8")) as { version: string };
  const said = run(join(folder, "node_modules/.bin/cadenza"), ["--version"]);
  if (said !== `${version}\n`) throw new Error(`cadenza --version says ${said}`);
}

/** Follows the built files from each entry that must run without Node. None loads a file of the other module system: that is another copy. */
function checkNodeFree(): void {
  for (const entry of entryNames.filter((name) => NODE_FREE.has(name))) {
    for (const ending of ["js", "cjs"]) {
      const waiting = [join(folder, "node_modules/cadenza/dist", `${entry}.${ending}`)];
      for (const file of waiting) {
        // Read as code: an import in an example in a comment is none.
        const { importedFiles } = ts.preProcessFile(readFileSync(file, "utf8"), true, true);
        for (const { fileName: target } of importedFiles) {
          if (target.startsWith("node:")) throw new Error(`${specifier(entry)} needs ${target}, in ${file}`);
          if (target.startsWith(".") && !target.endsWith(`.${ending}`)) throw new Error(`${file} loads ${target}`);
          const next = join(dirname(file), target);
          if (target.startsWith(".") && !waiting.includes(next)) waiting.push(next);
        }
      }
    }
  }
}

/**
 * Follows the links of every page. On the registry's page they lead into the repository, which `package.json` names.
 */
function checkLinks(): void {
  const pages = readdirSync(installed, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".md"));
  const dead = pages.flatMap((page) => deadLinks(installed, page).map((target) => `${page}: ${target}`));
  if (pages.length < 10 || dead.length > 0) throw new Error(`links lead nowhere in the package:\n${dead.join("\n")}`);
}

/** The notices and the bill of materials name each package whose code is in the built files. */
function checkNotices(): void {
  const dist = join(installed, "dist");
  const names = new Set(OF_THE_PAGE);
  for (const file of readdirSync(dist, { recursive: true, encoding: "utf8" }).filter((path) => /\.c?js$/.test(path)))
    for (const [, name] of readFileSync(join(dist, file), "utf8").matchAll(origin))
      if (name !== undefined) names.add(name);
  const notices = readFileSync(join(dist, "THIRD_PARTY_NOTICES.md"), "utf8");
  const { components } = JSON.parse(readFileSync(join(dist, "sbom.cdx.json"), "utf8")) as {
    components: readonly { readonly name: string; readonly properties: readonly { readonly value: string }[] }[];
  };
  for (const name of names) {
    const license = readFileSync(keptLicences[name] ?? join(ROOT, "node_modules", name, "LICENSE"), "utf8").trim();
    if (!notices.includes(`## ${name} `) || !notices.includes(license))
      throw new Error(`dist/THIRD_PARTY_NOTICES.md lacks the licence of ${name}`);
    if (!components.some((one) => one.name === name && one.properties[0]?.value === "bundled"))
      throw new Error(`dist/sbom.cdx.json lacks ${name}`);
  }
  for (const name of ["eventemitter3", "nanoid", "zod"])
    if (!components.some((one) => one.name === name)) throw new Error(`dist/sbom.cdx.json lacks ${name}`);
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
    // A bundler that is told to emit ES modules takes no CommonJS files.
    const files = moduleResolution === "bundler" ? ["*.mts"] : ["*.mts", "*.cts"];
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: files }));
    run(process.execPath, [tool("typescript/bin/tsc"), "-p", folder]);
  }
}

/**
 * Writes the declarations of code that exports what the library gives back, and names no type: each file alone, since a
 * type that one entry gives back may be exported by another, which the file does not import.
 */
function checkDeclarations(): void {
  const faults: string[] = [];
  for (const name of readdirSync(join(FIXTURES, "declared"))) {
    for (const ending of [".mts", ".cts"]) {
      const file = join(folder, name.replace(".ts", ending));
      copyFileSync(join(FIXTURES, "declared", name), file);
      const program = ts.createProgram([file], {
        module: ts.ModuleKind.Node16,
        moduleResolution: ts.ModuleResolutionKind.Node16,
        target: ts.ScriptTarget.ES2022,
        lib: ["lib.es2023.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
        types: [],
        strict: true,
        skipLibCheck: true,
        declaration: true,
        emitDeclarationOnly: true,
      });
      const written: string[] = [];
      const { diagnostics } = program.emit(undefined, (_path, text) => written.push(text));
      for (const { messageText } of [...ts.getPreEmitDiagnostics(program), ...diagnostics])
        faults.push(`${name} as ${ending}: ${ts.flattenDiagnosticMessageText(messageText, " ")}`);
      if (written.length !== 1 || written.some((text) => text.includes("/dist/")))
        faults.push(`${name} as ${ending}: its declarations name files of the package`);
    }
  }
  if (faults.length > 0) throw new Error(`the declarations of users cannot be written:\n${faults.join("\n")}`);
}

/** The tarball alone makes an application, whose types are right and whose tests pass: on a Node that it can use. */
function checkInit(tarball: string): void {
  if (!("typescript" in process.features) || process.features.typescript === false) {
    console.log(`Skipped: an application of cadenza init needs a newer Node than ${process.versions.node}.`);
    return;
  }
  const app = join(workspace, "app");
  // npx takes an absolute path for a program.
  run("npx", ["--yes", `./${basename(tarball)}`, "init", app], workspace);
  const { dependencies } = JSON.parse(readFileSync(join(app, "package.json"), "utf8")) as {
    dependencies: { cadenza: string };
  };
  if (dependencies.cadenza !== `file:../${basename(tarball)}`)
    throw new Error(`the application depends on ${dependencies.cadenza}`);
  run("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline"], app);
  run("npm", ["run", "--silent", "types"], app);
  run("npm", ["test", "--silent"], app);
}

function specifier(entry: string): string {
  return entry === "index" ? "cadenza" : `cadenza/${entry}`;
}

function tool(path: string): string {
  return join(ROOT, "node_modules", path);
}

function run(command: string, parameters: readonly string[], cwd = folder): string {
  return execFileSync(command, parameters, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
}
