import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** A page of an example, which loads its program from `/page.js`. */
export function pageOf(title: string): string {
  const style = readFileSync(new URL("./page.css", import.meta.url), "utf8");
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title}</title><link rel="icon" href="data:,"><style>${style}</style>
<main id="page"></main><script type="module" src="/page.js"></script></html>`;
}

/** The program of a page with everything that it imports. `alias`: other packages in the place of some. */
export async function bundleOf(entry: string, alias: Readonly<Record<string, string>> = {}): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: "esm",
    jsx: "automatic",
    // A page has the library as its users do, from the package. Here that is the source.
    alias: {
      ...alias,
      "cadenza/client": fileURLToPath(new URL("../src/client.ts", import.meta.url)),
      "cadenza/client/react": fileURLToPath(new URL("../src/client/react.ts", import.meta.url)),
    },
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return outputFiles[0]?.text ?? "";
}
