import packageJson from "../package.json" with { type: "json" };

/** The entry names behind the keys of `exports`: `index` for ".", `http` for "./http". Built from `src/<name>.ts`. */
export const entryNames: readonly string[] = Object.keys(packageJson.exports)
  .filter((key) => key !== "./package.json")
  .map((key) => (key === "." ? "index" : key.slice("./".length)));
