import type { ChildProcess } from "node:child_process";
import { fork, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as after } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { temporaryFolder } from "../harness/sqlite-files.ts";

/*
 * The waker of examples/temporal, on a Temporal server of the machine. Its page says how the server and the packages
 * are installed.
 */

const PROCESS = fileURLToPath(new URL("./process.ts", import.meta.url));
const PACKAGES = fileURLToPath(new URL("../../examples/temporal/node_modules", import.meta.url));
const SERVER = "temporal-test-server";
const missing = !existsSync(PACKAGES)
  ? "its packages are not installed"
  : spawnSync("which", [SERVER]).status !== 0
    ? `there is no ${SERVER}`
    : undefined;

interface Report {
  readonly begun?: string;
  readonly done?: string;
  readonly ended?: string;
  readonly status?: string;
}

describe.skipIf(missing !== undefined)(`the waker on Temporal${missing ? `: ${missing}` : ""}`, () => {
  const folder = temporaryFolder();
  let server: ChildProcess | undefined;
  let address: readonly string[] = [];
  beforeAll(async () => {
    const started = spawn(SERVER, { stdio: ["ignore", "pipe", "ignore"] });
    server = started;
    const [line] = (await once(createInterface({ input: started.stdout }), "line")) as [string];
    address = line.split(" ");
  }, 60_000);
  afterAll(() => {
    server?.kill("SIGKILL");
    folder.remove();
  });

  it.each([
    { fates: "once", scanMs: 60_000, withinMs: 12_000 },
    // A wake-up that is lost delays its run until a worker scans the store.
    { fates: "lost,twice,late,once,twice", scanMs: 5_000, withinMs: 30_000 },
  ])(
    "the runs of a worker that is killed go on at the others, with wake-ups $fates",
    { timeout: 150_000 },
    async ({ fates, scanMs, withinMs }) => {
      const done = new Set<string>();
      const repeated: string[] = [];
      const ended = new Map<string, string>();
      const last = new Map<string, ChildProcess>();
      const start = async (role: string): Promise<ChildProcess> => {
        const child = fork(PROCESS, [role, join(folder.path, `${fates}.db`), ...address, fates, `${scanMs}`], {
          execArgv: ["--import", "tsx"],
          stdio: ["ignore", "ignore", "ignore", "ipc"],
        });
        await once(child, "message");
        child.on("message", (report: Report) => {
          if (report.done !== undefined) done.add(report.done);
          if (report.ended !== undefined) ended.set(report.ended, String(report.status));
          if (report.begun === undefined) return;
          if (done.has(report.begun)) repeated.push(report.begun);
          last.set(report.begun, child);
        });
        return child;
      };
      const [web, ...workers] = await Promise.all(["web", "worker", "worker", "worker"].map(start));
      const names = Array.from({ length: 12 }, (_, n) => `${n}`);
      for (const create of names) web?.send({ create });
      // The worker that is in the middle of a run.
      await expect.poll(() => done.size, { timeout: 60_000, interval: 5 }).toBeGreaterThan(3);
      const victim = [...last.values()].at(-1);
      victim?.kill("SIGKILL");
      const killedAt = Date.now();
      await expect.poll(() => ended.size, { timeout: 60_000, interval: 20 }).toBe(names.length);
      expect(new Set(ended.values())).toEqual(new Set(["completed"]));

      expect(Date.now() - killedAt).toBeLessThan(withinMs);
      expect(repeated).toEqual([]);
      expect(done.size).toBe(3 * names.length);
      for (const child of [web, ...workers].filter((one) => one !== victim)) {
        child?.send({});
        if (child !== undefined) await Promise.race([once(child, "exit"), after(10_000)]);
        expect(child?.exitCode).toBe(0);
      }
    },
  );
});
