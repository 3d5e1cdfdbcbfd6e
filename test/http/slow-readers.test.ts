import { connect } from "node:net";
import { AgentRuntime } from "cadenza";
import type { AcpOptions } from "cadenza/http";
import { describe, expect, it } from "vitest";
import { mounts } from "./mounts.ts";

const STALL_MS = 2_000;
const PAUSE_MS = 50;

const shells = mounts.filter(({ name }) => name === "node:http" || name === "Hono");

describe.each(shells)("a reader that reads a little now and then, over $name,", ({ open }) => {
  it.each([
    ["of a stream of events", "/events"],
    ["of a run", ""],
  ])("is never disconnected, however long a frame %s is", async (_, path) => {
    const time = new StallTime();
    const runtime = new AgentRuntime({ clock: time });
    const content = "x".repeat(8_000_000);
    runtime.register("long", () => content);
    const { run_id } = await runtime.createRun({ agent_name: "long", input: "" });
    const options: AcpOptions = { stallMs: STALL_MS };
    const place = await open(runtime, options);
    const url = new URL(`${place.base}/runs/${run_id}${path}`);
    const text = await readSlowly(url, () => time.advance(PAUSE_MS));
    const body = text.slice(text.indexOf("\r\n\r\n") + 4);
    if (path === "") expect(JSON.parse(body)).toMatchObject({ output: [{ parts: [{ content }] }] });
    else {
      expect(body.split(content)).toHaveLength(4);
      expect(body.split("\n\n").at(-2)).toMatch(/^id: 6\nevent: run\.completed\ndata: \{.*\}$/);
    }
    // Long enough for a disconnect if the bytes that it reads did not count.
    expect(time.passed).toBeGreaterThan(2 * STALL_MS);
    await place.close();
    await runtime.close({ drainMs: 0 });
  });
});

/** A clock whose time passes for stalled readers when the test advances it, and for all else by itself. */
class StallTime {
  passed = 0;
  readonly #stalls = new Set<{ readonly at: number; readonly callback: () => void }>();

  now(): number {
    return Date.now();
  }

  turn(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve));
  }

  setTimeout(callback: () => void, delayMs: number): () => void {
    if (delayMs !== STALL_MS) {
      const timer = setTimeout(callback, delayMs).unref();
      return () => clearTimeout(timer);
    }
    const stall = { at: this.passed + delayMs, callback };
    this.#stalls.add(stall);
    return () => this.#stalls.delete(stall);
  }

  advance(ms: number): void {
    this.passed += ms;
    for (const stall of this.#stalls) {
      if (stall.at > this.passed) continue;
      this.#stalls.delete(stall);
      stall.callback();
    }
  }
}

/** Reads an answer over a socket of its own, and lets time pass after each chunk. */
function readSlowly(url: URL, pause: () => void): Promise<string> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    const socket = connect(Number(url.port), "127.0.0.1");
    socket.on("data", (piece: Buffer) => {
      pieces.push(piece);
      socket.pause();
      // The server gets a turn before time passes.
      setImmediate(() => {
        pause();
        socket.resume();
      });
    });
    socket.on("error", reject);
    socket.on("end", () => resolve(Buffer.concat(pieces).toString("utf8")));
    socket.write(`GET ${url.pathname} HTTP/1.0\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n`);
  });
}
