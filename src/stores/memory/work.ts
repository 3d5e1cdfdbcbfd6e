import type { AgentVersion, Backlog, RunHead, TakeRequest } from "../../core/ports.ts";
import type { LiveCount, WorkerLease } from "../../core/survey.ts";
import { Choice, distinctAgents } from "../choice.ts";
import { Chain } from "./chain.ts";
import type { Source } from "./due.ts";
import { byDueTime, DueRuns, firstOf, HeapSource, ListSource } from "./due.ts";
import type { DueEntry } from "./due-heap.ts";
import type { MemoryRun } from "./tenant.ts";

const NEVER = Number.NEGATIVE_INFINITY;
const EVER = Number.POSITIVE_INFINITY;

/** The live runs of a memory store: their owners, which of them need work, and which hold a slot. */
export class MemoryWork {
  /** In the order in which they were created. */
  readonly #live = new Chain<MemoryRun>();
  readonly #owners = new Map<string, Owner>();
  readonly #agents = new Map<string, Map<string | null, DueRuns>>();
  /** How many runs hold each slot. */
  readonly #holders = new Map<string, number>();
  readonly #cancelling = new Set<MemoryRun>();

  begin(run: MemoryRun): void {
    this.#live.addLast(run);
    this.#enter(run);
  }

  /** Gives a live run another head. With `forLook` it may be taken although its slot is full, until it has an owner. */
  change(run: MemoryRun, head: RunHead, forLook = false): void {
    const before = run.head;
    if (!forLook && isSameWork(before, head)) {
      run.head = head;
      return;
    }
    this.#leave(run);
    run.head = head;
    if (forLook) run.withExtras.isForLook = true;
    const { extras } = run;
    if (extras !== null && head.owner !== before.owner) extras.wakes = 0;
    if (extras !== null && head.owner !== null) extras.isForLook = false;
    this.#enter(run);
  }

  /** Gives a live run to a process, which then checks everything that the run waits for. */
  give(run: MemoryRun, head: RunHead): void {
    this.change(run, head);
    if (run.extras !== null) run.extras.wakes = 0;
  }

  /** A live run gets its last head. */
  end(run: MemoryRun, head: RunHead): void {
    this.#leave(run);
    run.head = head;
    this.#live.remove(run);
  }

  renew(name: string, forMs: number, now: number): void {
    const owner = this.#owner(name);
    owner.until = now + forMs;
    owner.forMs = forMs;
    for (const [other, { runs, until }] of this.#owners) if (runs === 0 && until <= now) this.#owners.delete(other);
  }

  release(name: string): void {
    const owner = this.#owners.get(name);
    if (owner === undefined) return;
    owner.until = NEVER;
    if (owner.runs === 0) this.#owners.delete(name);
  }

  /** Whether the owner's lease lasts. */
  isAlive(name: string, now: number): boolean {
    return (this.#owners.get(name)?.until ?? NEVER) > now;
  }

  /** Cuts short a lease that now lasts longer than requested: the clock was set back. */
  shorten(name: string, now: number): void {
    const owner = this.#owners.get(name);
    if (owner !== undefined) owner.until = Math.min(owner.until, now + owner.forMs);
  }

  /** Whether the slot of a run has no free permit. */
  isFull(run: MemoryRun): boolean {
    const slot = run.extras?.slot ?? null;
    return slot !== null && (this.#holders.get(slot.key) ?? 0) >= slot.max;
  }

  /** The runs that a `take` gives, in order. Changes nothing. */
  choose(request: TakeRequest, now: number): readonly MemoryRun[] {
    for (const name of this.#owners.keys()) this.shorten(name, now);
    const choice = new Choice(request, (slot) => this.#holders.get(slot) ?? 0);
    const chosen: MemoryRun[] = [];
    const sources = this.#sourcesFor(request, now);
    while (!choice.isOver) {
      const source = firstOf(sources);
      const run = source?.first;
      if (source === undefined || run === undefined) break;
      if (choice.takes({ takeovers: run.head.takeovers, needs: run.needs })) chosen.push(run);
      if (source.slot !== null && choice.isWaitedFor(source.slot)) source.close();
      else source.advance();
    }
    for (const source of sources) source.close();
    return chosen;
  }

  /** The runs of an owner, oldest first. */
  owned(name: string, limit: number): readonly MemoryRun[] {
    if ((this.#owners.get(name)?.runs ?? 0) === 0) return [];
    return this.#find(limit, ({ head }) => head.owner === name);
  }

  /** The blocked runs of these agents that were created after a run, oldest first. */
  blocked(agents: readonly AgentVersion[] | undefined, after: MemoryRun | undefined, limit: number) {
    return this.#find(limit, (run) => {
      if (run.head.blocked === null || run.head.owner !== null || run.order <= (after?.order ?? NEVER)) return false;
      return agents === undefined || agents.some((agent) => isOf(run, agent));
    });
  }

  backlog(now: number): readonly Backlog[] {
    const counted = new Map<string, Map<string | null, Growing>>();
    for (let run = this.#live.first; run !== null; run = run.after) {
      const { head, created } = run;
      if (head.owner !== null && this.isAlive(head.owner, now)) continue;
      const { agent_name, version = null } = created;
      let versions = counted.get(agent_name);
      if (versions === undefined) {
        versions = new Map();
        counted.set(agent_name, versions);
      }
      let counts = versions.get(version);
      if (counts === undefined) {
        counts = { agent_name, version, due: 0, since: null, waiting: 0, blocked: 0 };
        versions.set(version, counts);
      }
      const since = this.#dueSince(head);
      if (since > now) {
        counts.waiting += 1;
        if (head.blocked !== null) counts.blocked += 1;
        continue;
      }
      counts.due += 1;
      if (since !== NEVER) counts.since = Math.min(counts.since ?? since, since);
    }
    return [...counted.values()].flatMap((versions) => [...versions.values()]);
  }

  census(): readonly LiveCount[] {
    const counted = new Map<string, LiveCount>();
    for (let run = this.#live.first; run !== null; run = run.after) {
      const { agent_name, version = null } = run.created;
      const { status } = run.head;
      const name = JSON.stringify([agent_name, version, status]);
      counted.set(name, { agent_name, version, status, runs: (counted.get(name)?.runs ?? 0) + 1 });
    }
    return [...counted.values()];
  }

  workers(now: number): readonly WorkerLease[] {
    const leases: WorkerLease[] = [];
    for (const [owner, { until, forMs, runs }] of this.#owners) {
      const end = Math.min(until, now + forMs);
      if (runs > 0 || end !== NEVER)
        leases.push({ owner, until: end === NEVER ? null : end, is_alive: end > now, runs });
    }
    return leases;
  }

  #enter(run: MemoryRun): void {
    const { head, extras } = run;
    if (head.owner !== null) this.#owner(head.owner).runs += 1;
    else if (head.due_at !== null) this.#enqueue(run, head.due_at);
    if (head.status === "cancelling") this.#cancelling.add(run);
    if (extras !== null && extras.slot !== null && head.holds_slot) this.#hold(extras.slot.key, 1);
  }

  #leave(run: MemoryRun): void {
    const { head, extras } = run;
    // An owner without runs stays: it probably gets the next one, too.
    if (head.owner !== null) this.#owner(head.owner).runs -= 1;
    if (head.status === "cancelling") this.#cancelling.delete(run);
    if (extras === null) return;
    if (extras.due !== null) {
      this.#dueOf(run).remove(extras.due, slotOf(run));
      extras.due = null;
    }
    if (extras.slot !== null && head.holds_slot) this.#hold(extras.slot.key, -1);
  }

  #enqueue(run: MemoryRun, due_at: number): void {
    const entry: DueEntry<MemoryRun> = { item: run, due_at, order: run.order, place: 0 };
    run.withExtras.due = entry;
    this.#dueOf(run).add(entry, slotOf(run));
  }

  #dueOf({ created }: MemoryRun): DueRuns {
    const { agent_name, version = null } = created;
    let versions = this.#agents.get(agent_name);
    if (versions === undefined) {
      versions = new Map();
      this.#agents.set(agent_name, versions);
    }
    let due = versions.get(version);
    if (due === undefined) {
      due = new DueRuns();
      versions.set(version, due);
    }
    return due;
  }

  #hold(slot: string, by: 1 | -1): void {
    const holders = (this.#holders.get(slot) ?? 0) + by;
    if (holders === 0) this.#holders.delete(slot);
    else this.#holders.set(slot, holders);
  }

  #owner(name: string): Owner {
    let owner = this.#owners.get(name);
    if (owner === undefined) {
      owner = { until: NEVER, forMs: EVER, runs: 0 };
      this.#owners.set(name, owner);
    }
    return owner;
  }

