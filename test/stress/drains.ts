import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import type { NewPlace } from "../harness/crash/place.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import { drainsBesideWaits } from "../harness/drains/beside.ts";
import { drains } from "../harness/drains/drains.ts";
import { startServer } from "../harness/postgres-server.ts";

const MAX_MEDIAN_MS = 500;

export const trial = command({
  about:
    "Sends SIGTERM to workers under load. Part load, on PostgreSQL: it is wrong if runs have their next owners later than 0.5 s after the signal at the median, if a take-over is counted, or if a step that was done runs once more. Part beside sends it during steps beside waits of all kinds: it is wrong if a step begins twice that was not stopped at the end of its drain, if too many runs are at work at once, or if a run does not end.",
  options: {
    seed,
    times: { about: "How many workers get SIGTERM in each part.", default: 200 },
    drainMs: { about: "How long a drain may take; 0 stands for 200 ms under load and 1,500 beside waits.", default: 0 },
    part: { about: "The part that is tried.", default: "all", oneOf: ["all", "load", "beside"] },
    store: { about: "The stores of the part beside.", default: "all", oneOf: ["all", "sqlite", "postgres"] },
  },
  async run({ seed, times, drainMs, part, store }, report) {
    let [drained, parts] = [0, 0];
    const onDrained = (): void => {
      drained += 1;
      report.progress(`${drained} workers`);
    };
    const beside = async (on: "sqlite" | "postgres", { place, remove }: NewPlace): Promise<void> => {
      const options = { place, seed: String(seed), times, drainMs: drainMs || 1_500, onDrained };
      const { wrong, ...figures } = await drainsBesideWaits(options);
      remove();
      parts += 1;
      report.say(`steps beside waits on ${on}: ${JSON.stringify(figures)}`);
      for (const what of wrong) report.wrong(what, { part: "beside", store: on });
    };
    const server = store === "sqlite" ? undefined : await startServer(18);
    if (part !== "beside" && server !== undefined) {
      if ("missing" in server.address) throw new Error(server.address.missing);
      const { host, port } = server.address;
      const options = { server: { host, port }, schema: "drains", times, drainMs: drainMs || 200, onDrained };
      const { wrong, ...figures } = await drains(options);
      parts += 1;
      report.say(`under load: ${JSON.stringify(figures)}`);
      const isLate = figures.median > MAX_MEDIAN_MS;
      if (isLate) wrong.push(`the next owner comes after ${figures.median} ms at the median`);
      for (const what of wrong) report.wrong(what, { part: "load" });
    }
    if (part !== "load" && server !== undefined) await beside("postgres", newSchemaOn(server.address));
    if (part !== "load" && store !== "postgres") await beside("sqlite", newFile());
    await server?.stop();
    return `${parts * times} drains`;
  },
});
