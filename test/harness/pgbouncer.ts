import { spawn, spawnSync } from "node:child_process";
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import type { ServerAddress } from "./postgres-server.ts";
import { UNPRIVILEGED } from "./postgres-server.ts";

const PORT = 6_432;
/** Fewer than a test has clients, so that clients share connections of the server. */
const SERVER_CONNECTIONS = 3;
const START_MS = 10_000;

/** Where PgBouncer is installed. Debian's place is on the search path of administrators alone. */
const binary = ["pgbouncer", "/usr/sbin/pgbouncer"].find((path) => spawnSync(path, ["--version"]).status === 0);

/** Why there is no PgBouncer; undefined if there is one. */
export const missingPgBouncer = binary === undefined ? "pgbouncer is not installed" : undefined;

/** Starts PgBouncer in transaction mode in front of a server. It refuses to run as root, as the server does. */
export async function startPgBouncer(address: ServerAddress): Promise<{ options: pg.PoolConfig; stop(): void }> {
  if (binary === undefined) throw new Error(missingPgBouncer);
  if ("missing" in address) throw new Error(address.missing);
  const folder = mkdtempSync(join(tmpdir(), "pgb-"));
  const user = process.getuid?.() === 0 ? { uid: UNPRIVILEGED, gid: UNPRIVILEGED } : {};
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  const settings = [
    "[databases]",
    `postgres = host=${address.host} port=${address.port} user=postgres`,
    "[pgbouncer]",
    "pool_mode = transaction",
    "auth_type = any",
    "listen_addr =",
    `listen_port = ${PORT}`,
    `unix_socket_dir = ${folder}`,
    `default_pool_size = ${SERVER_CONNECTIONS}`,
  ];
  writeFileSync(join(folder, "pgbouncer.ini"), settings.join("\n"));
  const pooler = spawn(binary, [join(folder, "pgbouncer.ini")], { ...user, cwd: folder, stdio: "ignore" });
  const kill = (): void => void pooler.kill("SIGKILL");
  process.once("exit", kill);
  const options = { host: folder, port: PORT, user: "postgres", database: "postgres" };
  await untilReady(options);
  return {
    options,
    stop() {
      process.off("exit", kill);
      kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function untilReady(options: pg.ClientConfig): Promise<void> {
  for (const until = Date.now() + START_MS; ; ) {
    const client = new pg.Client(options);
    try {
      await client.connect();
      return await client.end();
    } catch (error) {
      if (Date.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
