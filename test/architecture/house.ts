import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { readSources } from "./sources.ts";

/* How deep the modules of the two rooms are: `npm run check -- house` prints the figures, and fails if one gets worse. */

/** The shape of the two rooms. Each figure may only fall. */
export interface House {
  readonly folders: number;
  readonly "files in the largest folder": number;
  /** Files that import one another, one after the other. */
  readonly "longest chain of imports in the plain room": number;
  readonly "members of the ports": number;
  /** Methods and getters whose whole body is one member of a field, called with the same parameters, or read. */
  readonly "methods that pass on": number;
  readonly "interfaces that one class implements": number;
  /** Classes that hold each other. A class that gives another one a closure over `this` is held by it. */
  readonly "pairs that know each other": number;
  readonly "boolean fields": number;
  readonly "boolean parameters": number;
}

/** What each figure is, and may not exceed. Who makes one smaller writes it down. */
const most: House = {
  folders: 8,
  "files in the largest folder": 20,
  "longest chain of imports in the plain room": 14,
  "members of the ports": 24,
  "methods that pass on": 39,
  "interfaces that one class implements": 6,
  "pairs that know each other": 9,
  "boolean fields": 28,
  "boolean parameters": 9,
};

/** What joins the two rooms. */
const PORTS = ["Residence", "Journal", "RemoteRuns", "LogResidence"];
const PLAIN = "runtime/";

/** A class, as far as it is known by its text. */
interface Known {
  /** The types of its fields. */
  readonly holds: ReadonlySet<string>;
  /** The classes to which it gives itself or a closure over itself. */
  readonly speaksTo: ReadonlySet<string>;
}

/** @param files path relative to `src/`, with forward slashes → text */
export function measureHouse(files: ReadonlyMap<string, string>): House {
  const sources = [...files].map(([path, text]) => ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true));
  const nodes = sources.flatMap(allNodes);
  const classes = nodes.filter(ts.isClassDeclaration);
  const members = classes.flatMap(({ members: all }) => [...all]);
  const interfaces = new Map(nodes.filter(ts.isInterfaceDeclaration).map((one) => [one.name.text, one]));
  const implementers = implementersIn(classes);
  const perFolder = grouped([...files.keys()], dirname);
  return {
    folders: perFolder.size,
    "files in the largest folder": Math.max(...[...perFolder.values()].map(({ length }) => length)),
    "longest chain of imports in the plain room": longestChain(sources),
    "members of the ports": PORTS.reduce((sum, port) => sum + membersOf(interfaces.get(port)?.members), 0),
    "methods that pass on": members.filter(passesOn).length,
    "interfaces that one class implements": [...implementers].filter(
      ([name, by]) => interfaces.has(name) && by.length === 1,
    ).length,
    "pairs that know each other": pairsOf(classes, implementers),
    "boolean fields": members.filter((one) => ts.isPropertyDeclaration(one) && isBoolean(one)).length,
    "boolean parameters": nodes.filter(
      (one) => ts.isParameter(one) && !ts.isArrowFunction(one.parent) && isBoolean(one),
    ).length,
  };
}

function allNodes(root: ts.Node): readonly ts.Node[] {
  const all: ts.Node[] = [];
  const visit = (node: ts.Node): void => {
    all.push(node);
    ts.forEachChild(node, visit);
  };
  visit(root);
  return all;
}

function isBoolean({ type, initializer }: ts.PropertyDeclaration | ts.ParameterDeclaration): boolean {
  const kind = initializer?.kind;
  return type?.getText() === "boolean" || kind === ts.SyntaxKind.TrueKeyword || kind === ts.SyntaxKind.FalseKeyword;
}

function longestChain(sources: readonly ts.SourceFile[]): number {
  const imports = new Map(
    sources
      .filter(({ fileName }) => fileName.startsWith(PLAIN))
      .map((source) => [source.fileName, source.statements.flatMap((statement) => importedBy(source, statement))]),
  );
  const depths = new Map<string, number>();
  const depthOf = (file: string): number => {
    const known = depths.get(file);
    if (known !== undefined) return known;
    const depth = 1 + Math.max(0, ...(imports.get(file) ?? []).filter((one) => imports.has(one)).map(depthOf));
    depths.set(file, depth);
    return depth;
  };
  return Math.max(0, ...[...imports.keys()].map(depthOf));
}

