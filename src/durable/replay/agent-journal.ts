import type { Emission } from "../../core/commands.ts";
import type { Mismatch } from "../../core/ports.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { Journal, JournaledAgent, Operation, Patch, Recalled, Unfit } from "../../runtime/execution/operations.ts";
import { unfit } from "../../runtime/execution/operations.ts";
import type { History } from "./history.ts";
import { ReplayCheck } from "./replay-check.ts";
import type { JournalListener, QueuedResult } from "./result-queue.ts";
import { ResultQueue } from "./result-queue.ts";

/**
 * The journal of one execution of a durable agent. With a history the agent is replayed: its operations get the results in
 * the history, and what it does is compared with the history.
 */
export class AgentJournal extends ResultQueue implements Journal {
  /** The time that the agent saw when it was first called; undefined where it is called for the first time. */
  readonly #startedAt: number | undefined;
  /** The patches for which the agent has asked, and whether it has them. */
  #patches: Map<string, Recalled> | undefined;

  /** `stallMs`: see {@link ResultQueue}. */
  constructor(agent: JournaledAgent, tell: JournalListener, history: History | undefined, stallMs: number) {
    super(agent, tell, history && new ReplayCheck(history), stallMs);
    this.#startedAt = history?.startedAt;
  }

  /** The time of the last result, so that a replay sees the same time. */
  get now(): number {
    const { started, generation } = this.agent.log.state;
    return this.time ?? this.#startedAt ?? generation?.at ?? started?.now ?? started?.at ?? 0;
  }

  begin(operation?: Operation): void {
    if (operation?.asking !== undefined)
      this.#mayMismatch(this.check?.askAgain(operation.key, operation.asking, this.missing));
    if (this.agent.isClosed) return;
    if (operation !== undefined) {
      const taken = this.check?.history.find(operation.key)?.taken;
      if (taken !== undefined) operation.taken = taken;
      if (this.takesUp(operation)) this.start(operation);
    }
    this.advance();
  }

  protected override start(operation: Operation): void {
    const { run } = this.agent;
    if (run.isHeld) run.hold(() => this.agent.find(operation.key) === operation && this.start(operation));
    else operation.start(this.check?.history.find(operation.key)?.attempt);
  }

  protected override handOver(delivery: QueuedResult): undefined | Promise<Unfit | undefined> {
    const { entry, position } = delivery;
    if (position !== undefined) this.check?.history.passUsage(position);
    if (entry.type !== "taken" || entry.position === null) return this.agent.handOver(delivery);
    // An earlier execution may have taken the message.
    return this.agent.handOver({ ...delivery, live: this.check?.history.received.get(entry.position) });
  }

  protected override onUnfit(key: string): void {
    this.#mayMismatch(this.check?.unfitResult(key));
  }

  recall(said: Emission | Usage | Patch): Recalled {
    if ("kind" in said) return this.#recallEmission(said);
    if ("patch" in said) return this.#recallOnce(said);
    return this.isCatchingUp && this.check?.history.takeUsage(said) === true ? "held" : "new";
  }

  #recallOnce(patch: Patch): Recalled {
    this.#patches ??= new Map();
    const recalled = this.#patches.get(patch.patch) ?? this.#recallPatch(patch);
    this.#patches.set(patch.patch, recalled);
    return recalled;
  }

  #recallEmission(emission: Emission): Recalled {
    const found = this.check?.emitAgain(emission, this.isCatchingUp) ?? "new";
    if (found === "new") return "new";
    if (typeof found === "object") this.tell({ mismatch: found });
    else if (found !== "none") {
      if (found === "other") this.tell("difference");
      this.advance();
    }
    return "held";
  }

  #recallPatch(patch: Patch): Recalled {
    const { check } = this;
    if (check?.history.patches.has(patch.patch) === true) return "held";
    if (this.isCatchingUp && !this.isThrough) return "passed";
    if (this.agent.isClosed) return "new";
    if (this.isCatchingUp) check?.getPatch(patch);
    else this.#log(patch);
    return "new";
  }

  end(error: unknown): void {
    if (error === unfit) {
      const position = this.agent.log.state.generation?.position ?? 0;
      this.#mayMismatch({ expected: "a valid carry", asked: "a carry with another schema", position });
    } else if (error !== undefined) {
      if (!this.agent.isClosed && this.#mayMismatch(this.check?.endsEarly(error, this.missing))) return;
      this.#emitEarly();
    }
    this.stop();
  }

  protected override onCaughtUp(): void {
    this.#emitEarly();
    this.tell("caught up");
  }

  /** Logs what the agent emitted for the first time before it had caught up. */
  #emitEarly(): void {
    for (const item of this.check?.takeEarly() ?? []) this.#log(item);
  }

  #log(item: Emission | Patch): void {
    const { log, clock } = this.agent;
    const at = clock.now();
    if ("patch" in item) log.decide({ type: "patch", entry: { type: "patched", at, id: item.patch } });
    else log.decide({ type: "emit", at, item });
  }

  /** Reports a mismatch, if there is one. What an agent does after it was left or stopped is not compared. */
  #mayMismatch(mismatch: Mismatch | undefined): boolean {
    if (mismatch === undefined || this.agent.isClosed) return false;
    this.tell({ mismatch });
    return true;
  }
}
