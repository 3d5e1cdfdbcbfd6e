import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { packagesIn } from "./notices.ts";

const PAGE = fileURLToPath(new URL("../src/inspector-page/", import.meta.url));

interface Page {
  /** In one text: the script and the styles are inside. */
  readonly html: string;
  /** The packages whose code is in it. */
  readonly packages: readonly string[];
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
    `<title>Inspector</title><style>${text(".css")}</style></head><body><div id="app"></div>`,
    `<script>${text(".js").replaceAll("</script", "<\\/script")}</script></body></html>`,
  ].join("");
  return { html, packages: packagesIn(metafile) };
}
