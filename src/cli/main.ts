#!/usr/bin/env node
import { createRequire } from "node:module";
import thisProcess, { argv, env, stderr, stdout } from "node:process";
import { parseArgs } from "node:util";
import { CommandError, printable, UsageError } from "./errors.ts";

const USAGE = `Usage:
  cadenza init [folder] [--yes]
      Makes an application: an agent, a chat page, an API, a worker and their tests. The folder must be empty, or not exist.
  cadenza inspect <file | postgres url> [--port N] [--schema S] [--open]
      Shows the runs of a store on a page, and writes nothing to it.
  cadenza dev <agents.ts> [--port N] [--store file]
      Runs the agents that a file exports, opens the inspector for them, and starts again when the code changes.
  cadenza pause | resume <file | postgres url> [--schema S] [--by NAME] [--agent A] [--agent-version V] [--tenant T] [--now]
      Pauses an agent, a version of it, a tenant, or these together in all processes of a store, or ends such a pause.
  cadenza cancel | retry <file | postgres url> [--schema S] [--by NAME] [--agent A] [--agent-version V] [--tenant T]
                         [--status S]... [--label N=V]... [--id BEGINNING] [--after TIME] [--before TIME]
      Has the processes of a store cancel all runs that match, or try the failed ones again, and says how far they are.
  cadenza move <file | postgres url> --to VERSION [--schema S] [--by NAME] [--agent A] [--agent-version V] [--tenant T]
                         [--status S]... [--label N=V]... [--id BEGINNING] [--after TIME] [--before TIME]
      Has a process of a store that has the version move all open runs that match to it, where their histories match its
      code. Names the others.
  cadenza check <agents.ts> --store <file | postgres url> [--schema S] [--cassettes DIR] [--patience MS] [--json]
      Replays the open runs of a store against the agents that a file exports, and names those that a deployment would
      block. Writes nothing, and runs no body of a step. Its exit status is 1 if it names any.
  cadenza --help | --version

  --yes         asks nothing. Default of the folder: cadenza-app
  --port N      the port on 127.0.0.1. Default: a free one
  --schema S    the schema of the store in PostgreSQL. Default: cadenza
  --open        also opens the page in the browser
  --store file  where the runs are kept. Default of dev: .cadenza/dev.db
  --cassettes DIR
                recorded runs as JSON, in place of a store or beside one
  --patience MS how long code may take to its next operation. Default: 5000
  --json        prints what was found as JSON
  --now         pauses durable runs at work between two steps. Otherwise they go on to their next rest
  --by NAME     who asks for it, as logs, pauses and the trail have it
  --after, --before
                when the runs were created, in ISO 8601
`;
const DEV_STORE = ".cadenza/dev.db";
/** The options of each command. */
const PAUSED = ["schema", "by", "agent", "agent-version", "tenant"] as const;
const MANY = [...PAUSED, "status", "label", "id", "after", "before"] as const;
const COMMANDS = {
  init: ["yes"],
  ...{ inspect: ["port", "schema", "open"], dev: ["port", "store"] },
  check: ["store", "schema", "cassettes", "patience", "json"],
  ...{ pause: [...PAUSED, "now"], resume: PAUSED, cancel: MANY, retry: MANY, move: [...MANY, "to"] },
} as const;

// The reader of the output may have closed it, as `head` does. The command still runs to its end.
for (const output of [stdout, stderr])
  output.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });

main().catch((error: unknown) => {
  const isUsage = error instanceof UsageError;
  // What the command, or the code of agents, has left open would hold the process.
  stderr.write(`${printable(textOf(error))}\n${isUsage ? `\n${USAGE}` : ""}`, () => thisProcess.exit(isUsage ? 2 : 1));
});

async function main(): Promise<void> {
  const { values, positionals } = read(argv.slice(2));
  const { help, version, ...options } = values;
  if (help) stdout.write(USAGE);
  else if (version) stdout.write(`${versionOf()}\n`);
  else await run(positionals, options);
}

