import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { expect, it } from "vitest";
import { ROOT } from "./pages.ts";

const LEVELS = ["debug", "info", "warn", "error"];

/** What is said of work in the background that says nothing of its own. */
const BACKGROUND = "Work in the background failed.";

interface Line {
  readonly message: string;
  readonly levels: readonly string[];
}

/** The lines that the sources give to the logger. A message that is no literal is given as its code. */
function linesOfSources(): Line[] {
  const source = join(ROOT, "src");
  return (
    readdirSync(source, { recursive: true, encoding: "utf8" })
      // That file hands on what others say, and the line below.
      .filter((path) => path.endsWith(".ts") && path !== join("core", "background.ts"))
      .flatMap((path) => linesIn(readFileSync(join(source, path), "utf8")))
  );
}

function linesIn(text: string): Line[] {
  const found: Line[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node)) {
      const levels = levelsOf(node.expression);
      const [message] = node.arguments;
      if (levels !== undefined && message !== undefined)
        found.push({ message: ts.isStringLiteralLike(message) ? message.text : message.getText(), levels });
      const warning = node.expression.getText() === "warningOnce" ? node.arguments[1] : undefined;
      if (warning !== undefined && ts.isStringLiteralLike(warning))
        found.push({ message: warning.text, levels: ["warn"] });
      if (node.expression.getText() === "inBackground") {
        const [, , said] = node.arguments;
        found.push({
          message: said === undefined ? BACKGROUND : ts.isStringLiteralLike(said) ? said.text : said.getText(),
          levels: ["error"],
        });
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile("source.ts", text, ts.ScriptTarget.ESNext, true));
  return found;
}

/** The levels of a call such as `x.logger.warn(…)` or `logger[a ? "error" : "debug"](…)`. */
function levelsOf(called: ts.Expression): readonly string[] | undefined {
  if (ts.isPropertyAccessExpression(called))
    return isLogger(called.expression) && LEVELS.includes(called.name.text) ? [called.name.text] : undefined;
  if (!ts.isElementAccessExpression(called) || !isLogger(called.expression)) return undefined;
  return LEVELS.filter((level) => called.argumentExpression.getText().includes(JSON.stringify(level)));
}

function isLogger(expression: ts.Expression): boolean {
  return /(?:^|[.#])logger$/i.test(expression.getText());
}

function linesOfPage(): Line[] {
  const page = readFileSync(join(ROOT, "docs/reference/errors.md"), "utf8");
  const [, section = ""] = page.split("\n## Log lines\n");
  return section
    .split("\n")
    .filter((line) => line.startsWith("| ") && !line.startsWith("| Line ") && !line.startsWith("| --"))
    .map((line) => line.split(" | ").map((cell) => cell.replace(/^\| | \|$/g, "")))
    .map(([message = "", levels = ""]) => ({ message, levels: levels.split(", ") }));
}

const sorted = (lines: readonly Line[]): string[] =>
  [...new Set(lines.map(({ message, levels }) => `${message} (${[...levels].sort().join(", ")})`))].sort();

it("docs/reference/errors.md has each line that the library gives to its logger, and no other", () => {
  // The logger of the HTTP part hands lines on.
  const lines = linesOfSources().filter(({ levels }) => levels.length > 0);
  expect(lines.length).toBeGreaterThan(40);
  expect(sorted(linesOfPage())).toEqual(sorted(lines));
});

it.each([
  ["this.#logger.warn('Hm.', { error });", [{ message: "Hm.", levels: ["warn"] }]],
  ['logger?.error("Run " + id);', [{ message: '"Run " + id', levels: ["error"] }]],
  ['shared.logger[isBad ? "error" : "debug"]("Hm.");', [{ message: "Hm.", levels: ["debug", "error"] }]],
  ["inBackground(logger, work, 'Hm.');", [{ message: "Hm.", levels: ["error"] }]],
  ["inBackground(this.#logger, work());", [{ message: BACKGROUND, levels: ["error"] }]],
  ["console.warn('Hm.'); logger.other('Hm.');", []],
])("the lines of %s are found", (text, lines) => {
  expect(linesIn(text)).toEqual(lines);
});
