import { stdout } from "node:process";
import { AgentRuntime } from "cadenza";
import type { Admin, AdminAct } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import { CommandError, printable, UsageError } from "./errors.ts";
import { openToWrite } from "./stores.ts";

/** What an operator does to runs of a store. */
export type Operation = "pause" | "resume" | "cancel" | "retry" | "move";

/** Which runs are meant, as the command line names them. */
export interface Meant {
  readonly agent?: string | undefined;
  /** Empty: the runs of the agent without a version. */
  readonly "agent-version"?: string | undefined;
  readonly tenant?: string | undefined;
  readonly status?: readonly string[] | undefined;
  /** Each as `name=value`. */
  readonly label?: readonly string[] | undefined;
  readonly id?: string | undefined;
  readonly after?: string | undefined;
  readonly before?: string | undefined;
}

interface OperateOptions extends Meant {
  readonly schema?: string | undefined;
  /** Of a move: the version. Empty: the agent without one. */
  readonly to?: string | undefined;
  /** Of a pause. */
  readonly now?: boolean | undefined;
  /** Who asks for it. */
  readonly by?: string | undefined;
}

/** How often an act is looked at, in milliseconds. */
const LOOK_MS = 500;
/** After how long it is said that no process executes an act, in milliseconds. */
const PATIENCE_MS = 5_000;

/**
 * `cadenza pause`, `resume`, `cancel`, `retry` and `move`: executes no run. Pauses are written to the store. The others are
 * written as an act, which a process of the application executes. The command reports it until it ends. Throws `CommandError` if
 * runs have refused, or the act has not been completed.
 */
export async function operate(operation: Operation, address: string, options: OperateOptions): Promise<void> {
  const { schema, by = null, now, to, ...meant } = options;
  if (operation === "move" && to === undefined) throw new UsageError("move: expected --to VERSION.");
  const { store, close } = await openToWrite(address, schema);
  const runtime = new AgentRuntime({ store, work: false });
  try {
    const admin = createAdmin(runtime, { principal: by });
    const query = queryOf(meant);
    if (operation === "pause" || operation === "resume") {
      const { changed } = await (operation === "pause" ? admin.pause(query, { now }) : admin.resume(query));
      const before = operation === "pause" ? "was paused before" : "was not paused";
      say(`${JSON.stringify(query)} ${changed ? `is ${operation}d` : before}.`);
      return;
    }
    const act = await beginAct(admin, operation, query, to);
    say(`Act ${act.run_id}: ${operation} ${JSON.stringify(act.query)}. Ctrl-C ends this command, and not the act.`);
    const ended = await follow(act, () => admin.act(act));
    for (const { tenant, run_id, code, message } of ended.errors) say(`${tenant} ${run_id}: ${code}: ${message}`);
    if (ended.status !== "completed" || ended.refused > 0)
      throw new CommandError(`The act is ${ended.status}, and ${ended.refused} runs have refused.`);
  } finally {
    await runtime.close({ drainMs: 0 });
    await close();
  }
}

function beginAct(
  admin: Admin,
  operation: "cancel" | "retry" | "move",
  query: object,
  to: string | undefined,
): Promise<AdminAct> {
  if (operation === "move") return admin.moveToVersion(query, to === "" || to === undefined ? null : to);
  return operation === "cancel" ? admin.cancelMany(query) : admin.retryMany(query);
}

/** Tells how far an act is until it has ended. */
async function follow(begun: AdminAct, look: () => Promise<AdminAct>): Promise<AdminAct> {
  let said = "";
  let isAlone = false;
  for (let waited = 0, act = begun; ; waited += LOOK_MS) {
    const { status, matched, done, left, refused } = act;
    const words = `${status}: ${done} of ${matched} done, ${left} left alone, ${refused} refused`;
    if (words !== said) say(words);
    said = words;
    if (act.finished_at !== null) return act;
    if (!isAlone && status === "created" && waited >= PATIENCE_MS) {
      isAlone = true;
      say("No process executes it so far: it waits for one that executes runs and has called createAdmin.");
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    act = await look();
  }
}

function say(text: string): void {
  stdout.write(`${printable(text)}\n`);
}

/** The query, whose values the operation checks. */
function queryOf({ agent, "agent-version": version, after, before, label, ...meant }: Meant): object {
  const labels = label?.map((text) => {
    const [name = "", ...value] = text.split("=");
    if (value.length === 0) throw new UsageError(`--label: expected name=value, received ${text}.`);
    return [name, value.join("=")] as const;
  });
  const query = {
    ...meant,
    agent_name: agent,
    version: version === "" ? null : version,
    labels: labels && Object.fromEntries(labels),
    createdAfter: after,
    createdBefore: before,
  };
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined));
}
