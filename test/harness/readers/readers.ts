import { fork } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";
import type { Case, Listening } from "./cases.ts";

const PAUSE_MS = 50;

export interface ReaderFigures {
  /** How many have read to the end. */
  readonly complete: number;
  /** How many bytes each of them has read. */
  readonly bytes: number;
  readonly seconds: number;
  /** The bytes of memory of the server before there were readers, and at most. */
  readonly before: number;
  readonly most: number;
}

/** Lets slow readers read the events of a run, in real time and over sockets. */
export async function readAll(one: Case): Promise<ReaderFigures> {
  const child = fork(fileURLToPath(new URL("./server.ts", import.meta.url)), [JSON.stringify(one)]);
  const [{ port, run_id }] = (await once(child, "message")) as [Listening];
  let [most, before] = [0, 0];
  child.on("message", (resident: number) => {
    before ||= resident;
    most = Math.max(most, resident);
  });
  child.send("memory");
  const watch = setInterval(() => child.send("memory"), 200);
  const start = performance.now();
  const reading = Array.from({ length: one.readers }, () => readSlowly(port, `/runs/${run_id}/events`, one.gulp));
  const complete = (await Promise.all(reading)).filter(({ isComplete }) => isComplete);
  clearInterval(watch);
  child.kill();
  const seconds = (performance.now() - start) / 1_000;
  return { complete: complete.length, bytes: complete[0]?.bytes ?? 0, seconds, before, most };
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
