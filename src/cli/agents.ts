import nodeModule from "node:module";
import { resolve } from "node:path";
import thisProcess, { stderr, stdout } from "node:process";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";
import type { Agent, Logger } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createInspectorNodeListener } from "cadenza/inspector";
import type { SchedulesOptions } from "cadenza/schedules";
import { schedules } from "cadenza/schedules";
import { createPlayground } from "cadenza/testing";
import { CommandError, printable } from "./errors.ts";
import { load as loadProject } from "./project.ts";
import { addressOf, listen, stopped } from "./server.ts";
import { openOrMake } from "./stores.ts";

/** What `dev` passes to each process that it starts. */
export interface AgentsOptions {
  readonly port: number;
  readonly token: string;
  /** The file of the store. */
  readonly store: string;
}

/** How long active runs may go on when the code has changed, in milliseconds. Durable ones go on in the next process. */
const DRAIN_MS = 1_000;

/** Runs the agents of a file, with an inspector, until the process is told to stop. */
export async function serveAgents(file: string, options: string): Promise<void> {
  const { port, token, store } = JSON.parse(options) as AgentsOptions;
  const code = await load(file);
  const playground = createPlayground();
  const runtime = new AgentRuntime({
    store: openOrMake(store),
    logger,
    interceptors: [playground.interceptor],
  });
  try {
    await register(runtime, code, file);
    // Cron expressions need croner, which a project has that uses them.
    const croner = loadProject("croner") as { readonly Cron: SchedulesOptions["cron"] } | undefined;
    const plans = schedules(runtime, { cron: croner?.Cron });
    const server = await listen(createInspectorNodeListener(runtime, { token, schedules: plans, playground }), port);
    stdout.write(`${file}: ${addressOf(port, token)}\n`);
    await stopped();
    await server.close();
  } finally {
    await runtime.close({ drainMs: DRAIN_MS });
  }
  // Timers and connections of the agents' own code would hold the process.
  thisProcess.exit();
}

/**
 * Imports the file. Where that fails, `node --watch` learns every file that the import has reached, before the process
 * ends: Node 22 forgets the one that has a syntax error, and would not start again when it is mended.
 */
async function load(file: string): Promise<Code> {
  const reached = new Set<string>();
  const { registerHooks } = nodeModule as typeof nodeModule & Hooked;
  const hooks = registerHooks?.({
    resolve: (specifier, context, nextResolve) => {
      const found = nextResolve(specifier, context);
      reached.add(found.url);
      return found;
    },
  });
  try {
    return (await import(pathToFileURL(resolve(file)).href)) as Code;
  } catch (error) {
    const files = [...reached].filter((url) => url.startsWith("file:"));
    await new Promise((sent) =>
      thisProcess.send === undefined ? sent(null) : thisProcess.send({ "watch:import": files }, sent),
    );
    throw error;
  } finally {
    hooks?.deregister();
  }
}

/** Imports a file, and registers the agents that it exports. */
export async function registerFile(runtime: AgentRuntime, file: string): Promise<void> {
  await register(runtime, await load(file), file);
}

/** Registers what the file exports: agents, and as its default also a function that registers some itself. */
async function register(runtime: AgentRuntime, code: Code, file: string): Promise<void> {
  // A CommonJS module is the default of its import.
  const inner: Code = isCode(code.default) ? code.default : {};
  const exported = [...Object.values(code), ...Object.values(inner)];
  const registers = inner.default ?? code.default;
  // A list of agents counts too, as a typed client takes it, unless a function may register them.
  const agents = new Set((typeof registers === "function" ? exported : exported.flat()).filter(isAgent));
  for (const agent of agents) runtime.register(agent);
  if (typeof registers === "function") await registers(runtime);
  else if (agents.size === 0)
    throw new CommandError(
      `${file} exports no agent. Export what defineAgent returns, or as its default a function that gets the runtime.`,
    );
}

/** `node:module` of Node 22.15 and newer. */
interface Hooked {
  readonly registerHooks?: (hooks: { readonly resolve: ResolveHook }) => { readonly deregister: () => void };
}

type Resolve = (specifier: string, context: unknown) => { readonly url: string };
type ResolveHook = (...args: [...Parameters<Resolve>, nextResolve: Resolve]) => { readonly url: string };

/** What a module exports. */
interface Code {
  readonly default?: unknown;
}

function isCode(value: unknown): value is Code {
  return typeof value === "object" && value !== null;
}

function isAgent(value: unknown): value is Agent {
  return isCode(value) && "name" in value && "options" in value && "fn" in value && typeof value.fn === "function";
}

/** Prints what needs attention. */
const logger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: print,
  error: print,
};

function print(message: string, fields?: object): void {
  stderr.write(`${printable(`${message}${fields === undefined ? "" : ` ${inspect(fields)}`}`)}\n`);
}
