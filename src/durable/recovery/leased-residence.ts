import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import { blockedError } from "../../core/blocked-error.ts";
import { CadenzaError } from "../../core/errors.ts";
import { newerPart } from "../../core/format.ts";
import { isFree } from "../../core/head.ts";
import type { Entry } from "../../core/log.ts";
import { isWait, questionId } from "../../core/operation-keys.ts";
import type { Arrived, RunHead, RunKey, RunPosition, Store, StoreConflict, StoredRun } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import { toSnapshot } from "../../core/snapshot.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, isFinal } from "../../core/state.ts";
import type { Journal, JournaledAgent, Residence, Sync } from "../../runtime/execution/operations.ts";
import { measureAgain } from "../../runtime/execution/waits.ts";
import { lostError } from "../../runtime/log/refusals.ts";
import type { RunLog } from "../../runtime/log/run-log.ts";
import type { RunSlot } from "../../runtime/log/run-slot.ts";
import type { Attempt, Outcome, ResidenceEvent, WritePlan } from "../../runtime/log/run-write.ts";
import { isCountedByStore, placeOf, slotsOf } from "../../runtime/runs/admission.ts";
import { tellAboveLater } from "../../runtime/runs/committed-above.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import { historyOf } from "../replay/history.ts";
import type { Followed } from "./follower.ts";
import { SharedSlot } from "./leased-head.ts";
import type { Owner } from "./residency.ts";
import { Residency } from "./residency.ts";
import type { Meaning } from "./write-conflicts.ts";
import { meaningOf } from "./write-conflicts.ts";

/** How many entries are between two snapshots of a run, at least. */
const BETWEEN_SNAPSHOTS = 500;
/** A longer snapshot waits for an entry more for each so many characters: it is not to cost more than a part of what these do. */
const CHARACTERS_OF_ENTRY = 200;

/** The residence of a run that may change its owner: its residency, its writes, and what other processes write to it. */
export class LeasedResidence implements Residence, Followed {
  readonly run: LiveRun;
  readonly residency: Residency;
  /** How many writes of entries have begun. */
  writes = 0;
  /** The length of the log from which on a snapshot is due. Undefined: nothing was written here yet. */
  #snapshotDue: number | undefined;
  readonly #owner: Owner;
  #unfollow: (() => void) | undefined;

  constructor(owner: Owner, run: LiveRun) {
    this.#owner = owner;
    this.run = run;
    this.residency = new Residency(owner, run);
  }

  get log(): RunLog {
    return this.run.log;
  }

  get store(): Store {
    return this.#owner.worker.store;
  }

  // Writing.

  plan(state: RunState, entries: readonly Entry[], before: RunHead | undefined, committed: number): WritePlan {
    const rules = this.residency.head;
    const head = rules.headFor(state, entries, before);
    if (entries.length > 0) this.writes += 1;
    return {
      head,
      expected: before && rules.expected(before, committed),
      wake: this.#wakeFor(entries, head),
      leavesInbox: head.blocked === null ? undefined : true,
      asks: rules.asks,
      place: before === undefined && this.store.persistent ? this.#place() : undefined,
    };
  }

