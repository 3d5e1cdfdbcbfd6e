/**
 * One process of a load: `load.mjs <subject> <run | cycle> <schema> <scale>`. It warms up, says so, and measures when it
 * is told to: how often a second, with 50 at a time.
 */
import { rateAtOnce } from "../rates.mjs";

process.once("disconnect", () => process.exit());

const WIDTH = 50;

const subjects = {
  cadenza: async (schema) => (await import("./cadenza.mjs")).openCadenza(schema),
  "cadenza, no hints": async (schema) => (await import("./cadenza.mjs")).openCadenza(schema, { hints: false }),
  "cadenza, one session": async (schema) =>
    (await import("./cadenza.mjs")).openCadenza(schema, { sessionOf: () => ONE }),
  "cadenza, sessions": async (schema) => (await import("./cadenza.mjs")).openCadenza(schema, { sessionOf: oneOfMany }),
  dbos: async (schema) => (await import("./dbos.mjs")).openDbos(schema),
  floor: async (schema) => (await import("./floor.mjs")).openFloor(schema),
  "floor, alone": async (schema) => (await import("./floor.mjs")).openFloor(schema, { alone: true }),
};
const ONE = "00000000-0000-4000-8000-000000000000";
const SESSIONS = 1_000;

function oneOfMany(index) {
  return ONE.slice(0, -4) + String(index % SESSIONS).padStart(4, "0");
}

const [name, work, schema, scale] = process.argv.slice(2);
const subject = await subjects[name](schema);
const part = scale === "quick" ? 50 : 1500;
const one = (index) => subject[work](`hello ${index}`, index);
await rateAtOnce(WIDTH, part / 2, one);
process.once("message", async () => process.send(await rateAtOnce(WIDTH, part, one)));
process.send("ready");
