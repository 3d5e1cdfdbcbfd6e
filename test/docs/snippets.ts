import ts from "typescript";
import type { Block, Page } from "./pages.ts";
import { blocksOf, ROOT } from "./pages.ts";

/**
 * The `ts` blocks of one page that belong together. A block that begins with an import begins a new program; the blocks
 * after it continue it. A block that is marked `no-run — why` is compiled with the others, and left out when they are
 * run; one that is marked `node 22.13 — why` is run where Node is as new as that.
 */
export interface Snippet {
  /** The page and the line of the first block. */
  readonly name: string;
  readonly blocks: readonly Block[];
}

/** The programs that a page shows. */
export function snippetsOf(page: Page): readonly Snippet[] {
  const programs: Block[][] = [];
  for (const block of blocksOf(page)) {
    if (block.language !== "ts") continue;
    const current = programs.at(-1);
    if (current === undefined || block.code.startsWith("import ")) programs.push([block]);
    else current.push(block);
  }
  return joined(programs).map((blocks) => ({ name: `${page.path}:${blocks[0]?.line}`, blocks }));
}

/** Blocks that import something and still use what an earlier block of the page declared continue it, if they declare nothing again. */
function joined(programs: readonly Block[][]): readonly Block[][] {
  const result: Block[][] = [];
  for (const program of programs) {
    const previous = result.at(-1);
    const continues =
      previous !== undefined &&
      freeNames(program).some((name) => declaredNames(previous).has(name)) &&
      ![...topNames(program)].some((name) => topNames(previous).has(name));
    if (continues) previous.push(...program);
    else result.push([...program]);
  }
  return result;
}

function source(blocks: readonly Block[]): string {
  return blocks.map(({ code }) => code).join("\n");
}

function parse(blocks: readonly Block[]): ts.SourceFile {
  return ts.createSourceFile("page.ts", source(blocks), ts.ScriptTarget.ESNext, true);
}

function declaredNames(blocks: readonly Block[]): ReadonlySet<string> {
  const names = new Set<string>();
  const add = (name: ts.BindingName): void => {
    if (ts.isIdentifier(name)) names.add(name.text);
    else for (const element of name.elements) if (ts.isBindingElement(element)) add(element.name);
  };
  for (const statement of parse(blocks).statements) {
    if (ts.isVariableStatement(statement))
      for (const declaration of statement.declarationList.declarations) add(declaration.name);
    else if ((ts.isFunctionDeclaration(statement) || ts.isClassDeclaration(statement)) && statement.name !== undefined)
      names.add(statement.name.text);
  }
  return names;
}

/** The names that blocks declare or import. */
function topNames(blocks: readonly Block[]): ReadonlySet<string> {
  const names = new Set(declaredNames(blocks));
  const visit = (node: ts.Node): void => {
    if (ts.isImportSpecifier(node)) names.add(node.name.text);
    ts.forEachChild(node, visit);
  };
  visit(parse(blocks));
  return names;
}

/** The names that stand alone in the code and are neither imported nor declared at its top. */
function freeNames(blocks: readonly Block[]): readonly string[] {
  const own = new Set(declaredNames(blocks));
  const free = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (ts.isImportSpecifier(node)) own.add(node.name.text);
    if (ts.isIdentifier(node) && ts.isExpression(node) && !isMember(node)) free.add(node.text);
    ts.forEachChild(node, visit);
  };
  visit(parse(blocks));
  return [...free].filter((name) => !own.has(name));
}

function isMember(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent)) return parent.name === node;
  return (
    (ts.isPropertyAssignment(parent) || ts.isParameter(parent) || ts.isBindingElement(parent)) && parent.name === node
  );
}

/** The files beside the snippets, which are read once however often snippets are compiled. */
const read = new Map<string, ts.SourceFile | undefined>();

/** Compiles all snippets at once, as strictly as the library itself, and gives the errors of each. */
export function compile(snippets: readonly Snippet[]): ReadonlyMap<string, readonly string[]> {
  const { config } = ts.readConfigFile(`${ROOT}tsconfig.json`, ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, ROOT);
  const files = new Map(snippets.map((snippet, index) => [`${ROOT}test/docs/snippet-${index}.ts`, snippet]));
  const compilerOptions: ts.CompilerOptions = {
    ...options,
    declaration: false,
    // A page may declare names without using them, and reads process.env.KEY as its readers do.
    noUnusedLocals: false,
    noUnusedParameters: false,
    noPropertyAccessFromIndexSignature: false,
  };
  const host = ts.createCompilerHost(compilerOptions);
  const { fileExists, getSourceFile } = host;
  host.fileExists = (file) => files.has(file) || fileExists.call(host, file);
  host.getSourceFile = (file, version, ...rest) => {
    const snippet = files.get(file);
    if (snippet === undefined) {
      if (!read.has(file)) read.set(file, getSourceFile.call(host, file, version, ...rest));
      return read.get(file);
    }
    return ts.createSourceFile(file, source(snippet.blocks), version, true);
  };
  const program = ts.createProgram([...files.keys()], compilerOptions, host);
  return new Map(
    [...files].map(([file, snippet]) => {
      const sourceFile = program.getSourceFile(file);
      const found = [...program.getSyntacticDiagnostics(sourceFile), ...program.getSemanticDiagnostics(sourceFile)];
      return [snippet.name, found.map((diagnostic) => describe(diagnostic, snippet))];
    }),
  );
}

/** The error, and its line on the page. */
function describe({ messageText, file, start = 0 }: ts.Diagnostic, { blocks }: Snippet): string {
  let line = file === undefined ? 0 : file.getLineAndCharacterOfPosition(start).line;
  for (const block of blocks) {
    const length = block.code.split("\n").length;
    if (line < length) return `line ${block.line + line}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
    line -= length;
  }
  return ts.flattenDiagnosticMessageText(messageText, "\n");
}
