import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join, parse } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "tsup";

/** Under `node_modules`, so that the built worker finds its packages. */
export const CACHE = fileURLToPath(new URL("../../node_modules/.cache/", import.meta.url));

/** A program that has been bundled into one JavaScript file, which starts several times as fast. */
export interface BuiltProgram {
  readonly path: string;
  remove(): void;
}

/** Builds a program from the sources as they are now. `instead`: the files of modules that it is built with in their place. */
export async function buildProgram(source: URL, instead: Readonly<Record<string, string>> = {}): Promise<BuiltProgram> {
  const path = fileURLToPath(source);
  const { name } = parse(path);
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, "cadenza-"));
  await build({
    config: false,
    entry: { [name]: path },
    outDir: folder,
    format: ["esm"],
    target: "node20",
    outExtension: () => ({ js: ".mjs" }),
    removeNodeProtocol: false,
    splitting: false,
    noExternal: [/^(?!libsql|pg$)/],
    external: ["libsql", "pg"],
    esbuildOptions: (options) => {
      options.alias = { ...instead };
    },
    dts: false,
    silent: true,
  });
  return { path: join(folder, `${name}.mjs`), remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/**
 * A worker in a process of its own. It is started with its settings, takes orders, and sends reports. Reports are read
 * until the process and its channel are gone.
 */
export class WorkerProcess<Settings extends { readonly name: string }, Order extends object, Report> {
  readonly name: string;
  readonly #process: ChildProcess;
  /** Resolves when the process is gone and all its reports have been read. */
  readonly gone: Promise<unknown>;

  constructor(program: BuiltProgram, settings: Settings, hear: (report: Report) => void) {
    this.name = settings.name;
    this.#process = fork(program.path, [JSON.stringify(settings)], { execArgv: [] });
    this.#process.on("message", (report: Report) => hear(report));
    this.gone = Promise.all([once(this.#process, "exit"), once(this.#process, "disconnect")]);
  }

  /** Sends it an order. A process that is gone ignores it. */
  order(order: Order): void {
    if (this.#process.connected) this.#process.send(order, () => undefined);
  }

  /** Ends it at once (SIGKILL). */
  kill(): void {
    this.#process.kill("SIGKILL");
  }

  /** Asks it to end, as a supervisor does. */
  terminate(): void {
    this.#process.kill("SIGTERM");
  }

  /** Asks it to end, and kills it after so many milliseconds. Resolves when it is gone, with whether it ended by itself. */
  async endWithin(ms: number): Promise<boolean> {
    let isLate = false;
    this.terminate();
    const late = setTimeout(() => {
      isLate = true;
      this.kill();
    }, ms);
    await this.gone;
    clearTimeout(late);
    return !isLate;
  }

  /** Stops it (SIGSTOP) until it is thawed. */
  freeze(): void {
    this.#process.kill("SIGSTOP");
  }

  thaw(): void {
    this.#process.kill("SIGCONT");
  }
}
