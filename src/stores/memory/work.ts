import type { Pause } from "../../core/pauses.ts";
import { ASIDE_MS, covers } from "../../core/pauses.ts";
import type { AgentVersion, Backlog, Clock, LinesQuery, RunHead, SlotLine, TakeRequest } from "../../core/ports.ts";
import { COUNTED } from "../../core/ports.ts";
import type { LiveCount, WorkerLease } from "../../core/survey.ts";
import { Choice, distinctAgents } from "../choice.ts";
import { Chain } from "./chain.ts";
import type { DueEntry } from "./due-heap.ts";
import { DueHeap } from "./due-heap.ts";
import type { Line, MemoryRun, OwnSlot } from "./tenant.ts";

const NEVER = Number.NEGATIVE_INFINITY;
const EVER = Number.POSITIVE_INFINITY;

/** The live runs of a memory store: their owners, which of them need work, and which hold a slot or wait for one. */
export class MemoryWork {
  readonly #clock: Pick<Clock, "now">;
  /** A run has lost the owner for whom things may have arrived. */
  readonly #onLeft: (run: MemoryRun) => void;
  /** In the order in which they were created. */
  readonly #live = new Chain<MemoryRun>();
  readonly #owners = new Map<string, Owner>();
  /** The runs that have no owner and a due time, by agent and version. Those that wait for a permit are not among them. */
  readonly #agents = new Map<string, Map<string | null, DueHeap<MemoryRun>>>();
  /** The slots that are held. */
  readonly #lines = new Map<string, Line>();
  readonly #cancelling = new Set<MemoryRun>();

  constructor(clock: Pick<Clock, "now">, onLeft: (run: MemoryRun) => void) {
    this.#clock = clock;
    this.#onLeft = onLeft;
  }

  begin(run: MemoryRun, asks: boolean | undefined): void {
    this.#live.addLast(run);
    if (run.extras?.slot) run.extras.slot.asks = asks === true;
    this.#enter(run, false);
  }

  /**
   * Gives a live run another head. With `forLook` it may be taken without a permit, until it has an owner. `asks`: it waits
   * for a permit under its owner; left out: as before.
   */
  change(run: MemoryRun, given: RunHead, forLook = false, asks?: boolean): void {
    const before = run.head;
    const { extras } = run;
    const slot = extras?.slot ?? null;
    const isAsking = slot !== null && given.owner !== null && (asks ?? slot.asks);
    const head = isAsking && before.holds_slot ? { ...given, holds_slot: true } : given;
    if ((slot === null || (head.owner !== null && isAsking === slot.asks)) && isSameWork(before, head)) {
      run.head = head;
      return;
    }
    this.#leave(run);
    run.head = head;
    if (slot !== null) slot.asks = isAsking;
    if (extras !== null && head.owner !== before.owner) extras.wakes = 0;
    if (slot !== null) slot.isForLook = head.owner === null && (forLook || slot.isForLook);
    this.#enter(run, before.holds_slot);
  }

  /** Gives a live run to a process, which then checks everything that the run waits for. */
  give(run: MemoryRun, head: RunHead): void {
    this.change(run, head, false, false);
    if (run.extras === null) return;
    run.extras.wakes = 0;
    this.#onLeft(run);
  }

