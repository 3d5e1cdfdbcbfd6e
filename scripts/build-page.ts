import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const PAGE = fileURLToPath(new URL("../src/faces/inspector/page/", import.meta.url));

/** The inspector's page, in one text: the script and the styles are inside. */
export async function buildPage(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [`${PAGE}main.tsx`, `${PAGE}style.css`],
    outdir: "page",
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2022",
    legalComments: "none",
  });
  const text = (ending: string): string => outputFiles.find(({ path }) => path.endsWith(ending))?.text.trim() ?? "";
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">',
    `<title>Inspector</title><style>${text(".css")}</style></head><body><div id="app"></div>`,
    `<script>${text(".js").replaceAll("</script", "<\\/script")}</script></body></html>`,
  ].join("");
}
