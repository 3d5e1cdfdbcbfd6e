import { posix } from "node:path";
import ts from "typescript";

/** What the files of one place under `src/` may import, besides files of the same place. */
interface Rule {
  /** The folder, or the beginning of the path of a group of files. The first rule that matches a file applies. */
  readonly place: string;
  /** Places (`core`, or `core/errors` for one file) whose values and types may be imported. */
  readonly imports: readonly string[];
  /** Places of which only types may be imported. */
  readonly types?: readonly string[];
  readonly packages?: readonly string[];
  readonly node?: true;
  /** Files outside of `src/`. */
  readonly outside?: readonly string[];
}

/** The layers of `src/`, from the lowest up. Entries are the files that lie in `src/` itself. */
const RULES: readonly Rule[] = [
  { place: "protocol/", imports: [], packages: ["zod"] },
  { place: "core/", imports: ["protocol/"] },
  {
    place: "stores/sqlite/",
    imports: ["stores/", "durable/", "core/", "protocol/", "runtime/log/system", "runtime/runs/remote-runs"],
    node: true,
  },
  {
    place: "stores/postgres/",
    imports: ["stores/", "durable/", "core/", "protocol/", "runtime/log/system", "runtime/runs/remote-runs"],
  },
  // The contract of stores belongs to the entry of the stores, and so needs nothing else but their numbers.
  { place: "stores/contract/", imports: ["stores/gates", "core/", "protocol/"] },
  { place: "stores/memory/", imports: ["stores/", "core/", "protocol/", "runtime/log/system"] },
  { place: "stores/", imports: ["core/", "protocol/", "runtime/log/system"] },
  // The plain room: five floors, each on those below it.
  { place: "runtime/agent/", imports: ["core/", "protocol/"] },
  { place: "runtime/log/", imports: ["runtime/agent/", "core/", "protocol/"], packages: ["nanoid"] },
  { place: "runtime/execution/", imports: ["runtime/log/", "runtime/agent/", "core/", "protocol/"] },
  {
    place: "runtime/runs/",
    imports: [...["runtime/execution/", "runtime/log/", "runtime/agent/", "core/", "protocol/", "stores/memory/"]],
    packages: ["eventemitter3"],
  },
  {
    place: "runtime/api/",
    imports: [
      ...["runtime/runs/", "runtime/execution/", "runtime/log/", "runtime/agent/", "core/", "protocol/"],
      "stores/memory/",
    ],
  },
  // The durable room.
  { place: "durable/replay/", imports: ["runtime/", "core/", "protocol/"] },
  { place: "durable/recovery/", imports: ["durable/replay/", "runtime/", "core/", "protocol/"] },
  { place: "durable/", imports: ["runtime/", "core/", "protocol/"] },
  {
    place: "http/",
    imports: [
      ...["core/background", "core/error", "core/run-map", "core/tenants", "core/user", "protocol/"],
      "runtime/api/inside",
    ],
    types: ["core/", "runtime/"],
  },
  {
    place: "faces/acp/",
    imports: ["http/", "core/background", "core/error", "core/user", "protocol/"],
    types: ["core/", "runtime/"],
    packages: ["zod"],
  },
  { place: "ai-sdk/", imports: ["core/", "protocol/"], types: ["runtime/"] },
  // What the faces of chats share.
  {
    place: "faces/chat/",
    imports: ["http/", "core/error", "core/json", "protocol/", "runtime/agent/uuid"],
    types: ["core/", "runtime/"],
  },
  {
    place: "faces/ui-stream/",
    imports: ["faces/chat/", "http/", "core/error", "protocol/"],
    types: ["core/", "runtime/"],
  },
  {
    place: "faces/ag-ui/",
    imports: ["faces/chat/", "http/", "core/error", "protocol/"],
    types: ["core/", "runtime/"],
  },
  {
    place: "faces/a2a/",
    imports: [
      "faces/chat/",
      "http/",
      "core/background",
      "core/error",
      "core/exact-json",
      "protocol/",
      "runtime/agent/uuid",
    ],
    types: ["core/", "runtime/"],
  },
  {
    place: "faces/mcp/",
    imports: ["faces/chat/", "http/", "core/background", "core/error", "core/user", "protocol/"],
    types: ["core/", "runtime/"],
  },
  // It runs in a browser, and has the types of what the server tells it.
  {
    place: "inspector-page/",
    imports: ["inspector/api"],
    types: ["admin/", "core/failure", "core/log", "protocol/"],
    packages: ["preact", "preact/hooks", "@preact/signals", "chartist"],
  },
  // From source it builds the page, which the package has inside.
  { place: "inspector/page-source", imports: [], outside: ["../scripts/build-page.ts"] },
  {
    place: "inspector/",
    imports: [
      ...["http/", "admin/", "durable/replay/cassette", "protocol/"],
      ...["core/background", "core/error", "core/tenants", "core/time"],
      ...["runtime/agent/agent-schemas", "runtime/agent/answer", "runtime/api/inside", "runtime/log/store-failures"],
      "runtime/log/system",
    ],
    types: ["core/", "runtime/", "schedules/schedules"],
  },
  {
    place: "client/react",
    imports: ["client/"],
    types: ["protocol/", "runtime/agent/agent-schemas"],
    packages: ["react"],
  },
  // It loads nothing of the library: a page has the types alone.
  {
    place: "client/",
    imports: [],
    types: ["protocol/", "runtime/agent/agent-schemas", "runtime/agent/standard-schema"],
  },
  {
    place: "admin/",
    imports: [
      ...["core/", "protocol/", "runtime/agent/check", "runtime/api/cursors", "runtime/agent/labels"],
      ...["runtime/agent/usage", "runtime/api/inside", "durable/replay/dry-replay"],
      ...["runtime/log/fold-log", "runtime/log/store-failures", "runtime/log/system", "runtime/log/watch"],
    ],
    types: ["runtime/"],
  },
  {
    place: "otel/",
    imports: ["core/run-map", "core/statistics"],
    types: ["core/", "protocol/", "runtime/"],
    packages: ["@opentelemetry/api"],
  },
  {
    place: "schedules/",
    imports: [
      ...["core/error", "core/json", "core/tenants", "core/time", "runtime/agent/check", "runtime/api/cursors"],
      ...["runtime/agent/input", "runtime/agent/labels", "runtime/agent/uuid", "runtime/api/inside"],
      ...["runtime/execution/random", "runtime/log/fold-log", "runtime/log/system"],
    ],
    types: ["core/", "protocol/", "runtime/"],
  },
  {
    place: "testing/",
    imports: ["faces/acp/", "http/", "durable/", "runtime/", "stores/", "core/", "protocol/"],
    types: ["inspector/code-of-run"],
    node: true,
  },
  // It says what is wrong with its arguments before it loads the library.
  { place: "cli/main", imports: ["cli/"], node: true },
  // An application of the library, which it uses by its public names. It loads the file that its user names.
  {
    place: "cli/",
    imports: [],
    packages: [
      "(computed)",
      "cadenza",
      ...["admin", "inspector", "postgres", "schedules", "sqlite", "store", "testing"].map((name) => `cadenza/${name}`),
    ],
    node: true,
  },
  { place: "index.ts", imports: ["runtime/", "stores/memory/", "core/", "protocol/"] },
  { place: "ai-sdk.ts", imports: ["ai-sdk/", "faces/ui-stream/"] },
  { place: "ag-ui.ts", imports: ["faces/ag-ui/"] },
  { place: "a2a.ts", imports: ["faces/a2a/"] },
  { place: "mcp.ts", imports: ["faces/mcp/"] },
  { place: "client.ts", imports: ["client/"] },
  { place: "http.ts", imports: ["faces/acp/", "http/"] },
  { place: "testing.ts", imports: ["testing/", "stores/contract/"], node: true },
  { place: "store.ts", imports: ["durable/"], types: ["core/"] },
  { place: "sqlite.ts", imports: ["stores/sqlite/"], node: true },
  { place: "postgres.ts", imports: ["stores/postgres/"] },
  { place: "admin.ts", imports: ["admin/"] },
  { place: "inspector.ts", imports: ["inspector/"] },
  { place: "otel.ts", imports: ["otel/"] },
  { place: "schedules.ts", imports: ["schedules/"] },
  { place: "nats.ts", imports: ["durable/nats-waker"] },
];