  /** A live run gets its last head. */
  end(run: MemoryRun, head: RunHead): void {
    const { holds_slot } = run.head;
    this.#leave(run);
    run.head = head;
    this.#live.remove(run);
    const slot = run.extras?.slot ?? null;
    if (slot !== null) this.#settle(run, slot, holds_slot);
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

  /** Whether a run that holds no permit may get one at once: one is free, and no other run waits for it. */
  hasPermitFor(run: MemoryRun): boolean {
    const slot = run.extras?.slot ?? null;
    const line = slot === null ? undefined : this.#lines.get(slot.key);
    if (slot === null || line === undefined) return true;
    return line.held < slot.max && (line.waiting.first ?? run.extras?.due) === run.extras?.due;
  }

  /** Gives runs that need work to an owner, in order. */
  take(request: TakeRequest): readonly MemoryRun[] {
    const now = this.#clock.now();
    for (const name of this.#owners.keys()) this.shorten(name, now);
    const wanted = distinctAgents(request.agents);
    if (request.unusedForMs !== undefined) this.#freeUnused(wanted, now - request.unusedForMs, now);
    const heaps = wanted.flatMap(({ agent_name, version }) => this.#agents.get(agent_name)?.get(version) ?? []);
    const others = this.#withoutProcess(wanted, request.cancelledForMs, now);
    const choice = new Choice(request);
    const given: MemoryRun[] = [];
    const passed: MemoryRun[] = [];
    while (!choice.isOver) {
      let run = others.at(-1);
      let from: DueHeap<MemoryRun> | undefined;
      for (const heap of heaps) {
        const { first } = heap;
        if (first === undefined || first.due_at > now || (run !== undefined && isBefore(run, first.item))) continue;
        run = first.item;
        from = heap;
      }
      if (run === undefined) break;
      if (from === undefined) others.pop();
      else remove(from, run);
      if (choice.takes(run.head.takeovers, () => this.#begins(run, now))) {
        const holds_slot = run.head.holds_slot || (run.needs !== null && !onlyEnds(run));
        this.give(run, { ...taken(run.head, request.owner, now), holds_slot });
        given.push(run);
      } else if (from !== undefined && run.extras?.due === null) passed.push(run);
    }
    for (const run of passed) this.#enqueue(run);
    return given;
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
    const counted = new Map<string, Growing>();
    for (let run = this.#live.first; run !== null; run = run.after) {
      const { head, created } = run;
      if (head.owner !== null && this.isAlive(head.owner, now)) continue;
      const { agent_name, version = null } = created;
      const name = JSON.stringify([agent_name, version]);
      const counts = counted.get(name) ?? { agent_name, version, due: 0, since: null, waiting: 0, blocked: 0 };
      counted.set(name, counts);
      const since = this.#dueSince(head);
      // What stands in line needs work, also after the clock was set back.
      if (since > now && (head.owner !== null || (run.extras?.slot?.line ?? null) === null)) {
        counts.waiting = oneMore(counts.waiting);
        if (head.blocked !== null) counts.blocked = oneMore(counts.blocked);
        continue;
      }
      counts.due = oneMore(counts.due);
      if (since !== NEVER) counts.since = Math.min(counts.since ?? since, since);
    }
    return [...counted.values()];
  }

  /** Makes runs due that were set aside, unless a pause of their tenant covers them. Looks at all live runs. */
  comeBack(pauses: readonly Pause[], limit: number): number {
    const ofTenants = pauses.filter(({ tenant }) => tenant !== undefined);
    const back = this.#find(EVER, ({ head, created, key }) => {
      if (head.owner !== null || head.due_at === null || head.due_at < ASIDE_MS) return false;
      const { agent_name, version = null } = created;
      return !ofTenants.some((pause) => covers(pause, agent_name, version, key.tenant));
    });
    const first = back.sort((one, other) => (isBefore(one, other) ? -1 : 1)).slice(0, limit);
    const now = this.#clock.now();
    for (const run of first)
      this.change(run, { ...run.head, due_at: Math.min((run.head.due_at ?? EVER) - ASIDE_MS, now) });
    return first.length;
  }

  /** Looks at all keys, and sorts no more than two pages of them at once. */
  lines({ after = "", limit }: LinesQuery): readonly SlotLine[] {
    let keys: string[] = [];
    let last: string | undefined;
    for (const [key, { waiting }] of this.#lines) {
      if (waiting.first === undefined || key <= after || (last !== undefined && key > last)) continue;
      if (keys.push(key) < 2 * limit) continue;
      keys = keys.sort().slice(0, limit);
      last = keys.at(-1);
    }
    return keys
      .sort()
      .slice(0, limit)
      .flatMap((key) => lineOf(key, this.#lines.get(key)) ?? []);
  }

  census(): readonly LiveCount[] {
    const counted = new Map<string, LiveCount>();
    for (let run = this.#live.first; run !== null; run = run.after) {
      const { agent_name, version = null } = run.created;
      const { status } = run.head;
      const name = JSON.stringify([agent_name, version, status]);
      counted.set(name, { agent_name, version, status, runs: oneMore(counted.get(name)?.runs ?? 0) });
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

  /** `held`: whether it held a permit before. */
  #enter(run: MemoryRun, held: boolean): void {
    const { head, extras } = run;
    if (head.owner !== null) this.#owner(head.owner).runs += 1;
    if (head.status === "cancelling") this.#cancelling.add(run);
    const slot = extras?.slot ?? null;
    if (slot !== null) this.#settle(run, slot, held);
    if (head.owner === null && head.due_at !== null && (run.extras?.due ?? null) === null) this.#enqueue(run);
  }

  /** Removes a run from where it was. In the line of its slot it stays, as it may keep its place. */
  #leave(run: MemoryRun): void {
    const { head, extras } = run;
    // An owner without runs stays: it probably gets the next one, too.
    if (head.owner !== null) this.#owner(head.owner).runs -= 1;
    if (head.status === "cancelling") this.#cancelling.delete(run);
    if (extras !== null && (extras.slot?.line ?? null) === null) remove(this.#dueOf(run), run);
  }

  /** Counts the permit of a run, gives it back or waits for it, as the new head says. `held`: whether it held one before. */
  #settle(run: MemoryRun, slot: OwnSlot, held: boolean): void {
    const { head } = run;
    const line = this.#lineOf(slot.key);
    const isLive = head.finished_at === null;
    const holds = isLive && head.holds_slot;
    const isFree = isLive && head.owner === null;
    const hasCome = head.due_at !== null && head.due_at <= this.#clock.now();
    const isDue = isFree && run.needs !== null && hasCome && (head.blocked === null || slot.line !== null);
    const waits = isDue || (isLive && slot.asks && !holds);
    const joins = waits && slot.line === null;
    line.held += Number(holds) - Number(held);
    if (slot.line !== null && !waits) {
      remove(line.waiting, run);
      slot.line = null;
    }
    if (holds || (isFree && !waits && !slot.isForLook)) slot.rank = null;
    slot.since = holds && isFree ? (slot.since ?? this.#clock.now()) : null;
    this.#letIn(line, slot.key);
    if (joins) this.#join(run, slot);
  }

  /** Whether a run that needs work can begin now. If it lacks a permit, it waits for one from now on, and has no owner. */
  #begins(run: MemoryRun, now: number): boolean {
    const { head, needs } = run;
    if (needs === null || onlyEnds(run) || this.hasPermitFor(run)) return true;
    if (head.owner === null) {
      // One of another agent is still among those that have a due time.
      remove(this.#dueOf(run), run);
      this.#join(run, needs);
    } else this.give(run, taken(head, null, now));
    return run.head.holds_slot;
  }

  #join(run: MemoryRun, slot: OwnSlot): void {
    const line = this.#lineOf(slot.key);
    slot.line = line;
    slot.rank ??= Math.max(this.#clock.now(), line.last + 1);
    line.last = Math.max(slot.rank, line.last);
    add(line.waiting, run, slot.rank);
    this.#letIn(line, slot.key);
  }

  /** Gives free permits of a slot to the runs that wait for one, as long as the first of them gets one. */
  #letIn(line: Line, key: string): void {
    for (let run = line.waiting.first?.item; run !== undefined; run = line.waiting.first?.item) {
      const slot = run.extras?.slot ?? null;
      if (slot === null || line.held >= slot.max) return;
      line.held += 1;
      remove(line.waiting, run);
      slot.line = null;
      slot.rank = null;
      run.head = { ...run.head, holds_slot: true };
      if (run.head.owner !== null) continue;
      slot.since = this.#clock.now();
      this.#enqueue(run);
    }
    if (line.held === 0) this.#lines.delete(key);
  }

  /** See {@link TakeRequest}. `before`: since when the runs must have been without a process. */
  #freeUnused(wanted: readonly AgentVersion[], before: number, now: number): void {
    const names = new Set(wanted.map(({ agent_name }) => agent_name));
    const isOther = (agent_name: string, version: string | null): boolean =>
      names.has(agent_name) && !wanted.some((agent) => agent.agent_name === agent_name && agent.version === version);
    const found = this.#ofDeadOwners(before).filter(
      ({ created }) => created.durable === true && isOther(created.agent_name, created.version ?? null),
    );
    for (const name of names)
      for (const [version, due] of this.#agents.get(name) ?? [])
        if (isOther(name, version))
          for (const run of due.items)
            if (Math.max(run.head.due_at ?? EVER, run.extras?.slot?.since ?? EVER) <= before) found.push(run);
    for (const run of found.sort((one, other) => one.order - other.order)) {
      const { agent_name, version = null } = run.created;
      const slot = run.extras?.slot ?? null;
      const line = slot === null ? undefined : this.#lines.get(slot.key);
      if (slot === null || line?.waiting.first === undefined || !run.head.holds_slot) continue;
      if (run.head.owner !== null) this.give(run, taken(run.head, null, now));
      run.head = { ...run.head, holds_slot: false };
      slot.since = null;
      line.held -= 1;
      for (const other of line.waiting.items)
        if (isOf(other, { agent_name, version }) && other.head.owner === null) this.#stepAside(other, line);
      this.#letIn(line, slot.key);
    }
  }

  /** A run leaves the line of its slot, and is due without a permit, until a process takes it. */
  #stepAside(run: MemoryRun, line: Line): void {
    remove(line.waiting, run);
    if (run.extras !== null && run.extras.slot !== null) run.extras.slot.line = null;
    this.#enqueue(run);
  }

  #lineOf(key: string): Line {
    let line = this.#lines.get(key);
    if (line === undefined) {
      line = { held: 0, waiting: new DueHeap(), last: NEVER };
      this.#lines.set(key, line);
    }
    return line;
  }

  #enqueue(run: MemoryRun): void {
    add(this.#dueOf(run), run, run.head.due_at ?? NEVER);
  }

  #dueOf({ created }: MemoryRun): DueHeap<MemoryRun> {
    const { agent_name, version = null } = created;
    let versions = this.#agents.get(agent_name);
    if (versions === undefined) {
      versions = new Map();
      this.#agents.set(agent_name, versions);
    }
    let due = versions.get(version);
    if (due === undefined) {
      due = new DueHeap();
      versions.set(version, due);
    }
    return due;
  }

