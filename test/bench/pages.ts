import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chart } from "./chart.ts";
import type { Figures } from "./figures.ts";
import { medianOf } from "./figures.ts";
import { format } from "./rows.ts";
import { fullTable, shortTable } from "./table.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PAGES = ["README.md", "docs/project/comparison.md", "docs/project/performance.md"];
const CHART = "docs/performance.svg";
/** The figures that the chart shows. */
const CHARTED = "peers-node-20";

/** Marks where a page shows figures: the name of a file in `figures/`, and whether the table is the short one. */
const place = /(<!-- figures: ([\w-]+)(, in short)? -->\n)[\s\S]*?(<!-- end of figures -->)/g;

/** The one figure of the README: of durable runs, 50 at once. */
const IN_PROSE = "floors-node-24";
const figureInProse = /\*\*[\d,]+ runs a second\*\*/;

/** The files that show figures, rendered with the kept ones. */
export function renderFiles(): ReadonlyMap<string, string> {
  const files = new Map(PAGES.map((path) => [path, fillPlaces(readFileSync(ROOT + path, "utf8"))]));
  return files.set(CHART, chart(readFigures(CHARTED)));
}

function fillPlaces(page: string): string {
  const runs = medianOf(readFigures(IN_PROSE), "sqlite", "cadenza", "run at once");
  const figure = `**${format(runs ?? Number.NaN)} runs a second**`;
  return page
    .replace(figureInProse, figure)
    .replaceAll(place, (_, start: string, name: string, short: string | undefined, end: string) => {
      const figures = readFigures(name);
      return `${start}\n${short === undefined ? fullTable(figures) : shortTable(figures)}\n\n${end}`;
    });
}

/** The figures that `bench --json` has written under a name. */
function readFigures(name: string): Figures {
  const path = `${ROOT}test/bench/figures/${name}.json`;
  return JSON.parse(readFileSync(path, "utf8")) as Figures;
}

/** Writes the kept figures into the files that show them, and gives the paths of those that changed. */
export function writeFiles(): readonly string[] {
  const changed = [...renderFiles()].filter(
    ([path, text]) => !existsSync(ROOT + path) || readFileSync(ROOT + path, "utf8") !== text,
  );
  for (const [path, text] of changed) writeFileSync(ROOT + path, text);
  return changed.map(([path]) => path);
}
