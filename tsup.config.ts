import { writeFileSync } from "node:fs";
import { defineConfig } from "tsup";
import { buildPage } from "./scripts/build-page.ts";
import { entryNames } from "./scripts/entries.ts";
import { billOfMaterials, noticesOf, packagesIn } from "./scripts/notices.ts";

/** The packages whose code is in the built files. */
const bundled = new Set<string>();
/** Where the built files go. */
let folder = "dist";

export default defineConfig({
  entry: Object.fromEntries(entryNames.map((name) => [name, `src/${name}.ts`])),
  format: ["esm", "cjs"],
  dts: true,
  target: "node20",
  platform: "neutral",
  external: [/^node:/],
  // It is an ES module only, and where `require` cannot load one, as in jest, neither could it load this library. Its browser form needs no Node.
  noExternal: ["nanoid"],
  esbuildOptions: (options, { format }) => {
    options.conditions = ["browser"];
    options.metafile = true;
    // Shorter by a thirtieth; names stay. What tsup does with CommonJS does not understand the shorter syntax, and is replaced:
    // see scripts/finish-build.mjs.
    options.minifySyntax = format === "esm";
  },
  // Otherwise each entry gets its own copy of the shared classes, and `instanceof` fails between them.
  splitting: true,
  // Otherwise `node:sqlite` becomes `sqlite`, which does not exist.
  removeNodeProtocol: false,
  clean: true,
  esbuildPlugins: [
    {
      name: "the inspector's page",
      setup: ({ onLoad }) => {
        onLoad({ filter: /page-source\.ts$/ }, async () => {
          const { html, packages } = await buildPage();
          for (const name of packages) bundled.add(name);
          return { contents: `export const pageHtml = async () => ${JSON.stringify(html)};` };
        });
      },
    },
    {
      name: "the bundled packages",
      setup: ({ onEnd, initialOptions }) => {
        folder = initialOptions.outdir ?? folder;
        onEnd(({ metafile }) => {
          if (metafile === undefined) throw new Error("esbuild has not said which packages it has bundled");
          for (const name of packagesIn(metafile)) bundled.add(name);
        });
      },
    },
  ],
  onSuccess: async () => {
    writeFileSync(`${folder}/THIRD_PARTY_NOTICES.md`, noticesOf(bundled));
    writeFileSync(`${folder}/sbom.cdx.json`, billOfMaterials(bundled));
  },
});