/** Each command is loaded when it is asked for: help, and what is wrong with the arguments, need no runtime. */
async function run(
  [command, subject, ...surplus]: readonly string[],
  options: Omit<ReturnType<typeof read>["values"], "help" | "version">,
): Promise<void> {
  if (command === undefined) throw new UsageError("A command is missing.");
  if (!isCommand(command)) throw new UsageError(`There is no command ${command}.`);
  const known: readonly string[] = COMMANDS[command];
  const strange = Object.keys(options).find((name) => !known.includes(name));
  if (strange !== undefined) throw new UsageError(`${command} has no option --${strange}.`);
  if (command === "init") {
    if (surplus.length > 0) throw new UsageError("init: expected one folder.");
    const { init } = await import("./init.ts");
    return init(subject, { asks: options.yes !== true });
  }
  if (subject === undefined || surplus.length > 0)
    throw new UsageError(
      `${command}: expected one ${command === "dev" || command === "check" ? "file" : "file or URL"}.`,
    );
  const { port, open = false, json = false, store, cassettes, patience, ...others } = options;
  if (command === "inspect") {
    const given = { port: portOf(port) ?? 0, schema: others.schema, open };
    const { inspect } = await import("./inspect.ts");
    await inspect(subject, given);
  } else if (command === "check") {
    const given = { store, schema: others.schema, cassettes, patienceMs: numberOf("patience", patience), json };
    const passed = takeFromEnvironment("CADENZA_CHECK");
    const { check, checkAgents } = await import("./check.ts");
    // The process that `check` has started.
    if (passed !== undefined) await checkAgents(subject, passed);
    else await check(subject, given);
  } else if (command === "dev") {
    const given = { port: portOf(port), store: store ?? DEV_STORE };
    const passed = takeFromEnvironment("CADENZA_DEV");
    // The process that `dev` has started, and starts again.
    if (passed !== undefined) await (await import("./agents.ts")).serveAgents(subject, passed);
    else await (await import("./dev.ts")).dev(subject, given);
  } else {
    const { operate } = await import("./operate.ts");
    await operate(command, subject, others);
  }
}

function isCommand(name: string): name is keyof typeof COMMANDS {
  return Object.hasOwn(COMMANDS, name);
}

/** A value of the environment that the processes which this one starts do not get: it holds a secret. */
function takeFromEnvironment(name: string): string | undefined {
  const value = env[name];
  delete env[name];
  return value;
}

function read(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        port: { type: "string" },
        schema: { type: "string" },
        store: { type: "string" },
        cassettes: { type: "string" },
        patience: { type: "string" },
        json: { type: "boolean" },
        by: { type: "string" },
        agent: { type: "string" },
        "agent-version": { type: "string" },
        tenant: { type: "string" },
        status: { type: "string", multiple: true },
        label: { type: "string", multiple: true },
        id: { type: "string" },
        to: { type: "string" },
        after: { type: "string" },
        before: { type: "string" },
        open: { type: "boolean" },
        yes: { type: "boolean", short: "y" },
        now: { type: "boolean" },
        help: { type: "boolean", short: "h" },
        version: { type: "boolean", short: "v" },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function portOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65_535) return port;
  throw new UsageError(`--port: expected a number from 0 to 65535, received ${text}.`);
}

function numberOf(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text)) return Number(text);
  throw new UsageError(`--${option}: expected a number, received ${text}.`);
}

function versionOf(): string {
  const { version } = createRequire(import.meta.url)("cadenza/package.json") as { readonly version: string };
  return version;
}

/** What the system said of a connection that failed, to the first address of a host that has several. */
function systemSaid({ cause }: Error): string {
  const error: unknown = cause instanceof AggregateError ? cause.errors[0] : cause;
  return error instanceof Error && "syscall" in error ? ` ${error.message}` : "";
}

/** What went wrong in words, or the whole error if it is a surprise. */
function textOf(error: unknown): string {
  if (error instanceof CommandError || isOwn(error)) return `cadenza: ${error.message}${systemSaid(error)}`;
  // A path or a port that the user has named.
  if (error instanceof Error && "syscall" in error) return `cadenza: ${error.message}`;
  return error instanceof Error ? String(error.stack) : String(error);
}

/** The class itself is not loaded where nothing has thrown it. */
function isOwn(error: unknown): error is Error {
  return error instanceof Error && error.name === "CadenzaError";
}
