import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { textOf } from "cadenza";
import { openRuntime } from "../src/runtime.ts";

it("a worker executes what another process has accepted, and another one goes on when it is killed", async (t) => {
  const file = join(mkdtempSync(join(tmpdir(), "app-")), "runs.db");
  const startWorker = () => {
    const worker = spawn(process.execPath, ["src/worker.ts"], {
      env: { ...process.env, STORE: file },
      stdio: ["ignore", "ignore", "inherit"],
    });
    t.after(() => worker.kill());
    return worker;
  };
  const { runtime, close } = openRuntime(file, { work: false });
  t.after(() => close(0));
  const first = startWorker();
  const { run_id, status } = await runtime.createRun({ agent_name: "desk", input: "I want my money back." });
  assert.equal(status, "awaiting");
  first.kill("SIGKILL");

  startWorker();
  const run = await runtime.resume({ run_id, await_resume: { approved: true } });
  assert.match(textOf(run), /The 40 € are on their way\./);
});
