import { command } from "../harness/commands/commands.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import { startServer } from "../harness/postgres-server.ts";
import { floorOfMessages, handleMessages, handleMessagesOfMany } from "../harness/rates/messages.ts";

const MAX_BEHIND_MS = 5_000;
const LEAST_STEPS = 0.7;
/** The least share of the requested rate at which messages must be acknowledged. */
const LEAST_RATE = 0.95;
/** The least share of what one batched insert and one batched update a message would allow. */
const LEAST_OF_FLOOR = 0.8;
/** How many messages are sent to many runs, about. */
const SENT_TO_MANY = 20_000;

export const trial = command({
  about:
    "Several processes send messages to one run of another process. Each must be taken once, those of a sender in order, and the last within five seconds. Other runs of the owner keep 0.7 of the rate of their steps. To many runs: as fast as they are accepted, compared with what the database alone would do.",
  options: {
    senders: { about: "How many processes send.", default: 4 },
    rate: { about: "How many messages a second they send together.", default: 500 },
    seconds: { about: "For how long they send.", default: 60 },
    runs: { about: "To how many runs. For more than one the rate and the seconds do not count.", default: 1 },
    store: {
      about: "A SQLite file, or a PostgreSQL server that is started for it.",
      default: "sqlite",
      oneOf: ["sqlite", "postgres"],
    },
  },
  async run({ senders, rate, seconds, runs, store }, report) {
    const server = store === "postgres" ? await startServer(18) : undefined;
    const { place, remove } = server === undefined ? newFile() : newSchemaOn(server.address);
    if (runs > 1) {
      const each = Math.max(1, Math.round(SENT_TO_MANY / runs / senders));
      const floor = await floorOfMessages(place, runs, 500);
      const { sent, taken, outOfOrder, perSecond } = await handleMessagesOfMany({ place, senders, runs, each });
      remove();
      await server?.stop();
      report.check(taken === sent && outOfOrder === 0, `${taken} of ${sent} taken, ${outOfOrder} out of order`);
      const share = perSecond / floor;
      const said = `${perSecond.toFixed(0)}/s were sent and taken, ${share.toFixed(2)} of ${floor.toFixed(0)}/s`;
      report.check(share >= LEAST_OF_FLOOR, said);
      return `${sent} messages to ${runs} runs from ${senders} processes`;
    }
    const figures = await handleMessages({ place, senders, perSecond: rate, seconds });
    remove();
    await server?.stop();
    const { sent, handled, outOfOrder, replays, behindMs, perSecond, steps } = figures;
    report.say(`the agent was executed again ${replays} times`);
    report.check(handled === sent && outOfOrder === 0, `${handled} of ${sent} taken, ${outOfOrder} out of order`);
    report.check(perSecond >= LEAST_RATE * rate, `${perSecond.toFixed(0)}/s were acknowledged`);
    report.check(behindMs <= MAX_BEHIND_MS, `the last was taken after ${behindMs.toFixed(0)} ms`);
    report.check(steps >= LEAST_STEPS, `steps beside them: ${steps.toFixed(2)} of their rate`);
    return `${sent} messages from ${senders} processes`;
  },
});
