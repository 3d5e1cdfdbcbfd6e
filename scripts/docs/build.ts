import { fileURLToPath } from "node:url";
import { buildSite } from "./site.ts";

/* `npm run docs`: builds the site of the documentation into `site/`, or into the folder that is named. */

const [folder = fileURLToPath(new URL("../../site/", import.meta.url))] = process.argv.slice(2);
const problems = await buildSite(folder);
for (const problem of problems) console.error(problem);
console.log(problems.length === 0 ? `${folder}index.html is the site.` : `${problems.length} things are wrong.`);
process.exitCode = problems.length === 0 ? 0 : 1;
