import { openRuntime } from "./runtime.ts";

/* A process that executes runs, and serves nothing. Start as many as you like. */
const { close } = openRuntime();
console.log("A worker takes what is due. Ctrl-C ends it.");

// Nothing else holds the process open.
const alive = setInterval(() => {}, 60_000);
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    clearInterval(alive);
    await close();
    process.exit();
  });
}
