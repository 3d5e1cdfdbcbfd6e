import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import type { ScheduleDefinition, Schedules } from "cadenza/schedules";
import { schedules } from "cadenza/schedules";
import { Cron } from "croner";
import type { NewPlace } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import type { Random } from "../random.ts";
import type { ScheduleTask } from "./worker.ts";

/** How long a process is frozen: longer than its lease. */
const FROZEN_MS = 5_000;
/** How long schedules may take to catch up at the end. */
const PATIENCE_MS = 90_000;
/** Within this time of a change either of the two may hold. */
const EDGE_MS = 1_000;
const MINUTE_MS = 60_000;

export interface TrialOptions {
  readonly processes: number;
  readonly count: number;
  readonly seconds: number;
  /** Processes have clocks up to a minute off. */
  readonly clocks: "right" | "wrong";
  readonly random: Random;
  readonly onDone: (kills: number) => void;
}

export interface TrialFigures {
  readonly wrong: readonly string[];
  readonly kills: number;
  readonly frozen: number;
  readonly runs: number;
  readonly changes: number;
}

/** What a schedule was from a moment on. `everyMs` null: paused. */
interface Episode {
  readonly from: number;
  readonly until: number;
  readonly everyMs: number | null;
}

/** A schedule, and what it was told. */
class Told {
  readonly id: string;
  readonly triggers: string[] = [];
  readonly episodes: Episode[] = [];
  #everyMs: number;
  #isPaused = false;
  #since = Number.POSITIVE_INFINITY;

  constructor(id: string, everyMs: number) {
    this.id = id;
    this.#everyMs = everyMs;
  }

  get #definition(): ScheduleDefinition {
    return { id: this.id, agent_name: "note", input: "", everyMs: this.#everyMs, missed: "all", overlap: "queue" };
  }

  async put(plans: Schedules, everyMs = this.#everyMs): Promise<void> {
    await this.#change(() => {
      this.#everyMs = everyMs;
      return plans.put(this.#definition);
    });
  }

  async pauseOrResume(plans: Schedules): Promise<void> {
    await this.#change(() => {
      this.#isPaused = !this.#isPaused;
      return this.#isPaused ? plans.pause(this.id) : plans.resume(this.id);
    });
  }

  async trigger(plans: Schedules): Promise<void> {
    const key = `key ${this.triggers.length}`;
    this.triggers.push(key);
    for (let i = 0; i < 2; i++) await plans.trigger(this.id, { idempotencyKey: key });
  }

  async end(plans: Schedules): Promise<void> {
    await this.#change(() => plans.put({ ...this.#definition, endAt: Date.now() }));
    // What has waited when it was paused has its runs then.
    await plans.resume(this.id);
  }

  async #change(call: () => Promise<unknown>): Promise<void> {
    const everyMs = this.#isPaused ? null : this.#everyMs;
    if (this.#since < Date.now()) this.episodes.push({ from: this.#since, until: Date.now(), everyMs });
    await call();
    this.#since = Date.now();
  }

  /** What is wrong with the runs of the schedule, which have these keys. */
  judge(keys: readonly string[]): string[] {
    const wrong: string[] = [];
    const times = new Set<number>();
    const seen = new Set<string>();
    for (const key of keys) {
      if (seen.has(key)) wrong.push(`${this.id}: two runs for ${key}`);
      seen.add(key);
      if (!key.startsWith("key ")) times.add(Date.parse(key));
    }
    for (const key of this.triggers) if (!seen.has(key)) wrong.push(`${this.id}: no run for the trigger ${key}`);
    for (const { from, until, everyMs } of this.episodes) {
      const [first, last] = [from + EDGE_MS, until - EDGE_MS];
      const wanted = new Set<number>();
      if (everyMs !== null)
        for (let time = Math.ceil(first / everyMs) * everyMs; time <= last; time += everyMs) wanted.add(time);
      for (const time of wanted)
        if (!times.has(time)) wrong.push(`${this.id}: no run for ${new Date(time).toISOString()}`);
      for (const time of times)
        if (time >= first && time <= last && !wanted.has(time))
          wrong.push(`${this.id}: a run for ${new Date(time).toISOString()}`);
    }
    return wrong;
  }
}

