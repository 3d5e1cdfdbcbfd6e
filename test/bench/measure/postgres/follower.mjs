/**
 * A process that executes nothing: `follower.mjs <schema> <hints | no hints> <listen | parts | idle> <scale>`. It follows
 * runs of a process that it starts, and says how late the parts arrive, or how many queries it sends.
 */
import { openRuntime } from "./cadenza.mjs";
import { newPool } from "./database.mjs";
import { start } from "./processes.mjs";

process.once("disconnect", () => process.exit());

const [schema, hints, kind, scale] = process.argv.slice(2);
const measures = { listen: async () => "listens", parts: measureParts, idle: measureIdle };
const TALKING = 20;
const IDLE = 1_000;

let queries = 0;
const pool = newPool(5).on("connect", (client) => {
  const { query } = client;
  client.query = (...parameters) => {
    queries += 1;
    return query.apply(client, parameters);
  };
});
const runtime = await openRuntime(schema, { hints: hints === "hints", work: false, pool });
process.send(await measures[kind]());

/** The milliseconds from the moment at which an agent emits a part to that at which a reader here has it. */
async function measureParts() {
  const delays = [];
  const talking = await start("emitter.mjs", schema, hints, "talks", String(TALKING));
  const follow = async (run_id) => {
    for await (const { type, part } of runtime.events(run_id)) {
      if (type === "message.part") delays.push(now() - Number(part.content));
    }
  };
  for (const run_id of talking.first) void follow(run_id);
  await pause(scale === "quick" ? 300 : 1_000);
  delays.length = 0;
  await pause(scale === "quick" ? 500 : 3_000);
  talking.kill();
  const sorted = delays.toSorted((a, b) => a - b);
  return { parts: sorted.length, p50: at(sorted, 0.5), p99: at(sorted, 0.99) };
}

/** The queries a second of a process that follows many runs, of which none moves. */
async function measureIdle() {
  const silent = await start("emitter.mjs", schema, hints, "waits", String(scale === "quick" ? 20 : IDLE));
  const started = silent.first.map((run_id) => {
    const events = runtime.events(run_id)[Symbol.asyncIterator]();
    return events.next().then(async () => {
      await events.next();
      void events.next();
    });
  });
  await Promise.all(started);
  await pause(scale === "quick" ? 100 : 1_500);
  const [before, since] = [queries, performance.now()];
  await pause(scale === "quick" ? 500 : 3_000);
  const rate = ((queries - before) * 1_000) / (performance.now() - since);
  silent.kill();
  return { rate };
}

/** The time of this machine, which its processes share, in milliseconds with fractions. */
function now() {
  return performance.timeOrigin + performance.now();
}

function at(sorted, share) {
  return sorted[Math.ceil(sorted.length * share) - 1];
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
