import type { StreamedEvent } from "cadenza";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Entry } from "cadenza/store";
import { openDatabase } from "../sqlite-files.ts";
import type { Line } from "./witness.ts";
import { readWitness } from "./witness.ts";

/* The evidence at the end: the log of each run, the lines of its agents, and the history of each process. */

/** How many runs are listed at a time. */
const PAGE = 500;

/** A line, and its position among all lines. */
export type Seen<L extends Line = Line> = L & { readonly place: number };

/** The evidence of a run. */
export interface RunEvidence {
  readonly run_id: string;
  readonly log: readonly Entry[];
  /** What has arrived for it, and is not in the log. */
  readonly inbox: readonly Entry[];
  /** Its parent run; undefined for a run that the client created. */
  readonly parent: string | undefined;
  readonly durable: boolean;
  /** The lines of its agents. */
  readonly lines: readonly Seen[];
}

/** What judges need beside the run that they judge. */
export interface Known {
  readonly runs: ReadonlyMap<string, RunEvidence>;
  process(name: string): ProcessHistory;
}

export class Evidence implements Known {
  readonly runs = new Map<string, RunEvidence>();
  readonly #processes = new Map<string, ProcessHistory>();
  readonly #store: SqliteStore;
  readonly #runtime: AgentRuntime;
  readonly #lines = new Map<string, Seen[]>();

  constructor(file: string, witness: string) {
    this.#store = new SqliteStore(openDatabase(file), { closeDatabase: true });
    // No agent is registered, so no run begins or is taken over.
    this.#runtime = new AgentRuntime({ store: this.#store });
    for (const [place, line] of readWitness(witness).entries()) this.#take({ ...line, place });
  }

  /** Reads the log of a run and those of its sub-runs. */
  read(run_id: string): void {
    if (this.runs.has(run_id)) return;
    const log = this.#store.read({ tenant: "", run_id }, 0, Number.MAX_SAFE_INTEGER);
    // A run that ended early may have ended before its sub-run began.
    if (log === undefined) return;
    const [created] = log;
    const isCreated = created?.type === "created";
    this.runs.set(run_id, {
      run_id,
      log,
      inbox: (this.#store.find({ tenant: "", run_id }, "with inbox")?.inbox ?? []).flatMap(({ entries }) => entries),
      parent: isCreated ? created.parent?.run_id : undefined,
      durable: isCreated && created.durable === true,
      lines: this.#lines.get(run_id) ?? [],
    });
    for (const entry of log) if (entry.type === "intent" && entry.run_id !== null) this.read(entry.run_id);
  }

  /** Reads all runs that are in the store or have lines, also those that were never acknowledged. */
  async readAll(): Promise<void> {
    for (let offset = 0, page = PAGE; page === PAGE; offset += page) {
      const runs = await this.#runtime.listRuns({ limit: PAGE, offset });
      page = runs.length;
      for (const { run_id } of runs) this.read(run_id);
    }
    for (const run_id of this.#lines.keys()) this.read(run_id);
  }

  /** The events of a run as a reader gets them now. */
  async events(run_id: string): Promise<StreamedEvent[]> {
    const events: StreamedEvent[] = [];
    for await (const event of this.#runtime.events(run_id, { until: "now" })) events.push(event);
    return events;
  }

  async texts(run_id: string): Promise<string> {
    const { output } = await this.#runtime.getRun(run_id);
    return output.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join("");
  }

  /** The messages of a session, as text; undefined if there is none. */
  async history(session_id: string): Promise<string[] | undefined> {
    try {
      const { history } = await this.#runtime.getSession(session_id);
      return history.map(({ parts }) => parts.map(({ content }) => content ?? "").join(""));
    } catch {
      return undefined;
    }
  }

  process(name: string): ProcessHistory {
    let known = this.#processes.get(name);
    if (known === undefined) {
      known = new ProcessHistory();
      this.#processes.set(name, known);
    }
    return known;
  }

  close(): void {
    this.#store.close();
  }

  #take(line: Seen): void {
    switch (line.is) {
      case "started":
      case "killed":
      case "frozen":
      case "thawed":
      case "told to close":
      case "gone":
        this.process(line.process).events.push({ is: line.is, at: line.at });
        return;
      case "stalled":
      case "closing":
      case "swallowed":
        this.process(line.by).events.push({ is: line.is, at: line.at, ms: line.is === "stalled" ? line.ms : 0 });
        return;
      default: {
        const lines = this.#lines.get(line.run) ?? [];
        lines.push(line);
        this.#lines.set(line.run, lines);
      }
    }
  }
}

export interface ProcessEvent {
  readonly is:
    | "started"
    | "killed"
    | "frozen"
    | "thawed"
    | "told to close"
    | "gone"
    | "stalled"
    | "closing"
    | "swallowed";
  readonly at: number;
  readonly ms?: number;
}

/** What happened to a process. */
export class ProcessHistory {
  readonly events: ProcessEvent[];

  constructor(events: readonly ProcessEvent[] = []) {
    this.events = [...events];
  }

  /** When it died or was told to close; never, if neither. */
  get endsAt(): number {
    const end = this.events.find(
      ({ is }) => is === "killed" || is === "told to close" || is === "closing" || is === "gone",
    );
    return end?.at ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Whether it worked from one time to another without a stall of more than `stallMs`, and with a store that answered.
   */
  isSound(from: number, until: number, stallMs: number): boolean {
    if (this.endsAt <= until) return false;
    let frozenAt: number | undefined;
    for (const { is, at, ms = 0 } of this.events) {
      if (is === "frozen") frozenAt = at;
      else if (is === "thawed") {
        if (frozenAt !== undefined && frozenAt <= until && at >= from) return false;
        frozenAt = undefined;
      } else if (is === "stalled" && ms > stallMs && at - ms <= until && at >= from) return false;
      else if (is === "swallowed" && at <= until && at >= from) return false;
    }
    return frozenAt === undefined || frozenAt > until;
  }

  /** Whether anything has happened to it up to a time that may make it lose its runs. */
  hadTrouble(until: number, stallMs: number): boolean {
    return !this.isSound(0, until, stallMs);
  }
}
