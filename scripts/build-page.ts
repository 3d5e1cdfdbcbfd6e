import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const PAGE = fileURLToPath(new URL("../src/faces/inspector/page/", import.meta.url));

/** The inspector's page, in one text: the script and the styles are inside. */
export async function buildPage(): Promise<string> {
  const { script, style } = existsSync(`${PAGE}main.tsx`) ? await bundle() : plain;
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">',
    `<title>Inspector</title><style>${style}</style></head><body><div id="app"></div>`,
    `<script>${script.replaceAll("</script", "<\\/script")}</script></body></html>`,
  ].join("");
}

/** Shows what the inspector begins with. */
const plain = {
  script: `fetch(location.pathname.replace(/\\/?$/,"/")+"api/start").then(r=>r.text()).then(t=>{document.getElementById("app").textContent=t})`,
  style: "body{font-family:system-ui;margin:2rem}",
};

async function bundle(): Promise<{ readonly script: string; readonly style: string }> {
  const { outputFiles } = await build({
    entryPoints: [`${PAGE}main.tsx`],
    outdir: "page",
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2022",
    legalComments: "none",
  });
  const text = (ending: string): string => outputFiles.find(({ path }) => path.endsWith(ending))?.text.trim() ?? "";
  return { script: text(".js"), style: text(".css") };
}