/** Lets processes, of which one is killed or frozen each second, execute schedules that are changed meanwhile. */
export async function trySchedules(place: NewPlace, options: TrialOptions): Promise<TrialFigures> {
  const { processes, count, seconds, clocks, random, onDone } = options;
  const children: ChildProcess[] = [];
  const start = (): ChildProcess => {
    const child = fork(fileURLToPath(new URL("./worker.ts", import.meta.url)));
    const aheadMs = clocks === "wrong" ? random.below(2 * MINUTE_MS) - MINUTE_MS : 0;
    child.send({ place: place.place, aheadMs } satisfies ScheduleTask);
    return child;
  };
  const store = await openPlace(place.place);
  const runtime = new AgentRuntime({ store, work: false });
  runtime.declare({ name: "note", durable: true });
  const plans = schedules(runtime, { cron: Cron });
  const all = Array.from({ length: count }, (_, n) => new Told(`schedule ${n}`, 1_000 * (2 + (n % 4))));
  let [kills, frozen, changes] = [0, 0, 0];
  try {
    for (let i = 0; i < processes; i++) children.push(start());
    for (const told of all) await told.put(plans);
    const until = Date.now() + seconds * 1_000;
    const change = async (): Promise<void> => {
      while (Date.now() < until) {
        const told = all[random.below(count)];
        const what = random.below(4);
        // Those with even numbers keep their times.
        const isKept = Number(told?.id.split(" ")[1]) % 2 === 0;
        if (what === 0) await told?.trigger(plans);
        else if (what === 1 || isKept) await told?.put(plans);
        else if (what === 2) await told?.put(plans, 1_000 * (2 + random.below(4)));
        else await told?.pauseOrResume(plans);
        changes += 1;
        await wait(100);
      }
    };
    const disturb = async (): Promise<void> => {
      for (let n = 0; Date.now() < until; n++) {
        await wait(1_000);
        const index = n % processes;
        if (n % 4 === 3) {
          const child = children[index];
          child?.kill("SIGSTOP");
          frozen += 1;
          setTimeout(() => child?.kill("SIGCONT"), FROZEN_MS);
          continue;
        }
        const [victim] = children.splice(index, 1, start());
        victim?.kill("SIGKILL");
        kills += 1;
        onDone(kills);
      }
    };
    await Promise.all([change(), disturb()]);
    for (const told of all) await told.end(plans);
    const keysOf = async (): Promise<Map<string, string[]>> => {
      const keys = new Map<string, string[]>(all.map(({ id }) => [id, []]));
      for (let after: string | undefined; ; ) {
        const runs = await runtime.listRuns({ agent_name: "note", limit: 500, ...(after !== undefined && { after }) });
        for (const { run_id } of runs) {
          const found = await store.find({ tenant: "", run_id });
          const { schedule, time, trigger } = (found?.created.metadata ?? {}) as Record<string, string | null>;
          keys.get(schedule ?? "")?.push(trigger ?? time ?? "");
        }
        after = runs.at(-1)?.run_id;
        if (runs.length < 500) return keys;
      }
    };
    const judge = async () => {
      const keys = await keysOf();
      const wrong = all.flatMap((told) => told.judge(keys.get(told.id) ?? []));
      return { wrong, runs: [...keys.values()].flat().length };
    };
    let judged = await judge();
    for (const late = Date.now() + PATIENCE_MS; judged.wrong.length > 0 && Date.now() < late; judged = await judge())
      await wait(2_000);
    return { ...judged, kills, frozen, changes };
  } finally {
    for (const child of children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill("SIGKILL");
      await once(child, "exit");
    }
    await runtime.close();
    place.remove();
  }
}