  #owner(name: string): Owner {
    let owner = this.#owners.get(name);
    if (owner === undefined) {
      owner = { until: NEVER, forMs: EVER, runs: 0 };
      this.#owners.set(name, owner);
    }
    return owner;
  }

  #find(limit: number, matches: (run: MemoryRun) => boolean): MemoryRun[] {
    const found: MemoryRun[] = [];
    for (let run = this.#live.first; run !== null && found.length < limit; run = run.after)
      if (matches(run)) found.push(run);
    return found;
  }

  /** The runs of dead owners, and cancelled ones whose code no process may have, the first one last. */
  #withoutProcess(wanted: readonly AgentVersion[], cancelledForMs: number | undefined, now: number): MemoryRun[] {
    const isWanted = (run: MemoryRun): boolean =>
      (run.head.owner !== null && run.created.durable !== true) || wanted.some((agent) => isOf(run, agent));
    const isInLine = ({ head, extras }: MemoryRun): boolean =>
      head.owner === null && (extras?.slot?.line ?? null) !== null;
    const found = this.#ofDeadOwners(now).filter(isWanted);
    if (cancelledForMs !== undefined)
      for (const run of this.#cancelling)
        if (this.#dueSince(run.head) <= now - cancelledForMs && !isInLine(run) && !isWanted(run)) found.push(run);
    return found.sort((one, other) => (isBefore(one, other) ? 1 : -1));
  }

  /** The runs of owners whose leases had ended by a time, oldest first. */
  #ofDeadOwners(by: number): MemoryRun[] {
    const dead = new Set<string>();
    for (const [name, { runs, until }] of this.#owners) if (runs > 0 && until <= by) dead.add(name);
    return dead.size === 0 ? [] : this.#find(EVER, ({ head }) => head.owner !== null && dead.has(head.owner));
  }

  /** The time since which a run needs work; a time in the future for a run that needs none. */
  #dueSince({ owner, due_at }: RunHead): number {
    return owner === null ? (due_at ?? EVER) : (this.#owners.get(owner)?.until ?? NEVER);
  }
}

