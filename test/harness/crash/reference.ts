import { setImmediate as inNextTurn } from "node:timers";
import type { Run } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import type { Entry } from "cadenza/store";
import { durable } from "cadenza/store";
import { NO_ANSWER, replyTo } from "../answers.ts";
import type { ReceivedEntry } from "../internals.ts";
import { resultKey } from "../internals.ts";
import type { NamedProgram } from "../program.ts";
import { CHILD, inputOf } from "../program.ts";
import type { Player, Receiving } from "../program-player.ts";
import { agentOf, namedIn, textOf } from "../program-player.ts";

/** With an inconsistent log the program may wait for ever. It is stopped after so many checks without progress. */
const PATIENCE = 50;
const LOOK_MS = 100;

/**
 * Plays programs in this process, in memory and without a crash: their output is the expected one. Operations side by
 * side end in the order that a log holds.
 */
export class Reference {
  readonly #runtime = new AgentRuntime({ exposeErrors: true, store: durable(new MemoryStore()) });
  readonly #scripts = new Map<string, Script>();

  constructor() {
    const player: Player = {
      work: ({ name, key }) => this.#script(name).turn(key),
      pause: () => Promise.resolve(),
      receiving: (receiving) => void this.#send(receiving),
      got: ({ name, key }) => this.#script(name).done(key),
      ending: async (name) => {
        const [, parent, number] = /^(.*)\.(\d+)$/.exec(name) ?? [];
        if (parent !== undefined) await this.#script(parent).turn(`run:${CHILD}#${number}`);
      },
    };
    for (const name of ["program", CHILD]) this.#runtime.register(name, { durable: true }, agentOf(player));
  }

  /** Plays a program in the order of these logs: its own, and those of its sub-runs. */
  async play(named: NamedProgram, logs: readonly (readonly Entry[])[]): Promise<Run> {
    const names = logs.map((log) => namedIn(log)?.name ?? "");
    for (const [index, log] of logs.entries()) this.#scripts.set(names[index] ?? "", new Script(log));
    const input = inputOf(named);
    const { run_id } = await this.#runtime.createRun({ agent_name: "program", input, mode: "async" });
    const forget = stopIfStuck(() => void this.#runtime.cancel(run_id));
    for await (const event of this.#runtime.events(run_id, { until: "end" })) {
      if (event.type !== "run.awaiting") continue;
      const { await_request } = event.run;
      if (await_request === null || textOf([await_request.message]).startsWith(NO_ANSWER)) continue;
      void this.#answer(named.name, run_id, await_request.await_id);
    }
    forget();
    const run = await this.#runtime.getRun(run_id);
    for (const each of names) this.#scripts.delete(each);
    return run;
  }

  /** Sends the message that the receive takes in the log. */
  async #send({ run_id, name, key }: Receiving): Promise<void> {
    // A branch that has lost its race may go on after the end of its run.
    const script = this.#scripts.get(name);
    if (script === undefined) return;
    await script.turn(key);
    const message = script.messageFor(key);
    if (message === undefined) return;
    const { name: to, data } = message;
    await this.#runtime.send({ to: run_id, name: to, data }).catch(() => undefined);
  }

  async #answer(name: string, run_id: string, await_id: string): Promise<void> {
    // The questions of a sub-run, which does one thing after the other, are answered as they come.
    if (!await_id.includes("/")) await this.#script(name).turn(await_id);
    const reply = replyTo(name, await_id);
    await this.#runtime.resume({ run_id, await_id, ...reply, mode: "async" }).catch(() => undefined);
  }

  #script(name: string): Script {
    const script = this.#scripts.get(name);
    if (script === undefined) throw new Error(`there is no log of ${name}`);
    return script;
  }
}

/** Counts checks and not time, since the machine may pause. Gives the function that stops the watch. */
function stopIfStuck(stop: () => void): () => void {
  let looks = 0;
  const looking = setInterval(() => {
    looks += 1;
    if (looks === PATIENCE) stop();
  }, LOOK_MS);
  return () => clearInterval(looking);
}

/** The order in which the operations of a run had their results. */
class Script {
  readonly #log: readonly Entry[];
  readonly #order: readonly string[];
  readonly #waiting = new Map<string, () => void>();
  #next = 0;

  constructor(log: readonly Entry[]) {
    this.#log = log;
    this.#order = log.flatMap((entry) => resultKey(entry) ?? []).filter((key) => !/^run:.*\//.test(key));
  }

  /** Resolves when it is this operation's turn. An operation without a result waits for ever. */
  turn(key: string): Promise<void> {
    if (this.#order[this.#next] === key) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.set(key, resolve));
  }

  /** The message that a receive has taken. */
  messageFor(key: string): ReceivedEntry | undefined {
    for (const entry of this.#log) {
      if (entry.type !== "taken" || entry.key !== key || entry.position === null) continue;
      const message = this.#log[entry.position];
      if (message?.type === "received") return message;
    }
    return undefined;
  }

  /** The operation has its result; the next one follows when the agent has handled it. */
  done(key: string): void {
    if (this.#order[this.#next] !== key) return;
    inNextTurn(() => {
      this.#next += 1;
      const next = this.#order[this.#next];
      if (next !== undefined) this.#waiting.get(next)?.();
    });
  }
}
