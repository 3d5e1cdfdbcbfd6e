import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { afterFailovers } from "../harness/outages/failover.ts";
import { joinedSessions } from "../harness/outages/joins.ts";
import { kinds as statements } from "../harness/outages/lossy-pool.ts";
import type { Outage } from "../harness/outages/outages.ts";
import { complaintsIn, underOutages } from "../harness/outages/outages.ts";
import { startServer } from "../harness/postgres-server.ts";
import { buildProgram } from "../harness/worker-process.ts";

const KINDS = [...statements, "all"];
const PARTS = ["all", "outages", "losses", "failovers", "joins"] as const;
const OUTAGES = ["crash", "cut", "half-open", "half-open one"] as const satisfies readonly Outage["is"][];

export const trial = command({
  about:
    "Takes a PostgreSQL server away from under processes at work. Parts: outages; lost answers; the last commits undone, as by a failover to a server that was behind; sessions that two processes join.",
  options: {
    seed,
    program: {
      about: "The name of one random program that all runs execute under outages and losses, such as 7-12.",
      default: "",
    },
    part: { about: "The part that is tried.", default: "all", oneOf: PARTS },
    seconds: { about: "How long an outage lasts.", default: 20 },
    leaseMs: { about: "The lease of a process, in milliseconds.", default: 10_000 },
    processes: { about: "How many processes execute runs.", default: 3 },
    atOnce: { about: "How many runs are open at a time.", default: 30 },
    loadMs: { about: "How long there is load before and after an outage, in milliseconds.", default: 5_000 },
    rounds: { about: "How many failovers are tried.", default: 10 },
    joins: { about: "How often a session is joined.", default: 1_000 },
    kinds: { about: "The statements whose answers are lost.", default: KINDS, oneOf: KINDS },
    only: { about: "The one kind of outage that is tried.", default: "", oneOf: OUTAGES },
  },
  async run(
    { seed, program: named, part, seconds, leaseMs, processes, atOnce, loadMs, rounds, joins, kinds, only },
    report,
  ) {
    const settings = { log_min_duration_statement: `${0.4 * leaseMs}`, log_statement: "all" };
    const server = await startServer(18, settings);
    if ("missing" in server.address) throw new Error(server.address.missing);
    const { host, port } = server.address;
    const at = { host, port };
    const program = await buildProgram(new URL("../harness/crash/worker.ts", import.meta.url));
    const runs = { seed: String(seed), oneProgram: named || undefined };
    const base = { ...runs, program, server, leaseMs, processes, atOnce, loadMs };
    const has = (one: (typeof PARTS)[number]): boolean => part === "all" || part === one;
    let trials = 0;
    const tell = (
      name: string,
      figures: object,
      wrong: readonly string[],
      again: Parameters<typeof report.wrong>[1],
    ): void => {
      trials += 1;
      report.say(`${name}: ${JSON.stringify({ ...figures, wrong: wrong.length })}`);
      for (const line of wrong) report.wrong(`${name}: ${line}`, again);
    };

    for (const [name, outages] of has("outages") ? outagesOf(1_000 * seconds) : []) {
      const [{ is }] = outages;
      if (only !== "" && only !== is) continue;
      const again = { part: "outages", only: is } as const;
      const { wrong, healed, ...figures } = await underOutages({ ...base, outages });
      const isUnreachable = is === "half-open one";
      tell(name, figures, isUnreachable ? wrong.filter(isNoOverlap) : wrong, again);
      for (const one of healed) report.say(`  ${JSON.stringify(one)}`);
      if (figures.takeovers > 0 && !isUnreachable)
        report.wrong(`${name}: ${figures.takeovers} runs were taken over`, again);
    }
    if (has("losses")) {
      // A lease is short, so that what is lost is found soon; a machine with few processors carries a few trials at once.
      const losing = kinds.flatMap((kind) =>
        [1, 2, 3, 4, 5, 6, 7].flatMap((nth) => (kind === "all" && nth === 1 ? [] : [{ kind, nth }])),
      );
      const work = async (): Promise<void> => {
        for (let losses = losing.shift(); losses !== undefined; losses = losing.shift()) {
          const { kind, nth } = losses;
          const options = { ...base, losses, outages: [], processes: 2, atOnce: 8, leaseMs: 2_000, loadMs: 4_000 };
          const { wrong, healed: _healed, ...figures } = await underOutages(options);
          const again = { part: "losses", kinds: [kind] } as const;
          tell(`every ${nth}. answer to ${kind}`, figures, wrong.filter(isNoOverlap), again);
        }
      };
      await Promise.all([work(), work(), work()]);
    }
    for (let round = 1; has("failovers") && round <= rounds; round++) {
      const lost = [1, 2, 3, 4, 5];
      const areWaiting = round % 2 === 0;
      const options = { seed: `${seed} ${round}`, server: at, lost, leaseMs: 2_000, areWaiting };
      const { wrong, ...figures } = await afterFailovers(options);
      const again = { part: "failovers", rounds: round } as const;
      tell(`failovers ${round}${areWaiting ? ", with waits" : ""}`, figures, wrong, again);
    }
    if (has("joins")) tell("joined sessions", {}, await joinedSessions(at, joins), { part: "joins" });
    for (const line of complaintsIn(server)) report.wrong(`the server's log: ${line}`);
    program.remove();
    await server.stop();
    return `${trials} trials`;
  },
});

function outagesOf(ms: number): readonly (readonly [name: string, outages: readonly [Outage, ...Outage[]]])[] {
  const crash = { is: "crash", ms } as const;
  return [
    ["the server crashes", [crash, crash, crash]],
    ["connections are cut", [{ is: "cut", ms }]],
    ["half-open connections", [{ is: "half-open", ms: 1.25 * ms }]],
    ["half-open connections of one process", [{ is: "half-open one", ms: 1.25 * ms }]],
  ];
}

/** A process that cannot renew its lease ends the step that it has begun, while another one begins it again. */
function isNoOverlap(complaint: string): boolean {
  return !/was running it|which belonged to/.test(complaint);
}