/** Counts on, as far as a store counts. */
function oneMore(count: number): number {
  return Math.min(count + 1, COUNTED);
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

function isBefore(one: MemoryRun, other: MemoryRun): boolean {
  const [a, b] = [one.head.due_at ?? NEVER, other.head.due_at ?? NEVER];
  return a < b || (a === b && one.order < other.order);
}

function lineOf(key: string, line: Line | undefined): SlotLine | undefined {
  const first = line?.waiting.first?.item;
  const slot = first?.needs;
  if (line === undefined || first === undefined || !slot) return undefined;
  const { agent_name, version = null } = first.created;
  const { held } = line;
  const waiting = Math.min(line.waiting.size, COUNTED);
  return {
    key,
    max: slot.max,
    held,
    waiting,
    first: { key: first.key, agent_name, version, due_at: first.head.due_at ?? slot.rank ?? NEVER },
  };
}

/** Whether a run of a dead owner is only taken to end it. For that it needs no permit. */
function onlyEnds({ head, created }: MemoryRun): boolean {
  return head.owner !== null && (created.durable !== true || head.status === "cancelling");
}

/** The head of a run that is taken now from its owner, if it has one. */
function taken(head: RunHead, owner: string | null, now: number): RunHead {
  const takeovers = head.takeovers + (head.owner === null ? 0 : 1);
  return { ...head, owner, epoch: head.epoch + 1, due_at: now, blocked: null, takeovers };
}

function add(heap: DueHeap<MemoryRun>, run: MemoryRun, due_at: number): void {
  const entry: DueEntry<MemoryRun> = { item: run, due_at, order: run.order, place: 0 };
  run.withExtras.due = entry;
  heap.add(entry);
}

function remove(heap: DueHeap<MemoryRun>, { extras }: MemoryRun): void {
  if (extras === null || extras.due === null) return;
  heap.remove(extras.due);
  extras.due = null;
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