  #find(limit: number, matches: (run: MemoryRun) => boolean): readonly MemoryRun[] {
    const found: MemoryRun[] = [];
    for (let run = this.#live.first; run !== null && found.length < limit; run = run.after)
      if (matches(run)) found.push(run);
    return found;
  }

  #sourcesFor({ agents, cancelledForMs }: TakeRequest, now: number): Source[] {
    const wanted = distinctAgents(agents);
    const sources: Source[] = [];
    for (const { agent_name, version } of wanted) {
      const due = this.#agents.get(agent_name)?.get(version);
      if (due !== undefined) for (const [slot, heap] of due.queues) sources.push(new HeapSource(heap, slot, now));
    }
    const others: MemoryRun[] = [];
    const dead = new Set<string>();
    for (const [name, { runs, until }] of this.#owners) if (runs > 0 && until <= now) dead.add(name);
    if (dead.size > 0) {
      for (const run of this.#find(EVER, ({ head }) => head.owner !== null && dead.has(head.owner)))
        if (wanted.some((agent) => isOf(run, agent))) others.push(run);
    }
    if (cancelledForMs !== undefined) {
      for (const run of this.#cancelling)
        if (this.#dueSince(run.head) <= now - cancelledForMs && !wanted.some((agent) => isOf(run, agent)))
          others.push(run);
    }
    if (others.length > 0) sources.push(new ListSource(others.sort(byDueTime)));
    return sources;
  }

  /** The time since which a run needs work; a time in the future for a run that needs none. */
  #dueSince({ owner, due_at }: RunHead): number {
    return owner === null ? (due_at ?? EVER) : (this.#owners.get(owner)?.until ?? NEVER);
  }
}

interface Owner {
  /** When the owner's lease expires. */
  until: number;
  /** The length that was last requested for the lease. */
  forMs: number;
  /** How many live runs the owner has. */
  runs: number;
}

type Growing = { -readonly [Name in keyof Backlog]: Backlog[Name] };

/** The slot in whose queue a run waits; null for a run that needs no permit. */
function slotOf(run: MemoryRun): string | null {
  return run.needs?.key ?? null;
}

function isOf({ created }: MemoryRun, { agent_name, version }: AgentVersion): boolean {
  return created.agent_name === agent_name && (created.version ?? null) === version;
}

/** Whether the change of the head is irrelevant to `take`. So it is for most writes of a stream. */
function isSameWork(before: RunHead, head: RunHead): boolean {
  return (
    head.owner === before.owner &&
    head.status === before.status &&
    head.due_at === before.due_at &&
    head.holds_slot === before.holds_slot
  );
}
