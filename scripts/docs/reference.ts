import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { entryNames } from "../entries.ts";

/*
 * The reference of the API: a page for each entry of the package, with what its docstrings say of each exported name, of its
 * members, and of the parts that have no exported name. `npm run generate -- reference` writes the pages, and a test
 * compares them with the sources.
 */

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const SOURCES = join(ROOT, "src");
/** The folder of the pages, from the root. */
export const REFERENCE = "docs/reference/api";

/** What each entry is for. */
const ABOUT: Readonly<Record<string, string>> = {
  index: "The runtime, and what agents are made of.",
  http: "A runtime over HTTP, for clients of ACP and of its own extensions.",
  testing: "Driving agents in tests, crashing them everywhere, and the contract suite of stores.",
  store: "What a store has to be, and what makes one durable.",
  sqlite: "Runs in a SQLite file.",
  postgres: "Runs in a PostgreSQL database.",
  "ai-sdk": "Models and tools of the AI SDK as steps, and chat pages with `useChat`.",
  client: "The typed client, for browsers and Node.",
  "client/react": "A run in a component of React.",
  nats: "Waking workers by NATS JetStream.",
  "ag-ui": "Agents for hosts that speak AG-UI.",
  a2a: "Agents for other agents that speak A2A.",
  mcp: "Agents as tools and tasks of the Model Context Protocol.",
  otel: "Spans and metrics for OpenTelemetry.",
  schedules: "Runs at given times, with time zones.",
  admin: "The operator's side of a runtime, in process.",
  inspector: "The operator's page, behind a router of your own.",
};

/** The pages of the reference by their paths from the root, and the exported names without a docstring. */
export interface Reference {
  readonly pages: ReadonlyMap<string, string>;
  readonly undocumented: readonly string[];
}

/** What the reference should be, by the sources. */
export function referenceOfSources(): Reference {
  const { config } = ts.readConfigFile(join(ROOT, "tsconfig.json"), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: [], files: [] }, ts.sys, ROOT);
  const entries = entryNames.map((name) => ({ name, file: join(SOURCES, `${name}.ts`), about: ABOUT[name] ?? "" }));
  const program = ts.createProgram(
    entries.map(({ file }) => file),
    options,
  );
  return referenceOf(program, entries, (file) => file.startsWith(SOURCES));
}

export interface Entry {
  readonly name: string;
  readonly file: string;
  readonly about: string;
}

/** @param isOwn Whether a file belongs to the package: types of other packages are named, not described. */
export function referenceOf(
  program: ts.Program,
  entries: readonly Entry[],
  isOwn: (file: string) => boolean,
): Reference {
  const writer = new Writer(program, isOwn);
  const modules = entries.map((entry) => ({ entry, symbols: writer.exportsOf(entry) }));
  const pages = modules.map(({ entry, symbols }) => [pathOf(entry.name), writer.page(entry, symbols)] as const);
  const list = entries.map(({ name, about }) => `- [${importOf(name)}](${relativeTo(INDEX, name)}): ${about}`);
  const index = `${GENERATED}\n# API\n\nEvery exported name of each entry, from the docstrings of the sources.\n\n${list.join("\n")}\n`;
  return { pages: new Map([[INDEX, index], ...pages]), undocumented: writer.undocumented };
}

const INDEX = `${REFERENCE}/README.md`;
const GENERATED = "<!-- Written by `npm run generate -- reference`. -->\n";

function importOf(entry: string): string {
  return entry === "index" ? "cadenza" : `cadenza/${entry}`;
}

function pathOf(entry: string): string {
  return `${REFERENCE}/${importOf(entry).replaceAll("/", "-")}.md`;
}

function relativeTo(page: string, entry: string): string {
  return relative(dirname(page), pathOf(entry));
}

function linkTo(entry: string, home: string, { name }: ts.Symbol): string {
  return `${relativeTo(pathOf(entry), home)}#${name.toLowerCase()}`;
}

/** The kinds of names, in the order of a page. */
const KINDS = ["Classes", "Functions", "Values", "Types"] as const;

class Writer {
  readonly undocumented: string[] = [];
  readonly #checker: ts.TypeChecker;
  readonly #program: ts.Program;
  readonly #isOwn: (file: string) => boolean;
  /** The entry that exports each symbol first. */
  readonly #homes = new Map<ts.Symbol, string>();

  constructor(program: ts.Program, isOwn: (file: string) => boolean) {
    this.#program = program;
    this.#checker = program.getTypeChecker();
    this.#isOwn = isOwn;
  }