  /** Most runs have none. */
  #place(): WritePlan["place"] {
    const { log, agent } = this.run;
    const place = placeOf(agent, log.key.tenant, createdEntry(log.state));
    return place.gate === undefined && place.priority === undefined ? undefined : place;
  }

  #wakeFor(entries: readonly Entry[], head: RunHead): RunKey | undefined {
    const { parent, budget } = createdEntry(this.log.state);
    if (parent !== undefined && this.store.persistent) {
      // A parent with a budget counts what the sub-run uses.
      const isCounted = budget === undefined || this.run.parent !== undefined;
      if (entries.some((entry) => isNewsForParent(entry) || (!isCounted && isStep(entry))))
        return { tenant: this.log.key.tenant, run_id: parent.run_id };
    }
    return this.residency.head.isDueNow(head, this.log.state) ? this.log.key : undefined;
  }

  #onWritten({ write }: Attempt, before: RunHead | undefined): void {
    // A run that is loaded for a few entries at a time has one at the same lengths as one that stays.
    this.#snapshotDue ??= BETWEEN_SNAPSHOTS * (Math.floor(this.log.committed / BETWEEN_SNAPSHOTS) + 1);
    this.residency.head.onWritten(write.head, before);
    this.residency.onWritten(write);
    // A sub-run may have woken the run before, which made it due. The write has replaced that. Another time for
    // which the run waits may have come while this process had no room.
    const isClaimed = before?.owner === null && write.head.owner !== null;
    if (isClaimed && (this.residency.hasSubRuns || this.residency.isExpecting)) this.onWoken();
    if (write.head.owner === null) this.#owner.worker.onReleased(this.log.key, write.head);
    this.#settleLine();
    if (before?.holds_slot === true && !write.head.holds_slot) {
      this.#owner.worker.onSlotFree();
      for (const key of this.#slotKeys) this.#owner.line.look(key);
    }
    tellAboveLater(this.run, write.entries, this.#owner.postAbove);
    this.#onReaders();
  }

  /** The keys of the slots of the run. */
  get #slotKeys(): readonly string[] {
    const { log, agent } = this.run;
    return slotsOf(agent, log.key.tenant, createdEntry(log.state)).map(({ key }) => key);
  }

  #settleLine(): void {
    if (this.residency.head.waitsForSlot === "in line") this.#owner.line.add(this.#slotKeys, this);
    else this.#owner.line.remove(this);
  }

  /** The store may have given the run the permit for which it waits. */
  #onPermit(stored: RunHead): void {
    const { log, slot } = this.run;
    if (!stored.holds_slot || this.residency.head.waitsForSlot !== "in line" || log.head === undefined) return;
    this.residency.head.waitsForSlot = undefined;
    this.#settleLine();
    log.replaceHead({ ...log.head, holds_slot: true });
    slot?.onCommit(false);
  }

  /** A write has woken a run. */
  #onWoke(key: RunKey): void {
    const { parent } = this.run;
    if (parent === undefined) this.#owner.worker.onWake(key);
    else leased(parent)?.residency.noteWake();
  }

  onConflict(conflict: StoreConflict, attempt: Attempt, failed: Attempt[]): MaybePromise<Outcome> {
    // A store deletes no run that has not ended.
    if (conflict.conflict === "missing") this.#forgetWaiting();
    const meaning = meaningOf(this.store, conflict, attempt, failed);
    return isPromise(meaning) ? meaning.then((later) => this.#outcomeOf(later)) : this.#outcomeOf(meaning);
  }

  #outcomeOf(meaning: Meaning): Outcome {
    if (meaning.is === "truncated") return this.#lostHistory(meaning.position);
    if (meaning.is === "full") {
      this.residency.head.waitsForSlot = "full";
      return { is: "again", before: ignore };
    }
    if (meaning.is === "behind") this.residency.onGiven();
    if (meaning.is !== "woken") return meaning;
    this.residency.head.wakes = meaning.wakes;
    return { is: "again", before: () => this.onWoken() };
  }

  /** Nothing is written on top of a log that has lost entries. The run is replayed from what is left. */
  #lostHistory(position: number): Outcome & { readonly is: "lost" } {
    this.#forgetWaiting();
    const { run_id } = this.log.key;
    const { committed: acknowledged } = this.log;
    this.#owner.worker.logger.warn(
      "The store lost entries of a run that it had acknowledged. The run is replayed from what is left.",
      { ...aboutRun(this.log), position, acknowledged },
    );
    const error = lostError(run_id, "lost a part of its history in the store, and is replayed");
    return { is: "lost", error, after: () => this.#owner.reload(this.log.key) };
  }

  /**
   * The store has lost commits, perhaps of other runs too, and may have got as many others in their place. A run that only
   * waits is read again when it is needed.
   */
  #forgetWaiting(): void {
    for (const run of [...this.#owner.worker.runs]) leased(run)?.residency.evict();
  }

  /** Whether a write of this process is under way, or waits to be tried again. */
  get isWriting(): boolean {
    return this.isOwner && this.log.writing !== undefined;
  }

  /** Whether this process owns the run, and keeps it with what is being written. */
  get isOwner(): boolean {
    const { head, nextHead } = this.log;
    return [head, nextHead].every((one) => one?.owner === this.#owner.worker.name);
  }

  // What other processes write.

  /** How far the store is known to have come with the run. */
  get known(): RunPosition {
    return { key: this.log.key, epoch: this.log.head?.epoch ?? 0, position: this.log.committed };
  }

  /** The store has more of the run than this process has read, or the run has another owner. */
  onMoved(): void {
    inBackground(this.#owner.worker.logger, this.#compareWithStore("unless writing").catch(ignore));
  }

  /** Takes what has arrived for the run, if this process owns it in that epoch. */
  #receive(epoch: number | undefined, inbox: readonly Arrived[] | undefined): void {
    const { head, nextHead } = this.log;
    const isOurs = ({ epoch: its, owner }: RunHead): boolean => its === epoch && owner === this.#owner.worker.name;
    if (inbox !== undefined && [head, nextHead].some((one) => one !== undefined && isOurs(one)))
      this.log.receive(inbox);
  }

  /** A run without an owner may be written by another process. For readers here the store is polled. */
  #onReaders(): void {
    const { head, lost, isRead } = this.log;
    const isOutside = head?.owner === null && !isFinal(head.status) && !lost && this.store.persistent;
    if (isOutside && isRead) this.#unfollow ??= this.#owner.worker.follower.follow(this);
    else {
      this.#unfollow?.();
      this.#unfollow = undefined;
    }
  }

  sync(how: Sync): undefined | Promise<void> {
    if (how === "before work") return this.#owner.lease.ensure(this.run);
    const isFree = this.log.head?.owner === null && this.store.persistent;
    return how === "if left" && !isFree ? undefined : this.#compareWithStore(how);
  }

  async #compareWithStore(how: Sync): Promise<void> {
    const { log } = this;
    const isSure = how === "after writing";
    do {
      if (isSure && log.writing !== undefined) await log.writing;
      const { head, committed } = log;
      const stored = await this.#findWithInbox();
      if (stored === "unreadable") return;
      this.#receive(stored?.head.epoch, stored?.inbox);
      // What the store has answered may be older than what this process has written meanwhile.
      if (log.head !== head || log.committed !== committed || log.writing !== undefined) continue;
      this.#compare(stored?.position, stored?.head);
      // What other processes have written is being read.
      if (isSure) await log.writing;
      return;
    } while (isSure && !log.lost);
  }

  /** A run for which something has arrived that only a newer version can read is left to it. */
  async #findWithInbox(): Promise<StoredRun | undefined | "unreadable"> {
    try {
      return await this.store.find(this.log.key, "with inbox");
    } catch (error) {
      if (newerPart(error) === undefined || !CadenzaError.is(error)) throw error;
      this.log.onStored({ is: "lost", error });
      return "unreadable";
    }
  }

  #compare(position: number | undefined, head: RunHead | undefined): void {
    const { log } = this;
    // A run without a head has not been written yet, so that the store cannot hold it.
    const isNew = log.head === undefined && position === undefined;
    const isSameOwner = head?.epoch === log.head?.epoch && head?.owner === log.head?.owner;
    if (log.lost || isNew) return;
    if (position === log.committed && isSameOwner) {
      if (head !== undefined) this.#onPermit(head);
      return;
    }
    // A store deletes no run that has not ended.
    if (position === undefined && log.head !== undefined && !isFinal(log.head.status)) this.#forgetWaiting();
    if (position !== undefined && position < log.committed) log.onStored(this.#lostHistory(position));
    else if (position === undefined || !isSameOwner) log.onStored({ is: "lost", error: lostError(log.key.run_id) });
    else {
      this.residency.onGiven();
      log.onStored({ is: "behind" });
    }
  }

  // The execution.

  slot(): RunSlot | undefined {
    const { options } = this.run.agent;
    const isCounted = this.store.persistent && isCountedByStore(options);
    return isCounted ? new SharedSlot(this.log, this.residency.head, options.concurrency?.per) : undefined;
  }

  journal(agent: JournaledAgent): Journal | undefined {
    return this.run.durable ? this.residency.journalOf(agent) : undefined;
  }

  get phase(): "live" | "expecting" | "catching up" | "blocked" {
    if (this.residency.mismatch !== undefined) return "blocked";
    if (this.residency.ready !== undefined) return "catching up";
    return this.run.durable && !isFree(this.log.nextHead) && this.residency.isExpecting ? "expecting" : "live";
  }

  whenAnswerable(): undefined | Promise<void> {
    const { residency } = this;
    const { ready } = residency;
    if (ready === undefined) return this.#answerable();
    // A new promise means that the agent is replayed once more. The same promise means that it has not caught up.
    return ready.then(() => (residency.ready === ready ? this.#answerable() : this.whenAnswerable()));
  }

  #answerable(): undefined | Promise<void> {
    const { residency, log, run } = this;
    const { run_id } = log.key;
    if (residency.tryingAgain !== undefined) {
      return residency.tryingAgain.then(() => {
        throw lostError(run_id);
      });
    }
    if (residency.mismatch === undefined) return undefined;
    // A caller that gets this error finds the run blocked in the store.
    if (log.writing !== undefined && !log.isRetrying) return log.writing.then(() => this.#answerable());
    throw blockedError(run_id, run.agent.name, residency.mismatch);
  }

  note(event: ResidenceEvent): void {
    if (event === "committed") this.#onCommit();
    else if (event === "readers") this.#onReaders();
    else if (event === "gone") this.#onGone();
    else if (event === "crowded") this.residency.evict();
    else if (event === "paused") inBackground(this.#owner.worker.logger, this.#leavePaused());
    else if (event === "step ended") {
      if (this.run.durable) this.residency.settleOwner();
      this.#owner.worker.onRoom();
    } else if ("written" in event) this.#onWritten(event.written, event.before);
    else if ("woken" in event) this.#onWoke(event.woken);
    else if ("endNeeds" in event) inBackground(this.#owner.worker.logger, this.#leaveItsEnd(event.endNeeds));
    else if ("redoes" in event) this.residency.prepare(historyOf(event.redoes));
    else if (this.run.durable) this.residency.setSubRun(event.subRun, event.activity);
  }

  #keepSnapshot(): void {
    const { log, store } = this;
    const { worker } = this.#owner;
    const replaysAlways = worker.settings.alwaysReplay;
    const isDue = replaysAlways || (store.persistent && log.committed >= (this.#snapshotDue ?? 0));
    if (!isDue || store.keepSnapshot === undefined) return;
    // The state may be ahead of what the store has.
    if (log.state.position !== log.committed) return;
    const snapshot = toSnapshot(log.state);
    const apart = Math.ceil((snapshot?.state.length ?? 0) / CHARACTERS_OF_ENTRY);
    this.#snapshotDue = log.committed + Math.max(BETWEEN_SNAPSHOTS, apart);
    if (snapshot === undefined) return;
    const keep = async (): Promise<void> => store.keepSnapshot?.(log.key, snapshot);
    const onError = (error: unknown) =>
      worker.logger.debug("A snapshot of a run was not kept. Its log is read instead.", { ...aboutRun(log), error });
    inBackground(worker.logger, keep().catch(onError));
  }

  #onCommit(): void {
    const { head } = this.log;
    if (head === undefined) return;
    this.#owner.worker.onRoom();
    if (head.status === "created" && head.owner === null && this.store.persistent) {
      this.run.leave("The run begins later.", "evicted");
      return;
    }
    if (this.residency.head.hasLeftForSlot && !isFinal(head.status)) {
      this.run.leave("The run waits for a slot.", "evicted");
      return;
    }
    this.#keepSnapshot();
    if (this.run.durable) this.residency.onCommit(head.status);
    else if (head.status === "awaiting") this.#owner.worker.onPlainQuestion(this.log);
    if (!this.residency.isSuspect || head.takeovers > 0) return;
    this.residency.isSuspect = false;
    this.#owner.onSuspectCleared(this.run);
  }

  #onGone(): void {
    this.residency.end();
    this.#owner.line.remove(this);
    this.#owner.onGone(this.run);
    this.#owner.worker.onRoom();
    this.#onReaders();
    for (const child of this.run.children) leased(child)?.onParentGone();
  }

  /** The parent of this run has left this process. */
  onParentGone(): void {
    const { parent } = this.run;
    this.run.follow(undefined);
    if (this.run.durable) this.residency.leaveAlone();
    if (parent !== undefined) this.#owner.onParentLost(this.run, parent);
  }

  /** Something that the run waits for has happened elsewhere: its sub-runs are checked. */
  onWoken(): void {
    const { run } = this;
    if (!run.durable) return;
    if (run.execution !== undefined) measureAgain(run.execution);
    const checks = [...run.children].map((child) => child.residence?.sync("after writing"));
    const all = [...checks, ...run.family.look()].map((check) => check?.catch(ignore));
    this.residency.lookInto(Promise.all(all));
  }

  /** See {@link Residency.take}. */
  async onTaken(head: RunHead, position: number): Promise<void> {
    if (!(await this.residency.take(head, position))) return;
    this.run.slot?.onCommit(false);
    this.onWoken();
    this.run.settleActivity();
  }

  /** Leaves a paused run to the store, where a process takes it when it is resumed. */
  async #leavePaused(): Promise<void> {
    if (this.residency.head.isReleased) return;
    await this.release().catch(ignore);
    const { key, state } = this.log;
    if (!isFinal(state.status)) this.run.leave("The run is paused.", "evicted");
    // A cancel may have come with the release. The store is not asked for runs of paused agents.
    const stored = await this.#owner.worker.store.find(key);
    if (stored?.head.status === "cancelling" && stored.head.owner === null) this.#owner.reload(key);
  }

  /** Leaves a run to a process that can end it. */
  async #leaveItsEnd(why: unknown): Promise<void> {
    const { log, run } = this;
    if (log.writing !== undefined) await log.writing;
    const { key, head, committed: position, state, lost } = log;
    if (lost || !run.durable || head?.owner !== this.#owner.worker.name) return;
    run.leave("Only a newer version of cadenza can cancel its sub-runs.");
    this.#owner.leaveToOthers({ key, head, position, created: createdEntry(state) }, why);
  }

  release(): Promise<void> {
    this.run.execution?.fence();
    // A run whose sub-runs could not be cancelled is ended by its next owner, who cancels them first.
    return this.run.isEndHeld ? Promise.resolve() : this.residency.release();
  }
}

/** The residence of a run that may change its owner. Undefined: the run cannot. */
export function leased({ residence }: LiveRun): LeasedResidence | undefined {
  return residence instanceof LeasedResidence ? residence : undefined;
}

/** Whether an attempt at a step begins. */
function isStep(entry: Entry): boolean {
  return entry.type === "intent" && entry.run_id === null && !isWait(entry);
}

/** Whether the parent of a run has something to do after this entry: the run asks, continues, or has ended. */
function isNewsForParent(entry: Entry): boolean {
  return questionId(entry) !== undefined || entry.type === "ended";
}
