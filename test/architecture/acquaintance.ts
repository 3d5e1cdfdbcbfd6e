import { basename } from "node:path";
import ts from "typescript";
import { memoryHost } from "../harness/memory-host.ts";

/** How the objects of the two rooms know each other. */
export interface Acquaintance {
  /**
   * The interfaces that one class or one object satisfies, each with it. An interface counts if it has methods, or if a
   * class satisfies it. Those that the package exports do not count: users see them.
   */
  readonly interfaces: readonly string[];
  /** Pairs of classes that hold each other, as `A, B`. An interface that a class holds stands for all who satisfy it. */
  readonly pairs: readonly string[];
}

/** What satisfies an interface: a class, or an object. */
interface Implementer {
  readonly name: string;
  /** The class; of an object that uses `this`, the class in which it is written. */
  readonly type: ts.Symbol | undefined;
  readonly isClass: boolean;
}

const ROOT = "/src/";

/**
 * Tells how the objects of some folders know each other. The types of the language itself are not needed for that, and
 * are not loaded.
 *
 * @param files path relative to `src/`, with forward slashes → text
 */
export function acquaintanceIn(files: ReadonlyMap<string, string>, folders: readonly string[]): Acquaintance {
  const options: ts.CompilerOptions = {
    allowImportingTsExtensions: true,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    noEmit: true,
    noLib: true,
    strict: true,
    target: ts.ScriptTarget.ES2023,
    types: [],
  };
  const host = memoryHost(Object.fromEntries([...files].map(([path, text]) => [ROOT + path, text])));
  const program = ts.createProgram(
    [...files.keys()].map((path) => ROOT + path),
    options,
    host,
  );
  return new Reading(program, folders).acquaintance;
}

class Reading {
  readonly #checker: ts.TypeChecker;
  readonly #rooms: readonly ts.SourceFile[];
  readonly #public = new Set<ts.Symbol>();
  readonly #implementers = new Map<ts.Symbol, Map<string, Implementer>>();
  /** The interfaces whose objects are passed as another. */
  readonly #passedAs = new Map<ts.Symbol, Set<ts.Symbol>>();
  readonly #classes = new Map<ts.Symbol, ts.ClassLikeDeclaration>();
  readonly #subclasses = new Map<ts.Symbol, ts.Symbol[]>();