  exportsOf({ name, file }: Entry): readonly ts.Symbol[] {
    const source = this.#program.getSourceFile(file);
    const module = source && this.#checker.getSymbolAtLocation(source);
    if (module === undefined) throw new Error(`${file} is no module.`);
    const symbols = this.#checker.getExportsOfModule(module).toSorted((one, other) => (one.name < other.name ? -1 : 1));
    for (const symbol of symbols) {
      const meant = this.#meant(symbol);
      if (!this.#homes.has(meant)) this.#homes.set(meant, name);
    }
    return symbols;
  }

  page({ name, about }: Entry, symbols: readonly ts.Symbol[]): string {
    const parts = new Set<ts.Symbol>();
    const described = symbols.map((symbol) => this.#describe(name, symbol, parts));
    const texts: string[] = [];
    const elsewhere: string[] = [];
    // Describing a part may find further ones, which the loop reaches.
    for (const part of parts) {
      const home = this.#homes.get(part);
      if (home === undefined) {
        this.#homes.set(part, name);
        texts.push(`### ${part.name}\n\n${this.#body(part, parts)}`);
      } else if (home !== name) elsewhere.push(`[\`${part.name}\`](${linkTo(name, home, part)})`);
    }
    const lists = KINDS.flatMap((kind) => {
      const names = symbols.filter((symbol) => this.#kindOf(this.#meant(symbol)) === kind).map((symbol) => symbol.name);
      return names.length === 0
        ? []
        : [`${kind}: ${names.map((one) => `[\`${one}\`](#${one.toLowerCase()})`).join(", ")}`];
    });
    const ofParts =
      texts.length === 0
        ? []
        : ["## Parts", "Types that the names above are made of. They are not exported.", ...texts.toSorted()];
    const ofOthers = elsewhere.length === 0 ? [] : ["## Types of other entries", elsewhere.toSorted().join(", ")];
    return [GENERATED, `# ${importOf(name)}\n`, about, ...lists, ...described, ...ofParts, ...ofOthers]
      .join("\n\n")
      .replace(/\n{3,}/g, "\n\n")
      .concat("\n");
  }

  #describe(entry: string, exported: ts.Symbol, parts: Set<ts.Symbol>): string {
    const symbol = this.#meant(exported);
    const title = `## ${exported.name}`;
    const home = this.#homes.get(symbol) ?? entry;
    if (home !== entry) return `${title}\n\nAs in [\`${importOf(home)}\`](${linkTo(entry, home, symbol)}).`;
    if (this.#docOf(symbol) === "") this.undocumented.push(`${importOf(entry)}: ${exported.name}`);
    return `${title}\n\n${this.#body(symbol, parts)}`;
  }

  #body(symbol: ts.Symbol, parts: Set<ts.Symbol>): string {
    const declarations = (symbol.declarations ?? []).filter((one) => this.#isOwn(one.getSourceFile().fileName));
    const [first] = declarations;
    if (first === undefined) return "A type of another package.";
    const texts = [this.#docOf(symbol)];
    if (ts.isClassDeclaration(first) || ts.isInterfaceDeclaration(first)) {
      if (first.typeParameters !== undefined) texts.push(code(headOf(first)));
      texts.push(this.#members(this.#checker.getDeclaredTypeOfSymbol(symbol), first, parts));
      if (ts.isClassDeclaration(first)) texts.splice(1, 0, ...this.#constructors(first, parts));
    } else if (ts.isTypeAliasDeclaration(first) && ts.isTypeLiteralNode(first.type)) {
      texts.push(this.#members(this.#checker.getDeclaredTypeOfSymbol(symbol), first, parts));
    } else {
      const shown = declarations.filter(
        (one) => !ts.isFunctionDeclaration(one) || !isImplementation(one, declarations),
      );
      texts.push(code(shown.map((one) => this.#signature(one, parts)).join("\n")));
      const called = shown.flatMap((one) => (ts.isFunctionDeclaration(one) ? this.#parameters(one) : []));
      texts.push([...new Set(called)].join("\n"));
    }
    texts.push(this.#examplesOf(symbol));
    return texts.filter((text) => text !== "").join("\n\n");
  }

  #constructors(declaration: ts.ClassDeclaration, parts: Set<ts.Symbol>): readonly string[] {
    const made = declaration.members.filter((member) => ts.isConstructorDeclaration(member));
    const shown = made.filter((one) => made.length === 1 || one.body === undefined).filter((one) => !isHidden(one));
    return shown.map((one) => {
      this.#collect(one, parts);
      const text = `new ${declaration.name?.text}(${one.parameters.map(parameterOf).join(", ")})`;
      const doc = ts.getJSDocCommentsAndTags(one).map((node) => ts.getTextOfJSDocComment(node.comment) ?? "");
      return [code(text), prose(doc.join(" "))].filter((part) => part !== "").join("\n\n");
    });
  }

  /** A list of the members of a class or an interface, with those that it inherits from what no entry exports. */
  #members(type: ts.Type, owner: ts.Declaration, parts: Set<ts.Symbol>): string {
    const bases = this.#exportedBases(owner);
    for (const base of bases) parts.add(base);
    const inherited = new Set(bases.flatMap((base) => this.#namesOf(this.#checker.getDeclaredTypeOfSymbol(base))));
    const told =
      bases.length === 0 ? [] : [`With the members of ${bases.map(({ name }) => `\`${name}\``).join(" and ")}.\n`];
    const listed = this.#checker
      .getPropertiesOfType(type)
      // The names of symbols tell how many the compiler has seen before.
      .filter((member) => !inherited.has(member.name) && !member.name.startsWith("__@"))
      .filter((member) => !(member.declarations ?? []).some(isHidden))
      .map((member) => {
        const own = (member.declarations ?? []).filter((one) => this.#isOwn(one.getSourceFile().fileName));
        const shown = own.filter((one) => !ts.isMethodDeclaration(one) || !isImplementation(one, own));
        const signatures = shown.map((one) => this.#memberText(member, one, owner, parts));
        const about = this.#docOf(member).replace(/\n+/g, " ");
        const text = [...new Set(signatures)].map((one) => `\`${one}\``).join(", ");
        const example = this.#examplesOf(member).replaceAll("\n", "\n  ");
        return `- ${text === "" ? `\`${member.name}\`` : text}${about === "" ? "" : `: ${about}`}${example === "" ? "" : `\n\n  ${example}\n`}`;
      });
    return [...told, ...listed].join("\n");
  }

  /** What a class or an interface extends or implements, as far as an entry exports it. */
  #exportedBases(owner: ts.Declaration): readonly ts.Symbol[] {
    if (!ts.isClassDeclaration(owner) && !ts.isInterfaceDeclaration(owner)) return [];
    return (owner.heritageClauses ?? []).flatMap(({ types }) =>
      types.flatMap(({ expression }) => {
        const symbol = this.#checker.getSymbolAtLocation(expression);
        const meant = symbol && this.#meant(symbol);
        return meant !== undefined && this.#homes.has(meant) ? [meant] : [];
      }),
    );
  }

  #namesOf(type: ts.Type): readonly string[] {
    return this.#checker.getPropertiesOfType(type).map(({ name }) => name);
  }

  #memberText(member: ts.Symbol, declaration: ts.Declaration, owner: ts.Declaration, parts: Set<ts.Symbol>): string {
    this.#collect(declaration, parts);
    const mark = (member.flags & ts.SymbolFlags.Optional) === 0 ? "" : "?";
    if (ts.isMethodSignature(declaration) || ts.isMethodDeclaration(declaration))
      return `${member.name}${mark}${callOf(declaration)}`;
    const { type } = declaration as { type?: ts.TypeNode };
    const written =
      type !== undefined && ts.isPropertySignature(declaration)
        ? oneLine(type.getText())
        : this.#checker.typeToString(
            this.#checker.getTypeOfSymbolAtLocation(member, owner),
            owner,
            ts.TypeFormatFlags.NoTruncation | ts.TypeFormatFlags.UseAliasDefinedOutsideCurrentScope,
          );
    return `${member.name}${mark}: ${mark === "" ? written : written.replace(/ \| undefined$/, "")}`;
  }

  #signature(declaration: ts.Declaration, parts: Set<ts.Symbol>): string {
    this.#collect(declaration, parts);
    if (ts.isFunctionDeclaration(declaration)) return `function ${declaration.name?.text}${callOf(declaration)}`;
    if (ts.isVariableDeclaration(declaration)) {
      const type =
        declaration.type?.getText() ?? this.#checker.typeToString(this.#checker.getTypeAtLocation(declaration));
      return `const ${declaration.name.getText()}: ${type}`;
    }
    return withoutComments(declaration.getText()).replace(/^export /, "");
  }

  #parameters(declaration: ts.FunctionDeclaration): readonly string[] {
    return declaration.parameters.flatMap((one) => {
      const [tag] = ts.getJSDocParameterTags(one);
      const text = prose(ts.getTextOfJSDocComment(tag?.comment) ?? "");
      return text === "" ? [] : [`- \`${one.name.getText()}\`: ${text}`];
    });
  }

  /** Adds the types of the package that a declaration names. */
  #collect(declaration: ts.Node, parts: Set<ts.Symbol>): void {
    const visit = (node: ts.Node): void => {
      if (ts.isBlock(node)) return;
      if (ts.isTypeReferenceNode(node) || ts.isExpressionWithTypeArguments(node)) {
        const name = ts.isTypeReferenceNode(node) ? node.typeName : node.expression;
        const symbol = this.#checker.getSymbolAtLocation(name);
        const meant = symbol && this.#meant(symbol);
        if (meant !== undefined && this.#isPart(meant)) parts.add(meant);
      }
      ts.forEachChild(node, visit);
    };
    visit(declaration);
  }

  #isPart(symbol: ts.Symbol): boolean {
    const [declaration] = symbol.declarations ?? [];
    return (
      declaration !== undefined &&
      (ts.isInterfaceDeclaration(declaration) || ts.isTypeAliasDeclaration(declaration)) &&
      this.#isOwn(declaration.getSourceFile().fileName)
    );
  }

  #kindOf(symbol: ts.Symbol): (typeof KINDS)[number] {
    if ((symbol.flags & ts.SymbolFlags.Class) !== 0) return "Classes";
    if ((symbol.flags & ts.SymbolFlags.Function) !== 0) return "Functions";
    return (symbol.flags & ts.SymbolFlags.Variable) === 0 ? "Types" : "Values";
  }

  #meant(symbol: ts.Symbol): ts.Symbol {
    return (symbol.flags & ts.SymbolFlags.Alias) === 0 ? symbol : this.#checker.getAliasedSymbol(symbol);
  }

  #docOf(symbol: ts.Symbol): string {
    const tags = symbol.getJsDocTags(this.#checker).flatMap(({ name, text }) => {
      const about = prose(ts.displayPartsToString(text));
      const label = { returns: "Gives:", throws: "Throws:", default: "Default:", deprecated: "Deprecated:" }[name];
      return label === undefined || about === "" ? [] : [`${label} ${about}`];
    });
    return [prose(ts.displayPartsToString(symbol.getDocumentationComment(this.#checker))), ...tags]
      .filter((text) => text !== "")
      .join("\n\n");
  }

  #examplesOf(symbol: ts.Symbol): string {
    return symbol
      .getJsDocTags(this.#checker)
      .filter(({ name }) => name === "example")
      .map(({ text }) => ts.displayPartsToString(text).replace(/^```ts.*$/gm, "```typescript"))
      .join("\n\n");
  }
}

/** Whether users do not see a member. */
function isHidden(declaration: ts.Declaration): boolean {
  const isPrivate = (ts.getCombinedModifierFlags(declaration) & ts.ModifierFlags.NonPublicAccessibilityModifier) !== 0;
  const name = ts.getNameOfDeclaration(declaration);
  const isUnseen = isPrivate || (name !== undefined && ts.isPrivateIdentifier(name));
  return isUnseen || ts.getJSDocTags(declaration).some(({ tagName }) => tagName.text === "internal");
}

/** Whether a function is the one behind the overloads that users see. */
function isImplementation(one: ts.FunctionDeclaration | ts.MethodDeclaration, all: readonly ts.Declaration[]): boolean {
  return one.body !== undefined && all.length > 1;
}

function callOf(declaration: ts.SignatureDeclaration): string {
  const { typeParameters, parameters, type } = declaration;
  const generic = typeParameters === undefined ? "" : `<${typeParameters.map((one) => one.getText()).join(", ")}>`;
  const result = type === undefined ? "" : `: ${type.getText()}`;
  return oneLine(withoutComments(`${generic}(${parameters.map(parameterOf).join(", ")})${result}`));
}

function parameterOf({ dotDotDotToken, name, questionToken, initializer, type }: ts.ParameterDeclaration): string {
  const called = ts.isIdentifier(name) ? name.text : "options";
  const mark = questionToken === undefined && initializer === undefined ? "" : "?";
  return `${dotDotDotToken === undefined ? "" : "..."}${called}${mark}: ${type?.getText() ?? "unknown"}`;
}

function headOf(declaration: ts.ClassDeclaration | ts.InterfaceDeclaration): string {
  const generic = declaration.typeParameters?.map((one) => one.getText()).join(", ") ?? "";
  return `${ts.isClassDeclaration(declaration) ? "class" : "interface"} ${declaration.name?.text}<${oneLine(generic)}>`;
}

function code(text: string): string {
  return `\`\`\`typescript\n${text}\n\`\`\``;
}

/** A docstring as Markdown: links to names are code, and a paragraph is a line. */
function prose(text: string): string {
  return text
    .replace(/\{@link ([^\s}|]+)\s*\|?\s*([^}]*)\}/g, (_, name: string, label: string) => label || `\`${name}\``)
    .replace(/([^\n])\n(?![\n\-*|])/g, "$1 ")
    .trim();
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\/\s*/g, "");
}

function oneLine(text: string): string {
  return withoutComments(text).replace(/\s+/g, " ");
}
