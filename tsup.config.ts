import { defineConfig } from "tsup";
import { buildPage } from "./scripts/build-page.ts";
import { entryNames } from "./scripts/entries.ts";

export default defineConfig({
  entry: Object.fromEntries(entryNames.map((name) => [name, `src/${name}.ts`])),
  format: ["esm", "cjs"],
  dts: true,
  target: "node20",
  platform: "neutral",
  external: [/^node:/],
  // It is an ES module only, and where `require` cannot load one, as in jest, neither could it load this library. Its browser form needs no Node.
  noExternal: ["nanoid"],
  esbuildOptions: (options) => {
    options.conditions = ["browser"];
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
        onLoad({ filter: /page-source\.ts$/ }, async () => ({
          contents: `export const pageHtml = async () => ${JSON.stringify(await buildPage())};`,
        }));
      },
    },
  ],
});
