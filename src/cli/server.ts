import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import thisProcess, { platform } from "node:process";
import { CommandError } from "./errors.ts";

const HOST = "127.0.0.1";
const OPENERS: Readonly<Partial<Record<string, readonly [string, ...string[]]>>> = {
  darwin: ["open"],
  win32: ["cmd", "/c", "start", ""],
};

/** A server on this machine. */
export interface LocalServer {
  readonly port: number;
  /** Ends all connections. */
  close(): Promise<void>;
}

/** Listens on a port of this machine; 0: on a free one. */
export function listen(listener: RequestListener, port: number): Promise<LocalServer> {
  const server = createServer(listener);
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) =>
      reject(
        error.code === "EADDRINUSE" ? new CommandError(`Port ${port} is in use: name another one with --port.`) : error,
      ),
    );
    server.listen(port, HOST, () => resolve({ port: (server.address() as AddressInfo).port, close }));
  });
}

/** What the page is opened with. */
export function newToken(): string {
  return randomBytes(32).toString("base64url");
}

/** The address of the page. */
export function addressOf(port: number, token: string): string {
  return `http://${HOST}:${port}/?token=${token}`;
}

/**
 * Opens a page in the browser of this machine. Where there is none, nothing happens: the address is printed anyway. All
 * users of the machine see the arguments of a process, and the address has a token: so the browser gets a file that
 * only this user may read, and the file leads to the page. The returned function removes the file.
 */
export function openPage(url: string): () => void {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-"));
  const file = join(folder, "inspector.html");
  writeFileSync(file, `<!doctype html><meta http-equiv="refresh" content="0; url=${url}">\n`, { mode: 0o600 });
  const [command, ...args] = OPENERS[platform] ?? ["xdg-open"];
  spawn(command, [...args, file], { stdio: "ignore", detached: true })
    .on("error", () => undefined)
    .unref();
  return () => rmSync(folder, { recursive: true, force: true });
}

/**
 * Resolves when the process is told to stop. Later signals change nothing: a terminal sends Ctrl-C to all processes of
 * `dev`, which also tell each other.
 */
export function stopped(): Promise<void> {
  return new Promise((resolve) => {
    thisProcess.on("SIGINT", resolve);
    thisProcess.on("SIGTERM", resolve);
  });
}
