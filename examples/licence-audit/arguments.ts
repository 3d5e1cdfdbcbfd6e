import { parseArgs } from "node:util";

export const USAGE = `Usage: npm run demo -- licences [path of a package-lock.json] [--yes | --no] [--store file]

Audits the licences in a package-lock.json, by default this project's own.
It asks about each licence that is not on the list in allow-list.ts.

  --yes           allow whatever it asks about
  --no            refuse whatever it asks about
  --store file    keep the run in this file: after Ctrl-C, or a crash, the same command goes on with it.
                  Without it the last runs are kept in .cadenza/demo.db`;

/** The options of the command line. */
export interface Arguments {
  /** The lock file; undefined for the project's own. */
  readonly path: string | undefined;
  readonly help: boolean;
  /** The answer to every question; undefined: the user is asked. */
  readonly answer: boolean | undefined;
  /** The file of a run that is to be continued; undefined: a new run is begun. */
  readonly store: string | undefined;
}

/** Reads the command line. Throws for unknown arguments. */
export function readArguments(args: readonly string[]): Arguments {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      yes: { type: "boolean" },
      no: { type: "boolean" },
      help: { type: "boolean", short: "h" },
      store: { type: "string" },
    },
  });
  const { yes = false, no = false, help = false, store } = values;
  if (positionals.length > 1) throw new Error(`One path is enough: ${positionals.join(", ")}\n\n${USAGE}`);
  if (yes && no) throw new Error(`Either --yes or --no.\n\n${USAGE}`);
  return { path: positionals[0], help, answer: yes || no ? yes : undefined, store };
}
