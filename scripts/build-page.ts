import { fileURLToPath } from "node:url";
import { icons as lucide } from "@iconify-json/lucide";
import { build } from "esbuild";
import { iconNames } from "../src/inspector-page/icon-names.ts";
import { packagesIn } from "./notices.ts";

const PAGE = fileURLToPath(new URL("../src/inspector-page/", import.meta.url));

interface Page {
  /** In one text: the script and the styles are inside. */
  readonly html: string;
  /** The packages whose code is in it. */
  readonly packages: readonly string[];
}

/** The pictures that the page has, as symbols with the ids that it draws them by. */
function symbols(): string {
  const all = Object.entries(iconNames).map(([id, name]) => {
    const icon = lucide.icons[name];
    if (icon === undefined) throw new Error(`Lucide has no icon ${name}`);
    return `<symbol id="icon-${id}" viewBox="0 0 24 24">${icon.body}</symbol>`;
  });
  return `<div hidden><svg>${all.join("")}</svg></div>`;
}

/** The inspector's page. */
export async function buildPage(): Promise<Page> {
  const { outputFiles, metafile } = await build({
    entryPoints: [`${PAGE}main.tsx`, `${PAGE}style.css`],
    outdir: "page",
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "iife",
    target: "es2022",
    // The notices of the bundled packages are in a file of their own.
    legalComments: "none",
  });
  const text = (ending: string): string => outputFiles.find(({ path }) => path.endsWith(ending))?.text.trim() ?? "";
  const html = [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">',
    `<title>Inspector</title><style>${text(".css")}</style></head><body><div id="app"></div>${symbols()}`,
    `<script>${text(".js").replaceAll("</script", "<\\/script")}</script></body></html>`,
  ].join("");
  return { html, packages: [...packagesIn(metafile), "@iconify-json/lucide"] };
}