function importedBy({ fileName }: ts.SourceFile, statement: ts.Statement): readonly string[] {
  if (!ts.isImportDeclaration(statement) || !ts.isStringLiteral(statement.moduleSpecifier)) return [];
  return [join(dirname(fileName), statement.moduleSpecifier.text).replaceAll("\\", "/")];
}

/** How many members an interface has, together with the objects in it. */
function membersOf(members: readonly ts.TypeElement[] = []): number {
  return members.reduce((sum, one) => {
    const type = ts.isPropertySignature(one) ? one.type : undefined;
    return sum + (type !== undefined && ts.isTypeLiteralNode(type) ? membersOf([...type.members]) : 1);
  }, 0);
}

function passesOn(member: ts.ClassElement): boolean {
  if (!(ts.isMethodDeclaration(member) || ts.isGetAccessor(member)) || member.body?.statements.length !== 1)
    return false;
  const [statement] = member.body.statements;
  if (statement === undefined || !(ts.isReturnStatement(statement) || ts.isExpressionStatement(statement)))
    return false;
  const given = statement.expression;
  if (given === undefined) return false;
  const names = member.parameters.map(({ name }) => name.getText()).join();
  if (ts.isCallExpression(given) && given.arguments.map((one) => one.getText()).join() !== names) return false;
  const asked = ts.isCallExpression(given) ? given.expression : given;
  return ts.isPropertyAccessExpression(asked) && /^this\.#?\w+(\.\w+)?[?!]?$/.test(asked.expression.getText());
}

function implementersIn(classes: readonly ts.ClassDeclaration[]): ReadonlyMap<string, readonly string[]> {
  const named = classes.flatMap(({ name, heritageClauses = [] }) =>
    heritageClauses.flatMap(({ types }) =>
      types.map((type) => ({ type: type.expression.getText(), by: name?.text ?? "" })),
    ),
  );
  return new Map([...grouped(named, ({ type }) => type)].map(([type, all]) => [type, all.map(({ by }) => by)]));
}

function grouped<Value>(values: readonly Value[], keyOf: (value: Value) => string): ReadonlyMap<string, Value[]> {
  const groups = new Map<string, Value[]>();
  for (const value of values) groups.set(keyOf(value), [...(groups.get(keyOf(value)) ?? []), value]);
  return groups;
}

function pairsOf(
  classes: readonly ts.ClassDeclaration[],
  implementers: ReadonlyMap<string, readonly string[]>,
): number {
  const all = new Map(classes.map((one) => [one.name?.text ?? "", knownOf(one)]));
  const holds = (by: Known, name: string): boolean =>
    by.holds.has(name) || [...by.holds].some((type) => implementers.get(type)?.includes(name) === true);
  let pairs = 0;
  for (const [name, one] of all)
    for (const [otherName, other] of all) {
      if (name === otherName || !holds(one, otherName)) continue;
      const isMutual = holds(other, name);
      if (isMutual ? name < otherName : one.speaksTo.has(otherName)) pairs += 1;
    }
  return pairs;
}

function knownOf(declaration: ts.ClassDeclaration): Known {
  const source = declaration.getSourceFile();
  const typesOf = (node: ts.Node | undefined): readonly string[] =>
    node === undefined
      ? []
      : allNodes(node).flatMap((one) => (ts.isTypeReferenceNode(one) ? one.typeName.getText(source) : []));
  const fields = declaration.members.filter(ts.isPropertyDeclaration);
  const made = allNodes(declaration).filter(ts.isNewExpression);
  const isOfThis = (node: ts.Node): boolean => allNodes(node).some(({ kind }) => kind === ts.SyntaxKind.ThisKeyword);
  return {
    holds: new Set(fields.flatMap(({ type }) => typesOf(type))),
    speaksTo: new Set(
      made.filter(({ arguments: given }) => given?.some(isOfThis)).map((one) => one.expression.getText()),
    ),
  };
}

/** The files of the two rooms, by their path in `src/`. */
export function filesOfTheRooms(): ReadonlyMap<string, string> {
  return new Map([...readSources()].filter(([path]) => path.startsWith(PLAIN) || path.startsWith("durable/")));
}

/** The figures that are worse than they were. */
export function worseThanKnown(house: House): readonly string[] {
  return (Object.keys(most) as (keyof House)[]).filter((name) => house[name] > most[name]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const house = measureHouse(filesOfTheRooms());
  console.table(house);
  const worse = worseThanKnown(house);
  if (worse.length > 0) console.error(`Worse than known: ${worse.join(", ")}.`);
  process.exitCode = worse.length > 0 ? 1 : 0;
}