  constructor(program: ts.Program, folders: readonly string[]) {
    this.#checker = program.getTypeChecker();
    const pathOf = ({ fileName }: ts.SourceFile): string => fileName.slice(ROOT.length);
    const sources = program.getSourceFiles();
    this.#rooms = sources.filter((source) => folders.some((folder) => pathOf(source).startsWith(`${folder}/`)));
    for (const source of sources) if (!pathOf(source).includes("/")) this.#addExports(source);
    for (const source of this.#rooms) visit(source, (node) => this.#addClass(node));
    for (const source of this.#rooms) visit(source, (node) => this.#addImplementers(node));
  }

  get acquaintance(): Acquaintance {
    const interfaces: string[] = [];
    for (const source of this.#rooms)
      visit(source, (node) => {
        if (!ts.isInterfaceDeclaration(node)) return;
        const symbol = this.#checker.getSymbolAtLocation(node.name);
        if (symbol === undefined || this.#public.has(symbol)) return;
        const [only, ...others] = this.#satisfying(symbol);
        if (only === undefined || others.length > 0) return;
        if (acts(symbol) || only.isClass) interfaces.push(`${symbol.name}: ${only.name}`);
      });
    return { interfaces: interfaces.sort(), pairs: this.#pairs() };
  }

  #pairs(): readonly string[] {
    const held = new Map([...this.#classes].map(([symbol, node]) => [symbol, this.#heldBy(node)]));
    const pairs: string[] = [];
    for (const [one, its] of held)
      for (const other of its)
        if (one.name < other.name && held.get(other)?.has(one) === true) pairs.push(`${one.name}, ${other.name}`);
    return pairs.sort();
  }

  /** The classes whose objects a class may hold, by its fields and the parameters of its constructor. */
  #heldBy(node: ts.ClassLikeDeclaration): Set<ts.Symbol> {
    const held = new Set<ts.Symbol>();
    const add = (symbol: ts.Symbol | undefined): void => {
      if (symbol === undefined) return;
      if (this.#classes.has(symbol)) for (const each of this.#withSubclasses(symbol)) held.add(each);
      for (const { type } of this.#satisfying(symbol)) if (type !== undefined) held.add(type);
    };
    const read = (type: ts.Node): void => {
      // A function that calls back is not held.
      if (ts.isFunctionTypeNode(type)) return;
      if (ts.isIdentifier(type)) {
        const symbol = this.#resolve(this.#checker.getSymbolAtLocation(type));
        const alias = symbol?.declarations?.find(ts.isTypeAliasDeclaration);
        if (alias !== undefined && this.#rooms.includes(alias.getSourceFile())) read(alias.type);
        else add(symbol);
      }
      ts.forEachChild(type, read);
    };
    for (const member of node.members) {
      const typed = ts.isConstructorDeclaration(member)
        ? member.parameters
        : ts.isPropertyDeclaration(member)
          ? [member]
          : [];
      for (const { type, name, initializer } of typed)
        if (type !== undefined) read(type);
        else {
          add(this.#checker.getTypeAtLocation(name).getSymbol());
          if (initializer !== undefined && ts.isNewExpression(initializer)) initializer.typeArguments?.forEach(read);
        }
    }
    const [above] = this.#named(node, ts.SyntaxKind.ExtendsKeyword);
    const declared = above && this.#classes.get(above);
    for (const each of declared === undefined ? [] : this.#heldBy(declared)) held.add(each);
    return held;
  }

  #withSubclasses(symbol: ts.Symbol): readonly ts.Symbol[] {
    return [symbol, ...(this.#subclasses.get(symbol) ?? []).flatMap((each) => this.#withSubclasses(each))];
  }

  /** What satisfies an interface, also as another interface. */
  #satisfying(symbol: ts.Symbol): readonly Implementer[] {
    const found = new Map<string, Implementer>();
    const seen = new Set([symbol]);
    for (const each of seen) {
      for (const [name, implementer] of this.#implementers.get(each) ?? []) found.set(name, implementer);
      for (const other of this.#passedAs.get(each) ?? []) seen.add(other);
    }
    return [...found.values()];
  }

  #addExports(source: ts.SourceFile): void {
    const module = this.#checker.getSymbolAtLocation(source);
    for (const symbol of module === undefined ? [] : this.#checker.getExportsOfModule(module)) {
      const resolved = this.#resolve(symbol);
      if (resolved !== undefined) this.#public.add(resolved);
    }
  }

  #addClass(node: ts.Node): void {
    if (!ts.isClassDeclaration(node) || node.name === undefined) return;
    const symbol = this.#checker.getSymbolAtLocation(node.name);
    if (symbol === undefined) return;
    this.#classes.set(symbol, node);
    const [above] = this.#named(node, ts.SyntaxKind.ExtendsKeyword);
    if (above !== undefined) this.#subclasses.set(above, [...(this.#subclasses.get(above) ?? []), symbol]);
  }

  #addImplementers(node: ts.Node): void {
    if (ts.isClassDeclaration(node) && node.name !== undefined) {
      const symbol = this.#checker.getSymbolAtLocation(node.name);
      for (const each of this.#named(node, ts.SyntaxKind.ImplementsKeyword)) this.#satisfies(each, symbol, node);
      return;
    }
    if (!ts.isExpression(node)) return;
    const expected = this.#checker.getContextualType(node);
    if (expected === undefined) return;
    for (const part of expected.isUnion() ? expected.types : [expected]) {
      // Of `Pick<A, …>` the interface is `A`.
      const symbols = [part.getSymbol(), ...(part.aliasTypeArguments ?? []).map((type) => type.getSymbol())];
      for (const symbol of symbols) {
        if (symbol === undefined || (symbol.flags & ts.SymbolFlags.Interface) === 0) continue;
        const given = this.#checker.getTypeAtLocation(node);
        for (const type of given.isUnion() ? given.types : [given]) this.#satisfies(symbol, type.getSymbol(), node);
      }
    }
  }

  /** Notes that a class, or the object at a node, satisfies an interface and those that it extends. */
  #satisfies(symbol: ts.Symbol | undefined, given: ts.Symbol | undefined, node: ts.Node): void {
    if (symbol === undefined || given === undefined || symbol === given) return;
    const declared = symbol.declarations?.find(ts.isInterfaceDeclaration);
    if (declared === undefined || !this.#rooms.includes(declared.getSourceFile())) return;
    const isClass = (given.flags & ts.SymbolFlags.Class) !== 0;
    const isObject = (given.flags & ts.SymbolFlags.ObjectLiteral) !== 0;
    if ((given.flags & ts.SymbolFlags.Interface) !== 0)
      this.#passedAs.set(symbol, (this.#passedAs.get(symbol) ?? new Set()).add(given));
    if (!isClass && !isObject) return;
    const known = this.#implementers.get(symbol) ?? new Map<string, Implementer>();
    this.#implementers.set(symbol, known);
    if (isClass)
      for (const each of this.#withSubclasses(given)) known.set(each.name, { name: each.name, type: each, isClass });
    else {
      const literal = given.valueDeclaration ?? node;
      const holder = ts.findAncestor(literal, ts.isClassDeclaration)?.name;
      const isBound = acts(symbol) && usesThis(literal);
      const type = isBound && holder !== undefined ? this.#checker.getSymbolAtLocation(holder) : undefined;
      const name = `an object of ${holder?.text ?? basename(literal.getSourceFile().fileName)}`;
      known.set(`${name} at ${literal.pos}`, { name, type, isClass });
    }
    for (const each of this.#named(declared, ts.SyntaxKind.ExtendsKeyword)) this.#satisfies(each, given, node);
  }

  /** The classes or interfaces that a declaration extends or implements. */
  #named(node: ts.ClassLikeDeclaration | ts.InterfaceDeclaration, how: ts.SyntaxKind): readonly ts.Symbol[] {
    const types = node.heritageClauses?.filter(({ token }) => token === how).flatMap((clause) => clause.types) ?? [];
    return types.flatMap(({ expression }) => this.#resolve(this.#checker.getSymbolAtLocation(expression)) ?? []);
  }

  #resolve(symbol: ts.Symbol | undefined): ts.Symbol | undefined {
    if (symbol === undefined || (symbol.flags & ts.SymbolFlags.Alias) === 0) return symbol;
    return this.#checker.getAliasedSymbol(symbol);
  }
}

/** Whether an interface has methods. */
function acts(symbol: ts.Symbol): boolean {
  return (
    symbol.declarations?.some((node) => ts.isInterfaceDeclaration(node) && node.members.some(ts.isMethodSignature)) ===
    true
  );
}

function usesThis(node: ts.Node): boolean {
  return node.kind === ts.SyntaxKind.ThisKeyword || ts.forEachChild(node, usesThis) === true;
}

function visit(node: ts.Node, each: (node: ts.Node) => void): void {
  each(node);
  ts.forEachChild(node, (child) => visit(child, each));
}