/**
 * The files that may use the machine's time, timers and random numbers: that of the runtime, of its client and of MCP, the page
 * that runs in a browser, and commands that wait.
 */
const SYSTEM = [
  "runtime/log/system.ts",
  "client/machine.ts",
  "http/machine.ts",
  "inspector-page/",
  "cli/operate.ts",
  "cli/check.ts",
];
const isSystem = (path: string): boolean => SYSTEM.some((place) => path.startsWith(place));

/** The one file that replaces `Math.random`, for agents under test. */
const CHANCE = "testing/chance.ts";

const CLOCK_AND_CHANCE = new Set([
  "Date",
  "performance",
  "crypto",
  "setTimeout",
  "setInterval",
  "setImmediate",
  "clearTimeout",
  "clearInterval",
  "clearImmediate",
]);
const FORBIDDEN_EVERYWHERE = new Set(["process", "console", "global", "require", "eval"]);
/** Members of pure globals that read the clock or give random numbers. */
const IMPURE_MEMBERS = new Set(["Math.random", "AbortSignal.timeout"]);
const PURE_DATE_MEMBERS = new Set(["parse", "UTC"]);

/** Words that the plain room does not need, since it knows nothing of what they name. */
const DURABLE_WORDS = /^(leases?|leased|epochs?|replay(s|ed|ing)?)$/;
/** The file of the ports says what an owner is. */
const OWNER_WORDS = /^owners?$/;
const OWNER_FILE = "runtime/execution/operations.ts";
/** The files that speak of the history of a session. */
const HISTORY_WORD = /^history$/;
const HISTORY_FILES = new Set(
  [
    ...["agent/agent-context", "agent/new-run", "execution/context", "execution/run-session"],
    ...["runs/requests", "runs/run-reader", "runs/runs", "runs/session-entry"],
  ].map((name) => `runtime/${name}.ts`),
);

