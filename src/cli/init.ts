import { randomBytes } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { cwd, stdin, stdout, versions } from "node:process";
import { createInterface } from "node:readline/promises";
import { fileURLToPath } from "node:url";
import { CommandError } from "./errors.ts";

const DEFAULT_FOLDER = "cadenza-app";
/** The first Node that executes TypeScript and has SQLite, which the application needs. */
const NEEDED = [22, 18] as const;
/** Files that npm leaves out of a package, or that a folder of the package must not have: they get their dot here. */
const DOTTED = ["gitignore", "env"];

/** The folder of this package. */
const OWN = dirname(createRequire(import.meta.url).resolve("cadenza/package.json"));

/** `cadenza init`: makes an application in a folder that is empty or does not exist. */
export async function init(given: string | undefined, { asks }: { readonly asks: boolean }): Promise<void> {
  checkNode();
  const folder = resolve(given ?? (asks && stdin.isTTY ? await askFolder() : DEFAULT_FOLDER));
  if (existsSync(folder) && readdirSync(folder).some((name) => name !== ".git"))
    throw new CommandError(`${shown(folder)} is not empty. Name a folder that is empty or does not exist.`);
  const { spec, note } = dependencyFor(folder);

  mkdirSync(folder, { recursive: true });
  // The folder may be a link to one.
  cpSync(join(OWN, "templates/app"), realpathSync(folder), { recursive: true });
  for (const name of DOTTED) renameSync(join(folder, name), join(folder, `.${name}`));
  edit(join(folder, "package.json"), (text) => {
    const manifest = JSON.parse(text) as { readonly dependencies: object };
    const dependencies = { ...manifest.dependencies, cadenza: spec };
    return `${JSON.stringify({ ...manifest, name: nameOf(folder), dependencies }, null, 2)}\n`;
  });
  edit(join(folder, ".env"), (text) =>
    text.replace("INSPECTOR_TOKEN=", `INSPECTOR_TOKEN=${randomBytes(24).toString("base64url")}`),
  );

  const steps = [...(folder === cwd() ? [] : [`cd ${shown(folder)}`]), "npm install", "npm run dev"];
  stdout.write(`Made an application in ${shown(folder)}.${note} What to do next:\n\n  ${steps.join("\n  ")}\n`);
}

function checkNode(): void {
  const [major = 0, minor = 0] = versions.node.split(".").map(Number);
  if (major > NEEDED[0] || (major === NEEDED[0] && minor >= NEEDED[1])) return;
  throw new CommandError(
    `The application needs Node ${NEEDED.join(".")} or newer, whose TypeScript and SQLite it uses. This is ${versions.node}.`,
  );
}

async function askFolder(): Promise<string> {
  const terminal = createInterface({ input: stdin, output: stdout });
  const answer = await terminal.question(`Folder (${DEFAULT_FOLDER}): `);
  terminal.close();
  return answer.trim() || DEFAULT_FOLDER;
}

/** What the application's `package.json` says for this package, and a sentence where it is not the registry's. */
function dependencyFor(folder: string): { readonly spec: string; readonly note: string } {
  const { version } = JSON.parse(readFileSync(join(OWN, "package.json"), "utf8")) as { readonly version: string };
  const from = installedFrom();
  if (from === undefined) return { spec: `^${version}`, note: "" };
  const path = relative(folder, from).split(sep).join("/");
  const note = ` It uses the cadenza of ${shown(from)}, which must stay there: see its package.json.`;
  return { spec: `file:${path}`, note };
}

/** The tarball or the folder from which this package was installed; undefined for a registry. */
function installedFrom(): string | undefined {
  const modules = dirname(OWN);
  // A clone, or a package that is linked to one.
  if (basename(modules) !== "node_modules") return OWN;
  const lock = join(modules, ".package-lock.json");
  if (!existsSync(lock)) return undefined;
  const { packages } = JSON.parse(readFileSync(lock, "utf8")) as {
    readonly packages?: Readonly<Record<string, { readonly resolved?: string }>>;
  };
  const resolved = packages?.["node_modules/cadenza"]?.resolved;
  if (resolved === undefined || !resolved.startsWith("file:")) return undefined;
  const target = resolved.slice("file:".length);
  return target.startsWith("//") ? fileURLToPath(resolved) : resolve(dirname(modules), target);
}

/** The name of the folder as the name of a package. */
function nameOf(folder: string): string {
  const name = basename(folder)
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[._-]+/, "");
  return name === "" ? DEFAULT_FOLDER : name;
}

function edit(file: string, change: (text: string) => string): void {
  writeFileSync(file, change(readFileSync(file, "utf8")));
}

/** A path as the user would write it. */
function shown(path: string): string {
  const near = relative(cwd(), path);
  if (near === "") return "this folder";
  const text = near.startsWith(`..${sep}..`) ? path : near;
  return text.includes(" ") ? JSON.stringify(text) : text;
}
