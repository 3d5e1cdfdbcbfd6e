import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

/*
 * The surface of the package: every name that an entry exports, with its signature. `npm run generate -- api` writes it into
 * test/api.txt, and `npm run check -- house` compares the two, so that a change of the surface is seen in review.
 */

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** The file of the surface. */
export const API_FILE = join(ROOT, "test/api.txt");

/** What test/api.txt holds. */
export function knownApi(): string {
  return readFileSync(API_FILE, "utf8");
}

/** What test/api.txt should hold, by the sources. */
export function currentApi(): string {
  return apiOf(entryFiles(), { ...compilerOptions(), removeComments: true });
}

/** The name of each entry, and its source file. */
export function entryFiles(): readonly (readonly [name: string, file: string])[] {
  const { exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { exports: object };
  return Object.entries(exports).flatMap(([key, target]) =>
    typeof target === "object" ? [[key === "." ? "cadenza" : `cadenza${key.slice(1)}`, sourceOf(key)] as const] : [],
  );
}

/** @param entries The name of each entry, and its file. */
export function apiOf(
  entries: readonly (readonly [name: string, file: string])[],
  options: ts.CompilerOptions,
  host?: ts.CompilerHost,
): string {
  const program = ts.createProgram(
    entries.map(([, file]) => file),
    options,
    host,
  );
  const surface = new Surface(program);
  const parts = entries.map(([name, file]) => surface.describe(name, file));
  const count = parts.reduce((sum, { names }) => sum + names, 0);
  return [`${count} names in ${parts.length} entries`, ...parts.map(({ text }) => text)].join("\n\n").concat("\n");
}

function sourceOf(key: string): string {
  return join(ROOT, "src", key === "." ? "index.ts" : `${key.slice(2)}.ts`);
}

/** How the sources are compiled to their declarations. */
export function compilerOptions(): ts.CompilerOptions {
  const { config } = ts.readConfigFile(join(ROOT, "tsconfig.json"), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: [], files: [] }, ts.sys, ROOT);
  return { ...options, noEmit: false, noCheck: true, emitDeclarationOnly: true };
}

/** The declarations of a program, as its users see them. */
class Surface {
  readonly #checker: ts.TypeChecker;
  readonly #program: ts.Program;
  /** The declaration file of each source that was asked for. */
  readonly #declared = new Map<ts.SourceFile, ts.SourceFile>();
  /** The entry that has each symbol first. */
  readonly #seen = new Map<ts.Symbol, string>();

  constructor(program: ts.Program) {
    this.#program = program;
    this.#checker = program.getTypeChecker();
  }

  describe(entry: string, file: string): { readonly names: number; readonly text: string } {
    const source = this.#program.getSourceFile(file);
    const module = source && this.#checker.getSymbolAtLocation(source);
    if (module === undefined) throw new Error(`${relative(ROOT, file)} is no module.`);
    const exported = this.#checker
      .getExportsOfModule(module)
      .toSorted((one, other) => (one.name < other.name ? -1 : 1));
    const lines = exported.map((symbol) => this.#describe(entry, symbol));
    return { names: lines.length, text: [`# ${entry}: ${lines.length}`, ...lines].join("\n\n") };
  }

  #describe(entry: string, exported: ts.Symbol): string {
    const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
    const symbol = isAlias ? this.#checker.getAliasedSymbol(exported) : exported;
    const before = this.#seen.get(symbol);
    if (before !== undefined) return `${exported.name}: as in ${before}`;
    this.#seen.set(symbol, entry);
    const texts = (symbol.declarations ?? []).map((one) => this.#declarationOf(one, symbol.name));
    const text = [...new Set(texts)].join("\n");
    return symbol.name === exported.name ? text : `${exported.name}: ${text}`;
  }

  #declarationOf(declaration: ts.Declaration, name: string): string {
    const source = declaration.getSourceFile();
    // A declaration of another package is known by its own name.
    if (source.isDeclarationFile) return `${name}: of ${relative(ROOT, source.fileName).split("node_modules/").at(-1)}`;
    const found = this.#declaredIn(source).statements.filter((statement) => namesOf(statement).includes(name));
    return found.map((statement) => tidy(statement.getText())).join("\n");
  }

  #declaredIn(source: ts.SourceFile): ts.SourceFile {
    let declared = this.#declared.get(source);
    if (declared === undefined) {
      let text = "";
      this.#program.emit(
        source,
        (_name, given) => {
          text = given;
        },
        undefined,
        true,
      );
      declared = ts.createSourceFile(`${source.fileName}.d.ts`, text, ts.ScriptTarget.Latest, true);
      this.#declared.set(source, declared);
    }
    return declared;
  }
}

function namesOf(statement: ts.Statement): readonly string[] {
  if (ts.isVariableStatement(statement))
    return statement.declarationList.declarations.map(({ name }) => name.getText());
  const { name } = statement as { name?: ts.Node };
  return name === undefined ? [] : [name.getText()];
}

/** Without what says nothing to a user: `export declare`, private fields, and the files that types come from. */
function tidy(text: string): string {
  return text
    .replace(/^export (?:declare )?/, "")
    .replace(/\n\s*#private;/g, "")
    .replace(/import\("[^"]*"\)\./g, "")
    .replace(/ {4}/g, "  ");
}

function main(): void {
  const current = currentApi();
  const known = knownApi();
  if (current === known) return;
  const lines = new Set(known.split("\n"));
  const first = current.split("\n").find((line) => !lines.has(line)) ?? "something is gone";
  console.log(`test/api.txt is out of date (${first}): npm run generate -- api`);
  process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
