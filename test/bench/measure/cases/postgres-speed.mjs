import { inSchema } from "../postgres/database.mjs";
import { rateOfProcesses, start } from "../postgres/processes.mjs";

/** Runs, and questions with their answers, a second: of so many processes, each with 50 at a time. */
export const measureProcesses = async (count, subject, scale) => ({
  runs: await inSchema((schema) => rateOfProcesses(count, subject, "run", schema, scale)),
  cycles: await inSchema((schema) => rateOfProcesses(count, subject, "cycle", schema, scale)),
});

/** Runs a second of one process, in one session or in many. */
export const measureSessions = async (subject, scale) => ({
  runs: await inSchema((schema) => rateOfProcesses(1, subject, "run", schema, scale)),
});

/** Runs a second of one process, while another one listens for hints. */
export const measureHints = async (subject, scale) =>
  inSchema(async (schema) => {
    const listener = await start("follower.mjs", schema, "hints", "listen", scale);
    try {
      return { runs: await rateOfProcesses(1, subject, "run", schema, scale) };
    } finally {
      listener.kill();
    }
  });
