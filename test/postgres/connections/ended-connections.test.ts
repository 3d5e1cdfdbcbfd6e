import type { Server } from "node:net";
import { createServer } from "node:net";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import { expect, it, onTestFinished } from "vitest";

/* A server that ends connections. In Node an error event without a listener ends the process, and here fails the run of the tests. */

/** A message of the wire protocol of PostgreSQL. */
function message(type: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type);
  head.writeInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

const authenticated = message("R", Buffer.alloc(4));
const ready = message("Z", Buffer.from("I"));
const terminated = message(
  "E",
  Buffer.from("SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"),
);

/** A server that ends each connection in the packet that says that it is ready. */
async function endingServer(): Promise<number> {
  const server: Server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => socket.end(Buffer.concat([authenticated, ready, terminated])));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => new Promise<void>((resolve) => server.close(() => resolve())));
  const address = server.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

it("a connection that is ended as it is lent does not end the process", async () => {
  const pool = new pg.Pool({ host: "127.0.0.1", port: await endingServer(), user: "postgres", database: "postgres" });
  await expect(openPostgresStore({ pool })).rejects.toMatchObject({ code: "store_failed" });
  await pool.end();
});
