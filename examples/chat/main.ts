/**
 * A chat with a red button: the server ends as with `kill -9`, and is started again. `npm run demo -- chat`
 * Arguments: the port, the file of the store, the pause between two words in milliseconds.
 */
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const server = fileURLToPath(new URL("./server.ts", import.meta.url));
let child: ChildProcess | undefined;
let isOver = false;

function start(): void {
  child = spawn(process.execPath, ["--import", "tsx", server, ...process.argv.slice(2)], { stdio: "inherit" });
  child.on("exit", (code, signal) => {
    if (!isOver && signal === "SIGKILL") start();
    else process.exitCode = code ?? 0;
  });
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    isOver = true;
    child?.kill("SIGTERM");
  });
}
start();