/** Where runs of all tenants meet. A collection that is keyed by the id of a run alone would mix these up. */
const KEYED_BY_RUN = ["runtime/", "durable/", "http/", "otel/"];
const RUN_ID = /^run_?id$/i;
const KEYED_METHODS = new Set(["get", "set", "has", "delete", "add"]);

/**
 * The file through which callbacks of the event loop go: what they throw ends the process elsewhere. Programs, what runs
 * in a browser, and the kit that tests call are free.
 */
const BACKGROUND = "core/background.ts";
const FREE_TO_FAIL = ["client/", "cli/", "testing/", "inspector-page/"];
const SUBSCRIBES = new Set(["on", "once", "addListener", "addEventListener", "prependListener"]);
/** The functions of a promise, and the one that does nothing. */
const NEVER_FAIL = new Set(["resolve", "reject", "ignore"]);
const CONTINUES = new Set(["then", "catch", "finally"]);
/** Objects of the library, which guard their listeners themselves. */
const GUARDED_SOURCES = /^(runtime|this\.#emitter)$/;

/** The file through which faces give messages to agents: it takes every message of a client as its user's. */
const CLAIMS = "http/claims.ts";
const SPEAKING_METHODS = new Set(["createRun", "resume"]);

interface Import {
  readonly specifier: string;
  readonly typeOnly: boolean;
}

/**
 * Checks a set of source files against the import rules and gives one sentence for each violation.
 *
 * @param files path relative to `src/`, with forward slashes → text
 */
export function checkArchitecture(files: ReadonlyMap<string, string>): string[] {
  const violations: string[] = [];
  const edges = new Map<string, string[]>();
  for (const [path, text] of files) {
    const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
    const targets: string[] = [];
    for (const found of importsOf(source)) {
      const target = resolve(path, found.specifier);
      if (target !== undefined && files.has(target)) targets.push(target);
      const reason = refusal(path, found, files);
      if (reason !== undefined) violations.push(`${path}: ${reason}`);
    }
    edges.set(path, targets);
    violations.push(...globalsOf(path, source).map((reason) => `${path}: ${reason}`));
    violations.push(...runIdKeysOf(path, source).map((reason) => `${path}: ${reason}`));
    violations.push(...speakersOf(path, source).map((reason) => `${path}: ${reason}`));
    violations.push(...looseEndsOf(path, source).map((reason) => `${path}: ${reason}`));
    violations.push(...wordsOf(path, text).map((word) => `${path}: the plain room knows no ${word}`));
    if (!path.includes("/") && !source.statements.every(isReExport)) {
      violations.push(`${path}: an entry contains re-exports only`);
    }
  }
  for (const cycle of cyclesOf(edges)) violations.push(`import cycle: ${cycle.join(" → ")}`);
  return violations;
}

/** The words of the durable room in a file of the plain room, in its identifiers and comments. */
function wordsOf(path: string, text: string): string[] {
  if (!path.startsWith("runtime/")) return [];
  const words = text.match(/[A-Z]?[a-z]+|[A-Z]+/g)?.map((word) => word.toLowerCase()) ?? [];
  return [...new Set(words)].filter(
    (word) =>
      DURABLE_WORDS.test(word) ||
      (OWNER_WORDS.test(word) && path !== OWNER_FILE) ||
      (HISTORY_WORD.test(word) && !HISTORY_FILES.has(path)),
  );
}

/** Collections whose keys are ids of runs. The key of a run is its tenant and its id: `RunMap` takes both. */
function runIdKeysOf(path: string, source: ts.SourceFile): string[] {
  if (!KEYED_BY_RUN.some((place) => path.startsWith(place))) return [];
  const reasons: string[] = [];
  const visit = (node: ts.Node): void => {
    if (isKeyedByRunId(node)) {
      reasons.push(`a run is found by its tenant and its id: use RunMap in place of ${textOf(node, source)}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return reasons;
}

/** Where a face creates or answers a run past the file that takes what a client says as its user's. */
function speakersOf(path: string, source: ts.SourceFile): string[] {
  const isFace = path.startsWith("http/") || path.startsWith("faces/");
  if (!isFace || path === CLAIMS || path.startsWith("inspector-page/")) return [];
  const reasons: string[] = [];
  const visit = (node: ts.Node): void => {
    const isCall = ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression);
    // A stream resumes without an argument.
    if (isCall && SPEAKING_METHODS.has(node.expression.name.text) && node.arguments.length > 0)
      reasons.push(`calls ${textOf(node, source)}: use createRunFor or resumeFor`);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return reasons;
}

/**
 * Callbacks of the event loop that may fail without anything that catches it. The lint finds the promises that a statement
 * drops; it lets those pass that follow `void`, or have a callback for their failure, which may fail too.
 */
function looseEndsOf(path: string, source: ts.SourceFile): string[] {
  if (path === BACKGROUND || path.startsWith("inspector-page/")) return [];
  const isFree = FREE_TO_FAIL.some((place) => path.startsWith(place));
  const reasons: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isVoidExpression(node)) reasons.push(`drops ${textOf(node, source)}: use inBackground`);
    if (!isFree && isDropped(node)) reasons.push(`drops ${textOf(node, source)}: use inBackground`);
    if (!isFree && isKept(node)) reasons.push(`keeps ${textOf(node, source)}: use endOf`);
    if (!isFree && isSubscription(node)) reasons.push(`calls ${textOf(node, source)}: use listen or onceAborted`);
    if (!isFree && isNewController(node) && isSignalForUsers(path)) reasons.push("makes a signal: use newController");
    ts.forEachChild(node, visit);
  };
  visit(source);
  return reasons;
}

/** A statement that calls `then`, `catch` or `finally` with anything that may fail. */
function isDropped(node: ts.Node): boolean {
  if (!ts.isExpressionStatement(node) || !continues(node.expression)) return false;
  const given = (node.expression as ts.CallExpression).arguments;
  return !given.every((one) => ts.isIdentifier(one) && NEVER_FAIL.has(one.text));
}

/** A field that keeps what `then` gives: whether its failure is observed depends on whether another caller waits. */
function isKept(node: ts.Node): boolean {
  if (!ts.isBinaryExpression(node) || !ts.isPropertyAccessExpression(node.left)) return false;
  return node.left.expression.kind === ts.SyntaxKind.ThisKeyword && continues(node.right, new Set(["then"]));
}

function continues(node: ts.Expression, names = CONTINUES): boolean {
  return ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)
    ? names.has(node.expression.name.text)
    : false;
}

function isSubscription(node: ts.Node): boolean {
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return false;
  const { name, expression } = node.expression;
  const [, callback] = node.arguments;
  const isIgnored = callback !== undefined && ts.isIdentifier(callback) && callback.text === "ignore";
  return SUBSCRIBES.has(name.text) && !isIgnored && !GUARDED_SOURCES.test(expression.getText());
}

function isNewController(node: ts.Node): boolean {
  return ts.isNewExpression(node) && ts.isIdentifier(node.expression) && node.expression.text === "AbortController";
}

function isSignalForUsers(path: string): boolean {
  return ["runtime/", "durable/", "http/", "faces/"].some((place) => path.startsWith(place));
}

function textOf(node: ts.Node, source: ts.SourceFile): string {
  return node.getText(source).replace(/\s+/g, " ").slice(0, 80);
}

function isKeyedByRunId(node: ts.Node): boolean {
  if (ts.isElementAccessExpression(node)) return namesRunId(node.argumentExpression);
  if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression))
    return KEYED_METHODS.has(node.expression.name.text) && namesRunId(node.arguments[0]);
  const isCollection =
    ts.isNewExpression(node) && ts.isIdentifier(node.expression) && /^(Weak)?(Map|Set)$/.test(node.expression.text);
  return isCollection && holdsRunIdAsKey(node.arguments?.[0]);
}

/** Whether the elements of a new collection are ids of runs, or pairs that begin with one. */
function holdsRunIdAsKey(node: ts.Node | undefined): boolean {
  if (node === undefined) return false;
  if (ts.isArrayLiteralExpression(node)) return namesRunId(node.elements[0]) || node.elements.some(holdsRunIdAsKey);
  if (ts.isArrowFunction(node)) return namesRunId(node.body) || holdsRunIdAsKey(node.body);
  if (ts.isCallExpression(node)) return node.arguments.some(holdsRunIdAsKey);
  return ts.isParenthesizedExpression(node) && holdsRunIdAsKey(node.expression);
}

/** `run_id`, `runId`, `key.run_id` and the like, and a text that begins with one. */
function namesRunId(node: ts.Node | undefined): boolean {
  if (node === undefined) return false;
  if (ts.isIdentifier(node)) return RUN_ID.test(node.text);
  if (ts.isTemplateExpression(node)) return node.templateSpans.some(({ expression }) => namesRunId(expression));
  return ts.isPropertyAccessExpression(node) && RUN_ID.test(node.name.text);
}

/** Every import of a file: static, type-only, dynamic, `import("x").T`, `import x = require()` and `export … from`. */
function importsOf(source: ts.SourceFile): Import[] {
  const imports: Import[] = [];
  const add = (specifier: ts.Node | undefined, typeOnly: boolean): void => {
    const known = specifier !== undefined && ts.isStringLiteralLike(specifier);
    imports.push({ specifier: known ? specifier.text : "(computed)", typeOnly });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) {
      add(node.moduleSpecifier, node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword);
    } else if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined) {
      add(node.moduleSpecifier, node.isTypeOnly);
    } else if (ts.isExternalModuleReference(node)) {
      add(node.expression, false);
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      add(node.arguments[0], false);
    } else if (ts.isImportTypeNode(node)) {
      add(ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, true);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return imports;
}

/** Why a file may not import this, or undefined where it may. */
function refusal(
  path: string,
  { specifier, typeOnly }: Import,
  files: ReadonlyMap<string, string>,
): string | undefined {
  const rule = ruleOf(path);
  if (rule === undefined) return `imports ${specifier}, but no rule covers this file`;
  const target = resolve(path, specifier);
  if (target === undefined) {
    if (specifier.startsWith("node:")) return rule.node ? undefined : `imports ${specifier}: no Node modules here`;
    return rule.packages?.includes(specifier) ? undefined : `imports ${specifier}: not a package of ${rule.place}`;
  }
  if (rule.outside?.includes(target)) return undefined;
  if (!files.has(target)) return `imports ${specifier}: there is no such file`;
  if (ruleOf(target)?.node && !rule.node) return `imports ${specifier}: that file needs Node modules`;
  const within = (places: readonly string[] | undefined): boolean =>
    places?.some((place) => target.startsWith(place)) ?? false;
  if (within([rule.place]) || within(rule.imports)) return undefined;
  if (!within(rule.types)) return `imports ${specifier}: ${rule.place} may not import ${target}`;
  return typeOnly ? undefined : `imports ${specifier}: only its types (import type)`;
}

function ruleOf(path: string): Rule | undefined {
  return RULES.find(({ place }) => path.startsWith(place));
}

/** The path under `src/` that a relative import means; undefined for a package. */
function resolve(from: string, specifier: string): string | undefined {
  return specifier.startsWith(".") ? posix.join(posix.dirname(from), specifier) : undefined;
}

/** Uses of the clock, random numbers, the process and the console. Types and property names are not uses. */
function globalsOf(path: string, source: ts.SourceFile): string[] {
  const reasons: string[] = [];
  const forbidden = (name: string): boolean =>
    FORBIDDEN_EVERYWHERE.has(name) || (CLOCK_AND_CHANCE.has(name) && !isSystem(path));
  const visit = (node: ts.Node): void => {
    if (ts.isInterfaceDeclaration(node)) return;
    if (ts.isTypeNode(node) && !ts.isExpressionWithTypeArguments(node)) return;
    if (ts.isIdentifier(node) && !isName(node)) {
      // `Math` taken apart or with a computed member may be `Math.random`.
      const impure = `${node.text}.${memberOf(node) ?? (node.text === "Math" ? "random" : "")}`;
      if (node.text === "globalThis") {
        // Where it is passed along or destructured, its members cannot be checked.
        const member = memberOf(node);
        if (member === undefined || forbidden(member)) reasons.push(`uses globalThis.${member ?? "(anything)"}`);
      } else if (forbidden(node.text) && !(node.text === "Date" && isPureDate(node))) {
        reasons.push(`uses ${node.text}`);
      } else if (IMPURE_MEMBERS.has(impure) && !isSystem(path) && !(path === CHANCE && impure === "Math.random")) {
        reasons.push(`uses ${impure}`);
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return reasons;
}

/** Whether an identifier only names a property, an import or an export, and so refers to no global. */
function isName(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent)) return parent.name === node;
  if (ts.isBindingElement(parent)) return parent.propertyName === node;
  if (ts.isImportSpecifier(parent) || ts.isExportSpecifier(parent) || ts.isJsxAttribute(parent)) return true;
  const isMember =
    ts.isPropertyAssignment(parent) ||
    ts.isMethodDeclaration(parent) ||
    ts.isMethodSignature(parent) ||
    ts.isPropertyDeclaration(parent) ||
    ts.isPropertySignature(parent) ||
    ts.isAccessor(parent);
  return isMember && parent.name === node;
}

/** `b` in `a.b` and in `a["b"]`, for the identifier `a`. */
function memberOf(node: ts.Identifier): string | undefined {
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent) && parent.expression === node) return parent.name.text;
  if (!ts.isElementAccessExpression(parent) || parent.expression !== node) return undefined;
  return ts.isStringLiteralLike(parent.argumentExpression) ? parent.argumentExpression.text : undefined;
}

/** `new Date(x)`, `Date.parse`, `Date.UTC` and `x instanceof Date` give the same answer at any time. */
function isPureDate(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isNewExpression(parent)) return (parent.arguments?.length ?? 0) > 0;
  if (ts.isBinaryExpression(parent)) return parent.operatorToken.kind === ts.SyntaxKind.InstanceOfKeyword;
  return PURE_DATE_MEMBERS.has(memberOf(node) ?? "");
}

function isReExport(statement: ts.Statement): boolean {
  return ts.isExportDeclaration(statement) && statement.moduleSpecifier !== undefined;
}

/** One cycle for each import that closes one, found by walking depth first. */
function cyclesOf(edges: ReadonlyMap<string, readonly string[]>): string[][] {
  const cycles: string[][] = [];
  const done = new Set<string>();
  const trail: string[] = [];
  const walk = (path: string): void => {
    const start = trail.indexOf(path);
    if (start >= 0) cycles.push([...trail.slice(start), path]);
    if (start >= 0 || done.has(path)) return;
    trail.push(path);
    for (const target of edges.get(path) ?? []) walk(target);
    trail.pop();
    done.add(path);
  };
  for (const path of edges.keys()) walk(path);
  return cycles;
}
