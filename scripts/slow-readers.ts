import { fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";

/*
 * Slow readers of long events, in real time and over sockets: one of frames of 8 MB with a `stallMs` of 2 s, and 200 at
 * once of a run of 2.2 MB. All have to read to the end, and the server's memory has a limit. `npm run test:readers`,
 * `npm run test:readers -- 1` for one case.
 */
const MB = 1_000_000;
const MIB = 1024 * 1024;
const PAUSE_MS = 50;
const MAX_RESIDENT_MIB = 300;

interface Case {
  readonly name: string;
  readonly readers: number;
  /** Default: that of the library. */
  readonly stallMs?: number;
  readonly parts: number;
  readonly partLength: number;
  /** Bytes that a reader reads at a time. */
  readonly gulp: number;
}

const cases: readonly Case[] = [
  { name: "one of 8 MB", readers: 1, stallMs: 2_000, parts: 1, partLength: 8 * MB, gulp: 65_536 },
  { name: "200 of 2.2 MB", readers: 200, stallMs: 2_000, parts: 2_000, partLength: 1_100, gulp: 65_536 },
  { name: "200 slower ones of 2.2 MB", readers: 200, parts: 2_000, partLength: 1_100, gulp: 2_400 },
  { name: "200 slower ones of one part", readers: 200, parts: 1, partLength: 2.2 * MB, gulp: 2_400 },
];

interface Listening {
  readonly port: number;
  readonly run_id: string;
}

if (process.argv[2] === "serve") await serve(cases[Number(process.argv[3])] as Case);
else {
  let failed = false;
  const [only] = process.argv.slice(2);
  for (const [index, each] of cases.entries()) {
    if (only === undefined || Number(only) === index) failed = !(await measure(index, each)) || failed;
  }
  process.exitCode = failed ? 1 : 0;
}

/** The server, in a process of its own. It reports its memory on request. */
async function serve({ stallMs, parts, partLength }: Case): Promise<void> {
  const runtime = new AgentRuntime();
  runtime.register("long", async function* () {
    for (let i = 0; i < parts; i++) yield "x".repeat(partLength);
  });
  const { run_id } = await runtime.createRun({ agent_name: "long", input: "" });
  const server = createServer(createAcpNodeListener(runtime, { stallMs, limits: { maxReadersPerRun: 1_000 } }));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  process.send?.({ port: (server.address() as AddressInfo).port, run_id } satisfies Listening);
  process.on("message", () => process.send?.(process.memoryUsage.rss()));
}

async function measure(index: number, { name, readers, gulp }: Case): Promise<boolean> {
  const child = fork(fileURLToPath(import.meta.url), ["serve", String(index)], { execArgv: ["--import", "tsx"] });
  const [{ port, run_id }] = (await once(child, "message")) as [Listening];
  let [most, before] = [0, 0];
  child.on("message", (resident: number) => {
    before ||= resident;
    most = Math.max(most, resident);
  });
  child.send("memory");
  const watch = setInterval(() => child.send("memory"), 200);
  const start = performance.now();
  const reading = Array.from({ length: readers }, () => readSlowly(port, `/runs/${run_id}/events`, gulp));
  const complete = (await Promise.all(reading)).filter(({ isComplete }) => isComplete);
  clearInterval(watch);
  child.kill();
  const bytes = complete[0]?.bytes ?? 0;
  const seconds = (performance.now() - start) / 1_000;
  const holds = complete.length === readers && most <= MAX_RESIDENT_MIB * MIB;
  console.log(
    `${holds ? "ok  " : "FAIL"} ${name}: ${complete.length} of ${readers} complete, ${bytes} bytes each, in ${seconds.toFixed(1)} s ` +
      `(${(bytes / seconds / 1_000).toFixed(0)} KB/s); resident ${(before / MIB).toFixed(0)} MiB before, ${(most / MIB).toFixed(0)} MiB at most`,
  );
  return holds;
}

/** Reads `gulp` bytes at a time, with pauses between. */
function readSlowly(port: number, path: string, gulp: number): Promise<{ isComplete: boolean; bytes: number }> {
  return new Promise((resolve) => {
    let bytes = 0;
    let tail = "";
    const take = (count: number, buffer: Uint8Array): boolean => {
      bytes += count;
      tail = (tail + Buffer.from(buffer.subarray(Math.max(count - 200, 0), count)).toString("latin1")).slice(-200);
      setTimeout(() => socket.resume(), PAUSE_MS);
      return false;
    };
    const socket: Socket = connect({
      port,
      host: "127.0.0.1",
      onread: { buffer: Buffer.alloc(gulp), callback: take },
    });
    socket.on("error", () => undefined);
    socket.on("close", () => resolve({ isComplete: tail.endsWith('"}}\n\n') && tail.includes("finished_at"), bytes }));
    socket.write(`GET ${path} HTTP/1.0\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`);
  });
}
