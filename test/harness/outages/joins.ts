import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import { textOf } from "../runtimes.ts";
import type { Listening } from "./wire.ts";

/** How many runs are joined at once. */
const AT_ONCE = 25;

let trials = 0;

/**
 * Two processes join the session of one ended run at the same time, again and again. Gives the sessions of which
 * messages were lost, or came twice.
 */
export async function joinedSessions(server: Listening, times: number): Promise<readonly string[]> {
  trials += 1;
  const schema = `joins_${trials}`;
  const open = async () => {
    const pool = new pg.Pool({ ...server, user: "postgres", database: "postgres", max: 5 });
    const runtime = new AgentRuntime({ store: await openPostgresStore({ pool, schema }) });
    runtime.register("echo", { durable: true }, (input) => `heard ${input.map(textOf).join("")}`);
    return { pool, runtime };
  };
  const processes = [await open(), await open()] as const;
  const [first, second] = processes;
  const say = ({ runtime }: typeof first, input: string, session_id: string | null = null) =>
    runtime.createRun({ agent_name: "echo", input, session_id });
  const wrong: string[] = [];
  const join = async (): Promise<void> => {
    const { run_id } = await say(first, "one");
    await Promise.all([say(first, "two", run_id), say(second, "three", run_id)]);
    const { history } = await second.runtime.getSession(run_id);
    const texts = history.map(textOf);
    const pairs = texts.flatMap((text, at) => (at % 2 === 0 ? [`${text}, ${texts[at + 1]}`] : []));
    const expected = ["one", "three", "two"].map((text) => `${text}, heard ${text}`);
    const [begin, ...rest] = pairs;
    if (String([begin, ...rest.sort()]) !== String(expected)) wrong.push(`${run_id}: ${texts}`);
  };
  for (let left = times; left > 0; left -= AT_ONCE)
    await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, join));
  for (const { runtime, pool } of processes) {
    await runtime.close();
    await pool.end();
  }
  return wrong;
}
