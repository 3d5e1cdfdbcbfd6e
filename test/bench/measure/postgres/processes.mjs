import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** Starts a program of this folder, and waits for its first message. */
export async function start(program, ...args) {
  const child = fork(fileURLToPath(new URL(program, import.meta.url)), args, { execArgv: [] });
  const failed = once(child, "exit").then(([code]) => {
    throw new Error(`${program} ${args.join(" ")} ended with ${code}.`);
  });
  failed.catch(() => undefined);
  /** The next message of the process. */
  const hear = async () => (await Promise.race([once(child, "message"), failed]))[0];
  const first = await hear();
  return { first, hear, tell: (message) => child.send(message), kill: () => child.kill("SIGKILL") };
}

/** The rates of so many processes together. The first one creates the schema. */
export async function rateOfProcesses(count, ...args) {
  const processes = [await start("load.mjs", ...args)];
  try {
    const others = Array.from({ length: count - 1 }, () => start("load.mjs", ...args));
    processes.push(...(await Promise.all(others)));
    const rates = processes.map(({ hear }) => hear());
    for (const { tell } of processes) tell("measure");
    return (await Promise.all(rates)).reduce((sum, rate) => sum + rate, 0);
  } finally {
    for (const { kill } of processes) kill();
  }
}
