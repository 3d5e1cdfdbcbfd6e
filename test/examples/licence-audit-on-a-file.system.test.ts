import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Starts the demo on a file. Its output so far is in `said`; `says` waits for a text. */
function start(folder: string) {
  const args = [
    "examples/licence-audit/main.ts",
    join(folder, "package-lock.json"),
    "--store",
    join(folder, "audit.db"),
  ];
  const child: ChildProcess = spawn(process.execPath, ["--import", "tsx", ...args], { cwd: ROOT });
  const ended = once(child, "close") as Promise<[number | null, NodeJS.Signals | null]>;
  const demo = {
    said: "",
    says: async (text: string): Promise<void> => {
      while (!demo.said.includes(text)) {
        const heard = child.stdout === null ? ended : once(child.stdout, "data");
        const isOver = await Promise.race([heard.then(() => false), ended.then(() => true)]);
        if (isOver && !demo.said.includes(text))
          throw new Error(`The demo ended without saying ${text}:\n${demo.said}`);
      }
    },
    type: (line: string): void => void child.stdin?.write(`${line}\n`),
    end: (signal: NodeJS.Signals): void => void child.kill(signal),
    ended,
  };
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding("utf8").prependListener("data", (text: string) => {
      demo.said += text;
    });
  return demo;
}

it("the licence audit on a file goes on after Ctrl-C, and after a kill, where it was", {
  timeout: 120_000,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "licence-audit-"));
  const packages = Object.fromEntries(
    ["MIT", "MPL-2.0", "GPL-3.0-only", "CC0-1.0"].map((license) => [`node_modules/${license}`, { license }]),
  );
  writeFileSync(
    join(folder, "package-lock.json"),
    JSON.stringify({ lockfileVersion: 3, packages: { "": {}, ...packages } }),
  );
  try {
    const first = start(folder);
    await first.says("Looked at 4 of 4.");
    await first.says("(ask#1): ");
    first.type("y");
    await first.says("(ask#2): ");
    first.end("SIGINT");
    expect(await first.ended).toEqual([130, null]);
    expect(first.said).toContain("The run is kept: the same command goes on with it.");

    const second = start(folder);
    await second.says("(ask#2): ");
    expect(second.said).toContain("Going on with run");
    expect(second.said).not.toContain("Looked at");
    expect(second.said).not.toContain("ask#1");
    second.end("SIGKILL");
    await second.ended;

    const third = start(folder);
    await third.says("(ask#2): ");
    third.type("n");
    await third.says("The run went");
    expect(await third.ended).toEqual([0, null]);
    expect(third.said).toContain("completed");
    const run_id = /Run (\S+) has begun/.exec(first.said)?.[1];
    expect(third.said).toContain(`Going on with run ${run_id}.`);

    const fourth = start(folder);
    await fourth.says("has begun.");
    fourth.end("SIGKILL");
    await fourth.ended;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
