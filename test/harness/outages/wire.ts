import { mkdtempSync, rmSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Where a server listens: the folder of its socket, and its port. */
export interface Listening {
  readonly host: string;
  readonly port: number;
}

/** A connection of a client, and the one to the server that belongs to it. */
interface Link {
  readonly client: Socket;
  server: Socket | undefined;
}

/** A network between clients and a PostgreSQL server, which a test cuts or lets swallow everything. */
export class Wire {
  /** The folder of the socket to which clients connect in place of the server. */
  readonly host = mkdtempSync(join(tmpdir(), "wire-"));
  readonly #socket: string;
  readonly #target: string;
  readonly #listening: Server;
  readonly #links = new Set<Link>();
  #isDead = false;

  constructor({ host, port }: Listening) {
    const name = `.s.PGSQL.${port}`;
    this.#target = join(host, name);
    this.#socket = join(this.host, name);
    this.#listening = createServer({ pauseOnConnect: true }, (client) => this.#onClient(client));
  }

  open(): Promise<void> {
    return new Promise((resolve) => this.#listening.listen(this.#socket, resolve));
  }

  /** Ends all connections. */
  cut(): void {
    for (const { client, server } of this.#links) {
      client.destroy();
      server?.destroy();
    }
  }

  /** From now on nothing is forwarded, and no connection is closed: neither side can know. */
  fail(): void {
    this.#isDead = true;
    for (const { client, server } of this.#links) {
      client.pause();
      server?.pause();
    }
  }

  /** Nothing is forwarded any more on the connections that are there. New ones work. */
  stall(): void {
    for (const link of this.#links) {
      link.client.pause();
      link.server?.pause();
    }
  }

  /** What was sent meanwhile arrives, also what the client has given up. */
  resume(): void {
    this.#isDead = false;
    for (const link of this.#links) {
      if (link.server === undefined) this.#join(link);
      link.client.resume();
      link.server?.resume();
    }
  }

  /** New connections work again. Those of before stay without an answer, as behind a router that has lost its memory. */
  heal(): void {
    this.#isDead = false;
    for (const link of this.#links) {
      if (link.server === undefined) this.#join(link);
      else link.server.destroy();
    }
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#listening.close(resolve));
    this.cut();
    await closed;
    rmSync(this.host, { recursive: true, force: true });
  }

  #onClient(client: Socket): void {
    const link: Link = { client, server: undefined };
    this.#links.add(link);
    client.on("error", () => {});
    client.on("close", () => {
      this.#links.delete(link);
      link.server?.destroy();
    });
    if (!this.#isDead) this.#join(link);
  }

  #join(link: Link): void {
    const { client } = link;
    const server = connect(this.#target);
    link.server = server;
    server.on("error", () => {});
    // While nothing is forwarded, the client does not learn of the end either.
    server.on("close", () => {
      if (!this.#isDead && !client.isPaused()) client.destroy();
    });
    server.on("data", (data) => client.write(data));
    client.on("data", (data) => server.write(data));
    client.resume();
  }
}
