import { once } from "node:events";
import { createServer } from "node:http";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import { expect, it } from "vitest";
import { amount, LONG_MS } from "../harness/fuzz.ts";
import { Client } from "./client.ts";
import { listen } from "./mounts.ts";

/* In a process of its own: it measures memory. */

const MIB = 1024 * 1024;
const STALL_MS = 12_345;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

it.each([
  { what: "many short parts", parts: amount(100_000, 8_000), length: 1_000 },
  { what: "one long part", parts: 1, length: amount(40_000_000, 8_000_000) },
])(
  "readers of $what that never read cost little, delay no other, and are disconnected after a while",
  async ({ parts, length }) => {
    const readers = amount(100, 10);
    // Time passes for stalled readers when the test advances it.
    const stalls = new Set<() => void>();
    const runtime = new AgentRuntime({
      clock: {
        now: () => Date.now(),
        turn: () => new Promise((resolve) => setImmediate(resolve)),
        setTimeout: (callback, delayMs) => {
          if (delayMs === STALL_MS) {
            stalls.add(callback);
            return () => stalls.delete(callback);
          }
          const timer = setTimeout(callback, delayMs).unref();
          return () => clearTimeout(timer);
        },
      },
    });
    const content = "x".repeat(length);
    runtime.register("flood", async function* () {
      for (let i = 0; i < parts; i++) yield content;
    });
    const server = createServer(
      createAcpNodeListener(runtime, { stallMs: STALL_MS, limits: { maxReadersPerRun: 1_000 } }),
    );
    const place = await listen(server);
    const client = new Client(place);
    const start = async (): Promise<string> =>
      (await runtime.createRun({ agent_name: "flood", input: [], mode: "async" })).run_id;

    // A first run warms the code up. The second one measures the memory of a log.
    await readAll(client, await start(), parts);
    const before = await memory();
    await readAll(client, await start(), parts);
    const logBytes = (await memory()) - before;

    const opened: Promise<unknown>[] = [];
    const onConnection = (socket: Socket): void => {
      opened.push(once(socket, "close"));
    };
    const beforeRun = await memory();
    const runId = await start();
    server.on("connection", onConnection);
    const sockets = Array.from({ length: readers }, () => deafReader(place.base, runId));
    await untilSettled(() => opened.length === readers);
    server.off("connection", onConnection);
    await readAll(client, runId, parts);

    await untilSettled(() => stalls.size === readers);
    expect(((await memory()) - beforeRun - logBytes) / readers).toBeLessThan(2 * MIB);

    for (const close of stalls) close();
    await Promise.all(opened);
    expect((await memory()) - beforeRun - logBytes).toBeLessThan(8 * MIB);
    for (const socket of sockets) socket.destroy();
    await place.close();
    await runtime.close({ drainMs: 0 });
  },
  LONG_MS,
);

/** Requests the events of a run, and never reads a byte of them. */
function deafReader(base: string, runId: string): Socket {
  const socket = connect(Number(new URL(base).port), "127.0.0.1");
  socket.on("error", () => {});
  socket.write(`GET /runs/${runId}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`);
  return socket;
}

/** Reads the events of a run to their end, and checks that every part is among them. */
async function readAll(client: Client, runId: string, parts: number): Promise<void> {
  const response = await client.open("GET", `/runs/${runId}/events`, { headers: { accept: "text/event-stream" } });
  const reader = response.body?.getReader();
  const needle = Buffer.from("event: message.part\n");
  let rest = Buffer.alloc(0);
  let count = 0;
  for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) {
    const bytes = Buffer.concat([rest, read.value]);
    let from = 0;
    for (let at = bytes.indexOf(needle); at !== -1; at = bytes.indexOf(needle, from)) {
      count += 1;
      from = at + needle.length;
    }
    rest = bytes.subarray(Math.max(from, bytes.length - needle.length + 1));
  }
  expect(count).toBe(parts);
}

async function untilSettled(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}

/** The memory in use after several garbage collections: one may make more objects collectable. */
async function memory(): Promise<number> {
  for (let round = 0; round < 4; round++) {
    collectGarbage();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
