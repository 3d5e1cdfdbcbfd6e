import { measureClone, measureInstalled } from "./installed.ts";
import { takeTurns } from "./turns.ts";

/*
 * Limits what an installation costs: packages, megabytes, and the time to import the library, which is mostly that of
 * zod. They take turns with imports of zod, and the least of each are compared: what else the machine does makes an import
 * longer, and never shorter. Where the limit seems to be passed, more of them are measured before it is said. The packages of a clone of the
 * repository have a limit, too.
 */
const MAX_PACKAGES = 4;
/** Of these, zod takes more than 6, the contract suite of stores 0.5, and the documentation 1.8, with 0.4 for the reference of the API. */
const MAX_MEGABYTES = 16;
const MAX_IMPORT = 1.8;
/** Of these, the browser, the formatter and the newest PostgreSQL take 60 each, the icons of the inspector 34, the generator of the site 22. */
const MAX_MEGABYTES_OF_CLONE = 600;
const MAX_TRIES = 6;

const ofClone = Math.ceil(measureClone());
const { packages, megabytes } = measureInstalled("cadenza");
const ofZod: number[] = [];
const own: number[] = [];
let ratio = Number.POSITIVE_INFINITY;
for (let tries = 0; tries < MAX_TRIES && ratio > MAX_IMPORT; tries++) {
  const imports = await takeTurns([{ case: "imports", subjects: ["zod", "cadenza"] }], { rounds: 5 });
  ofZod.push(...(imports[0]?.values ?? []));
  own.push(...(imports[1]?.values ?? []));
  ratio = Math.min(...own) / Math.min(...ofZod);
}
const checks = [
  [`packages installed: ${packages}, at most ${MAX_PACKAGES}`, packages <= MAX_PACKAGES],
  [`megabytes installed: ${megabytes.toFixed(2)}, less than ${MAX_MEGABYTES}`, megabytes < MAX_MEGABYTES],
  [
    `import: ${ratio.toFixed(2)} times that of zod alone, at most ${MAX_IMPORT} (${Math.min(...own).toFixed(0)} and ${Math.min(...ofZod).toFixed(0)} ms)`,
    ratio <= MAX_IMPORT,
  ],
  [
    `megabytes in node_modules of this clone: ${ofClone}, at most ${MAX_MEGABYTES_OF_CLONE}`,
    ofClone <= MAX_MEGABYTES_OF_CLONE,
  ],
] as const;
for (const [text, holds] of checks) console.log(`${holds ? "ok  " : "OVER"} ${text}`);
process.exitCode = checks.every(([, holds]) => holds) ? 0 : 1;
