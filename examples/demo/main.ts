/**
 * A run whose process is killed while it waits for an answer, and that goes on in another process: `npm run demo`
 * Its argument is the file of the store.
 */
import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { print, red } from "./print.ts";
import type { Said } from "./process.ts";

const PROCESS = fileURLToPath(new URL("./process.ts", import.meta.url));
/** The time to read a line before the kill, and before the answer. */
const READ_MS = 1_500;

const [file = ".cadenza/demo.db"] = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
/** The steps that the two processes have run. */
const steps: { readonly name: string; readonly key: string; readonly pid: number | undefined }[] = [];

/** The id of the run. */
export const run_id = await tell().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
});

async function tell(): Promise<string> {
  const first = start();
  const { run_id } = await first.until("asks");
  await sleep(READ_MS);
  first.child.kill("SIGKILL");
  await first.gone;
  print("demo", "", red(`kill -9 ${first.child.pid}`));

  const second = start(run_id);
  await second.until("asks");
  await sleep(READ_MS);
  print("demo", "answers", "yes");
  second.child.send(true);
  await second.until("ended");
  await second.gone;

  const isOnce = new Set(steps.map(({ key }) => key)).size === steps.length;
  console.log(
    `\nTwo processes, one run. ${isOnce ? "Each of its steps was run once:" : "Some of its steps were run again:"}`,
  );
  for (const { child } of [first, second]) {
    const own = steps.filter(({ pid }) => pid === child.pid);
    print(`pid ${child.pid}`, "", own.map(({ name }) => name).join(", "));
  }
  return run_id;
}

interface Started {
  readonly child: ChildProcess;
  readonly gone: Promise<unknown>;
  /** Resolves with what the process says of this. Rejects if it ends before. */
  until<What extends Said["what"]>(what: What): Promise<Extract<Said, { what: What }>>;
}

/** Starts a process that begins a run, or goes on with one. */
function start(...run_id: readonly string[]): Started {
  // Node 22 warns of its SQLite.
  const execArgv = [...process.execArgv, "--disable-warning=ExperimentalWarning"];
  const child = fork(PROCESS, [file, ...run_id], { execArgv });
  // Its last messages come before `disconnect`, and may come after `exit`.
  const gone = Promise.all([once(child, "exit"), once(child, "disconnect")]);
  const heard: Said[] = [];
  child.on("message", (said: Said) => {
    heard.push(said);
    if (said.what === "step") steps.push({ name: said.name, key: said.key, pid: child.pid });
  });
  return {
    child,
    gone,
    async until(what) {
      for (let isOver = false; ; ) {
        const failure = heard.find((said) => said.what === "ended")?.error;
        if (failure !== undefined)
          throw new Error(`The run has failed: ${failure} Without a key in the environment a built-in model answers.`);
        const found = heard.find((said) => said.what === what);
        if (found !== undefined) return found as never;
        if (isOver) throw new Error(`Process ${child.pid} has ended before its time.`);
        isOver = await Promise.race([once(child, "message").then(() => false), gone.then(() => true)]);
      }
    },
  };
}
