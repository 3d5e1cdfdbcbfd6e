import { whereBlocked } from "../core/blocked-error.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Growing, MovedEntry } from "../core/log.ts";
import { matchingCode } from "../core/matching-code.ts";
import type { RunKey, StoredRun } from "../core/ports.ts";
import { DryReplay } from "../durable/replay/dry-replay.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import type { Inside } from "../runtime/api/inside.ts";
import { readGeneration } from "../runtime/log/fold-log.ts";

/** How long code may take to the next operation of a history, in milliseconds: as long as in a process that executes it. */
const STALL_MS = 5_000;
/** How often a run is looked at again that changes while it is replayed. */
const MAX_TRIES = 5;
/** How long the processes that execute runs have to give them back, and how often that is looked at, in milliseconds. */
const RELEASE_MS = 4_000;
const LOOK_MS = 250;

/** An act that moves runs: its own run, since when, for whom, and to which version. */
interface Move {
  readonly run_id: string;
  readonly beganAt: number;
  readonly principal: JsonValue;
  readonly version: string | null | undefined;
}

/** Moves runs of one page to another version of their agents. */
export class Moving {
  readonly #inside: Inside;
  readonly #version: string | null;
  readonly #by: JsonValue;
  readonly #beganAt: number;
  readonly #attempt: number;
  readonly #replay: DryReplay;
  /** Of the pauses that this move makes, in whichever process: their `by`. */
  readonly #pauser: string;

  /** `attempt`: at the page. An earlier one may have moved some of its runs. */
  constructor(inside: Inside, { run_id, version, principal, beganAt }: Move, attempt: number) {
    this.#inside = inside;
    this.#pauser = pauserOf(run_id);
    this.#version = version ?? null;
    this.#by = principal;
    this.#beganAt = beganAt;
    this.#attempt = attempt;
    const { store, clock, interceptors } = inside;
    const placeOf = (): undefined => undefined;
    this.#replay = new DryReplay(store, { clock, stallMs: STALL_MS, placeOf, wrap: interceptors.run });
  }

  /** Rejects with `run_blocked` for a run that does not match, and with `lost_ownership` for one that a process keeps. */
  readonly moveOne = async (_inside: unknown, key: RunKey): Promise<"done" | "left"> => {
    const { store } = this.#inside;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const stored = await store.find(key);
      if (stored === undefined) return "left";
      if ((stored.created.version ?? null) === this.#version) return (await this.#hasMoved(stored)) ? "done" : "left";
      if (!open.has(stored.head.status)) return "left";
      const agent = this.#agentFor(stored);
      const free = stored.head.owner === null ? stored : await this.#released(stored);
      if (free === undefined) continue;
      if (await this.#move(free, agent)) return "done";
    }
    throw new CadenzaError(
      "lost_ownership",
      `Run ${key.run_id} is at work in a process, which does not give it back.`,
      {
        run_id: key.run_id,
      },
    );
  };

  /** Whether an earlier attempt has moved the run, which may have ended since. */
  async #hasMoved({ key, created, position }: StoredRun): Promise<boolean> {
    if (this.#attempt === 1 || created.moved !== true) return false;
    const entries = await readGeneration(this.#inside.store, key, position);
    const moved = entries?.findLast(({ type }) => type === "moved");
    return moved === undefined || moved.at >= this.#beganAt;
  }

  #agentFor({ key: { run_id }, created: { agent_name, durable } }: StoredRun): Agent {
    const details = { run_id, agent_name };
    if (durable !== true)
      throw new CadenzaError(
        "invalid_argument",
        `Run ${run_id} is not durable: no other code can continue it.`,
        details,
      );
    const agent = this.#inside.registry.known(agent_name, this.#version ?? undefined);
    if (agent !== undefined) return agent;
    const which = this.#version === null ? "without a version" : `of version ${JSON.stringify(this.#version)}`;
    const message = `This process has no agent ${JSON.stringify(agent_name)} ${which}.`;
    throw new CadenzaError("agent_not_found", message, details);
  }

  /** Whether it was moved. False: it has changed meanwhile. */
  async #move({ key, created, head, position }: StoredRun, agent: Agent): Promise<boolean> {
    const { store, clock } = this.#inside;
    const entries = await readGeneration(store, key, position);
    if (entries === undefined) return false;
    const mismatch = await this.#replay.mismatch({ key, agent, head, entries });
    if (mismatch !== undefined) {
      throw new CadenzaError(
        "run_blocked",
        `Run ${key.run_id} stays with its version: the code of the new one does not match its history ${whereBlocked(mismatch)}. ${matchingCode(mismatch)}`,
        { run_id: key.run_id, agent_name: created.agent_name },
      );
    }
    const moved: Growing<MovedEntry> = { type: "moved", at: clock.now(), version: this.#version };
    if (this.#by !== null) moved.by = this.#by;
    if ((await store.changeVersion?.(key, { epoch: head.epoch, position }, moved)) !== undefined) return false;
    const about = { by: this.#by, ...key, agent_name: created.agent_name, version: this.#version };
    this.#inside.audit?.tell({ action: "move", outcome: "done", ...about });
    return true;
  }

  /** The run without its owner. Undefined: it has one. A process that executes it is asked to give it back, from the second attempt on. */
  async #released(stored: StoredRun): Promise<StoredRun | undefined> {
    const { store } = this.#inside;
    const { key, head, position, created } = stored;
    const left = { owner: null, epoch: head.epoch + 1, takeovers: head.takeovers + 1, holds_slot: false };
    const due = { ...head, ...left, due_at: this.#inside.clock.now() };
    // Refused while its lease lasts.
    if ((await store.claim(key, { epoch: head.epoch, position }, due)) === undefined) return store.find(key);
    if (this.#attempt === 1) {
      await this.#wait(LOOK_MS);
      return undefined;
    }
    for (let waited = 0; waited < RELEASE_MS; waited += LOOK_MS) {
      await this.#pause(created.agent_name, created.version ?? null);
      await this.#wait(LOOK_MS);
      const found = await store.find(key);
      if (found === undefined || found.head.owner === null) return found;
    }
    return undefined;
  }

  /** Has the processes give back what they execute, also where a pause of the same runs was ended since. */
  async #pause(agent_name: string, version: string | null): Promise<void> {
    const { store, pauses } = this.#inside;
    await pauses.read();
    if (pauses.cover({ agent_name, version }, undefined, "now")) return;
    await store.pause({ agent_name, version, now: true }, this.#pauser);
    await pauses.read();
  }

  /** Ends the pauses that this move has made, also in a process that has died. */
  async end(): Promise<void> {
    if (this.#attempt > 1) await endPauses(this.#inside, this.#pauser);
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.#inside.clock.setTimeout(resolve, ms));
  }
}

/** Ends the pauses of a move that is stopped, by the id of its run: a process that has died may have left some. */
export function endPausesOf(inside: Inside, run_id: string): Promise<void> {
  return endPauses(inside, pauserOf(run_id));
}

function pauserOf(run_id: string): string {
  return `cadenza:move:${run_id}`;
}

async function endPauses({ store, pauses }: Inside, pauser: string): Promise<void> {
  for (const { by, at: _, ...runs } of await store.pauses()) if (by === pauser) await store.resume(runs);
  await pauses.read();
}

const open: ReadonlySet<string> = new Set(["created", "in-progress", "awaiting"]);
