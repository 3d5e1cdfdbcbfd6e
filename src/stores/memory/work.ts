import type { CreatedEntry } from "../../core/log.ts";
import type { Pause } from "../../core/pauses.ts";
import { ASIDE_MS, covers } from "../../core/pauses.ts";
import type { AgentVersion, Backlog, Clock, LinesQuery, RunHead, SlotLine, TakeRequest } from "../../core/ports.ts";
import { COUNTED } from "../../core/ports.ts";
import type { Rate, Slot } from "../../core/slots.ts";
import type { LiveCount, WorkerLease } from "../../core/survey.ts";
import { Choice, distinctAgents } from "../choice.ts";
import { FEW_THROUGH, MAX_GATES, MOST_THROUGH } from "../gates.ts";
import { Chain } from "./chain.ts";
import type { DueEntry } from "./due-heap.ts";
import { DueHeap } from "./due-heap.ts";
import type { Gate, Grants, Line, MemoryRun, OwnSlot, OwnTurn } from "./tenant.ts";

const NEVER = Number.NEGATIVE_INFINITY;
const EVER = Number.POSITIVE_INFINITY;
/** By how much a higher priority puts a run in front, in a line that is ordered by times: more than any two differ. */
const AHEAD_MS = 2 ** 43;
const MIN_LINES = 1_024;

/** The live runs of a memory store: their owners, which of them need work, and which hold a slot or wait for one. */
export class MemoryWork {
  readonly #clock: Pick<Clock, "now">;
  /** A run has lost the owner for whom things may have arrived. */
  readonly #onLeft: (run: MemoryRun) => void;
  /** In the order in which they were created. */
  readonly #live = new Chain<MemoryRun>();
  readonly #owners = new Map<string, Owner>();
  /** The runs that have no owner and a due time, by agent and version. Those that wait for a permit are not among them. */
  readonly #agents = new Map<string, Map<string | null, Priorities>>();
  /** The slots that are held, or of whose rates something was given. */
  readonly #lines = new Map<string, Line>();
  /** With more lines than this, those are forgotten of which nothing counts any more. */
  #mostLines = MIN_LINES;
  /** The rates for which runs wait, by the times at which they give again. */
  readonly #marks = new DueHeap<Grants>();
  readonly #cancelling = new Set<MemoryRun>();
  readonly #gates = new Map<string, Gate>();
  /** The runs without an owner that hold permits. */
  readonly #reserved = new Set<MemoryRun>();
  /** The gates that have runs behind them. Those that a `take` has looked at come last. */
  readonly #crowded = new Set<Gate>();

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
    const gate = extras?.turn?.gate ?? null;
    const isAsking = slot !== null && given.owner !== null && (asks ?? slot.asks);
    const head = isAsking && before.holds_slot ? { ...given, holds_slot: true } : given;
    const isElsewhere = (slot === null && gate === null) || (head.owner !== null && isAsking === (slot?.asks ?? false));
    if (isElsewhere && isSameWork(before, head)) {
      run.head = head;
      return;
    }
    const at = gate === null ? null : this.#standingOf(run, head);
    this.#leave(run);
    run.head = head;
    if (slot !== null) slot.asks = isAsking;
    if (extras !== null && head.owner !== before.owner) extras.wakes = 0;
    if (slot !== null) slot.isForLook = head.owner === null && (forLook || slot.isForLook);
    this.#enter(run, before.holds_slot, forLook ? { ...at, passes: true } : at);
  }

  /** A run without an owner gets another version of its agent. */
  move(run: MemoryRun, created: CreatedEntry, head: RunHead): void {
    const at = (run.extras?.turn?.gate ?? null) === null ? null : this.#standingOf(run, head);
    const held = run.head.holds_slot;
    this.#leave(run);
    run.withExtras.moved = created;
    run.head = head;
    this.#enter(run, held, at);
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

  /** Whether a run that holds no permits may get those that it needs at once: they are free, and no other run waits for them. */
  hasPermitFor(run: MemoryRun): boolean {
    return this.refusing(run) === undefined;
  }

  /** The first slot of which a run that holds no permits may not get one at once. */
  refusing(run: MemoryRun): Slot | undefined {
    const slot = run.extras?.slot ?? null;
    if (slot === null) return undefined;
    if (slot.limits === undefined) return this.#hasPermit(run, slot) ? undefined : slot;
    return slot.limits.find((limit) => !this.#hasPermit(run, limit));
  }

  /** Gives runs that need work to an owner, in order, and sets aside those that a pause of their tenant covers. */
  take(request: TakeRequest, pauses: readonly Pause[]): readonly MemoryRun[] {
    const now = this.#clock.now();
    for (const name of this.#owners.keys()) this.shorten(name, now);
    const wanted = distinctAgents(request.agents);
    if (request.unusedForMs !== undefined) this.#freeUnused(wanted, now - request.unusedForMs);
    const choice = new Choice(request);
    if (!choice.isOver) {
      this.#freePaused(pauses, now);
      this.#look();
    }
    const heaps = wanted.flatMap(({ agent_name, version }) => [
      ...(this.#agents.get(agent_name)?.get(version)?.values() ?? []),
    ]);
    const others = this.#withoutProcess(wanted, request.cancelledForMs, now);
    const given: MemoryRun[] = [];
    const passed: DueEntry<MemoryRun>[] = [];
    while (!choice.isOver) {
      const other = others.at(-1);
      let next = other && placeOf(other);
      let from: DueHeap<MemoryRun> | undefined;
      for (const heap of heaps) {
        const { first } = heap;
        if (first === undefined || first.due_at > now || (next !== undefined && isBefore(next, first))) continue;
        next = first;
        from = heap;
      }
      if (next === undefined) break;
      const run = next.item;
      if (mayWait(run) && isCovered(run, pauses)) {
        this.change(run, { ...run.head, due_at: (run.head.due_at ?? now) + ASIDE_MS });
        continue;
      }
      const place = run.extras?.due ?? null;
      if (from === undefined) others.pop();
      else remove(from, run);
      if (choice.takes(run.head.takeovers, () => this.#begins(run, now))) {
        const holds_slot = run.head.holds_slot || (run.needs !== null && !onlyEnds(run));
        this.give(run, { ...taken(run.head, request.owner, now), holds_slot });
        given.push(run);
      } else if (from !== undefined && place !== null && run.extras?.due === null) passed.push(place);
    }
    for (const { item, due_at } of passed) this.#enqueue(item, due_at);
    this.#letThrough(given, wanted, choice.isOver);
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
      // What stands in line or behind a gate needs work, also after the clock was set back.
      if (since > now && (head.owner !== null || !isInLine(run))) {
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
    const back = this.#find(EVER, (run) => {
      const { owner, due_at } = run.head;
      return owner === null && due_at !== null && due_at >= ASIDE_MS && !isCovered(run, pauses);
    });
    const first = back.sort(byPlace).slice(0, limit);
    const now = this.#clock.now();
    for (const run of first)
      this.change(run, { ...run.head, due_at: Math.min((run.head.due_at ?? EVER) - ASIDE_MS, now) });
    return first.length;
  }

  /** Looks at all keys, and sorts no more than two pages of them at once. */
  lines({ after = "", limit }: LinesQuery): readonly SlotLine[] {
    const now = this.#clock.now();
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
      .flatMap((key) => lineOf(key, this.#lines.get(key), now) ?? []);
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

  /** `held`: whether it held a permit before. `at`: how it stood to its gate before; left out for a run without one. */
  #enter(run: MemoryRun, held: boolean, at: Standing | null = null): void {
    const { head, extras } = run;
    if (head.owner !== null) this.#owner(head.owner).runs += 1;
    if (head.status === "cancelling") this.#cancelling.add(run);
    const turn = extras?.turn;
    if (turn !== undefined && turn.gate !== null) this.#reach(turn.gate, run, turn, at ?? {});
    const slot = extras?.slot ?? null;
    if (slot !== null) this.#settle(run, slot, held);
    if (head.owner !== null || head.due_at === null || turn?.isBehind === true) return;
    if ((run.extras?.due ?? null) === null) this.#enqueue(run, at?.place);
  }

  /** Removes a run from where it was. In the line of its slot it stays, as it may keep its place. */
  #leave(run: MemoryRun): void {
    const { head, extras } = run;
    // An owner without runs stays: it probably gets the next one, too.
    if (head.owner !== null) this.#owner(head.owner).runs -= 1;
    if (head.status === "cancelling") this.#cancelling.delete(run);
    if (extras !== null && (extras.slot?.line ?? null) === null) remove(this.#dueOf(run), run);
    const turn = extras?.turn;
    if (turn !== undefined && turn.gate !== null) this.#leaveGate(turn.gate, turn);
  }

  /** How a run stands to its gate before it gets another head. */
  #standingOf({ head: before, extras }: MemoryRun, head: RunHead): Standing {
    const { turn, due = null, slot = null } = extras ?? {};
    const isFree = before.owner === null && before.blocked === null;
    const isInLine = (slot?.line ?? null) !== null;
    const passes = isFree && (isInLine || (before.due_at ?? EVER) <= this.#clock.now());
    if (turn?.isBehind === true) return { rank: turn.entry?.due_at };
    return { passes, place: isInLine || head.due_at !== before.due_at ? undefined : due?.due_at };
  }

  /** A run comes to its gate. It stays behind it if many are through, it is due and nothing lets it pass. */
  #reach(key: string, run: MemoryRun, turn: OwnTurn, { passes = false, rank }: Standing): void {
    const { head, extras, order } = run;
    if (head.owner !== null || head.due_at === null) return;
    const now = this.#clock.now();
    const gate = this.#gates.get(key) ?? { through: new DueHeap(), behind: new DueHeap() };
    this.#gates.set(key, gate);
    const slot = extras?.slot ?? null;
    const hasPlace = slot !== null && (head.holds_slot || slot.isForLook || slot.rank !== null);
    const waits = head.due_at <= now && head.blocked === null && head.status !== "cancelling" && !passes && !hasPlace;
    turn.isBehind = waits && (rank !== undefined || gate.through.count(now, MOST_THROUGH) === MOST_THROUGH);
    turn.entry = { item: run, due_at: turn.isBehind ? (rank ?? now) : head.due_at, order, place: 0 };
    if (head.blocked !== null) turn.entry = null;
    else if (turn.isBehind) gate.behind.add(turn.entry);
    else gate.through.add(turn.entry);
    if (turn.isBehind) this.#crowded.add(gate);
  }

  #leaveGate(key: string, turn: OwnTurn): void {
    const gate = this.#gates.get(key);
    if (gate === undefined) return;
    if (turn.entry !== null) (turn.isBehind ? gate.behind : gate.through).remove(turn.entry);
    turn.entry = null;
    turn.isBehind = false;
    if (gate.behind.size > 0) return;
    this.#crowded.delete(gate);
    if (gate.through.size === 0) this.#gates.delete(key);
  }

  /** After a `take`: lets runs through the gates of those that it has given and, unless it has found enough, through others. */
  #letThrough(given: readonly MemoryRun[], wanted: readonly AgentVersion[], hasEnough: boolean): void {
    if (this.#crowded.size === 0) return;
    const gates = new Set(given.flatMap(({ extras }) => this.#gates.get(extras?.turn?.gate ?? "") ?? []));
    const others = hasEnough ? [] : [...this.#crowded].filter((gate) => !gates.has(gate) && isOfAny(gate, wanted));
    for (const gate of [...gates, ...others.slice(0, MAX_GATES)]) this.#open(gate);
  }

  /** Lets runs through a gate, if few are. */
  #open(gate: Gate): void {
    if (!this.#crowded.delete(gate)) return;
    const now = this.#clock.now();
    const through = gate.through.count(now, MOST_THROUGH);
    for (let more = through <= FEW_THROUGH ? MOST_THROUGH - through : 0; more > 0; more--) {
      const { item: run } = gate.behind.first ?? {};
      const { turn, slot = null } = run?.extras ?? {};
      if (run === undefined || turn === undefined || turn.entry === null) break;
      gate.behind.remove(turn.entry);
      turn.isBehind = false;
      turn.entry = { item: run, due_at: run.head.due_at ?? now, order: run.order, place: 0 };
      gate.through.add(turn.entry);
      if (slot !== null && run.needs !== null) this.#join(run, slot);
      else this.#enqueue(run);
    }
    if (gate.behind.size > 0) this.#crowded.add(gate);
  }

  /** Counts the permits of a run, gives them back or waits for them, as the new head says. `held`: whether it held them before. */
  #settle(run: MemoryRun, slot: OwnSlot, held: boolean): void {
    const { head } = run;
    const { limits } = slot;
    const isLive = head.finished_at === null;
    const holds = isLive && head.holds_slot;
    const isFree = isLive && head.owner === null;
    const hasCome = head.due_at !== null && head.due_at <= this.#clock.now();
    const isReady = isFree && run.extras?.turn?.isBehind !== true && hasCome;
    const isDue = isReady && run.needs !== null && (head.blocked === null || slot.line !== null);
    const waits = isDue || (isLive && slot.asks && !holds);
    const joins = waits && slot.line === null;
    if (holds !== held) this.#count(slot, holds);
    if (slot.line !== null && !waits) {
      remove(slot.line.waiting, run);
      slot.line = null;
    }
    if (holds || (isFree && !waits && !slot.isForLook)) slot.rank = null;
    this.#reserve(run, slot, holds && isFree ? (slot.since ?? this.#clock.now()) : null);
    if (limits === undefined) this.#letIn(slot.key);
    else for (const { key } of limits) this.#letIn(key);
    if (joins) this.#join(run, slot);
  }

  #hasPermit({ extras }: MemoryRun, limit: Slot): boolean {
    const line = this.#lines.get(limit.key);
    return line === undefined || (!this.#isUsedUp(line, limit) && (line.waiting.first ?? extras?.due) === extras?.due);
  }

  /** Counts the permits that a run gets or gives back. */
  #count(slot: OwnSlot, holds: boolean): void {
    const { limits } = slot;
    const change = holds ? 1 : -1;
    if (limits === undefined) {
      this.#lineOf(slot.key).held += change;
      return;
    }
    for (const { key, max, rate } of limits) {
      const line = this.#lineOf(key);
      if (max !== undefined) line.held += change;
      if (rate !== undefined && holds) this.#grant(line, key, rate);
    }
    if (limits.some(({ rate }) => rate !== undefined) && holds)
      slot.limits = limits.flatMap(({ key, max }) => (max === undefined ? [] : { key, max }));
  }

  #grant(line: Line, key: string, { count, perMs }: Rate): void {
    const now = this.#clock.now();
    if (line.grants === undefined && this.#lines.size > this.#mostLines) this.forget();
    line.grants ??= { key, times: [], kept: 0, until: NEVER, mark: null };
    const { grants } = line;
    grants.kept = Math.max(grants.kept, count);
    grants.until = Math.max(grants.until, now + perMs);
    grants.times.push(now);
    if (grants.times.length > 2 * grants.kept) grants.times = grants.times.slice(-grants.kept);
  }

  /** Forgets what rates have given, where it does not count any more. */
  forget(): void {
    const now = this.#clock.now();
    for (const [key, { held, waiting, grants }] of this.#lines)
      if (held === 0 && waiting.size === 0 && grants !== undefined && grants.until <= now) this.#lines.delete(key);
    this.#mostLines = Math.max(MIN_LINES, 2 * this.#lines.size);
  }

  /** Whether as many runs hold a slot as may, or its rate gives none now. */
  #isUsedUp(line: Line, { max = EVER, rate }: Slot): boolean {
    return line.held >= max || (rate !== undefined && nextAt(line, rate) > this.#clock.now());
  }

  /** Whether a run that needs work can begin now. If it lacks permits, it waits for them from now on, and has no owner. */
  #begins(run: MemoryRun, now: number): boolean {
    const { head, needs } = run;
    if (needs === null || onlyEnds(run) || this.#refusing(run, needs) === undefined) return true;
    if (head.owner === null) {
      // One of another agent is still among those that have a due time.
      remove(this.#dueOf(run), run);
      this.#join(run, needs);
    } else this.give(run, taken(head, null, now));
    return run.head.holds_slot;
  }

  /** A run gets the permits that it needs, or joins the line of the first slot that refuses one. */
  #join(run: MemoryRun, slot: OwnSlot): void {
    const refusing = this.#refusing(run, slot);
    if (refusing === undefined) this.#admit(run, slot);
    else this.#stand(run, slot, refusing);
  }

  /** The first slot that gives a run no permit. */
  #refusing(run: MemoryRun, slot: OwnSlot): Slot | undefined {
    if (slot.limits !== undefined) return slot.limits.find((limit) => this.#refuses(run, slot, limit));
    return this.#refuses(run, slot, slot) ? slot : undefined;
  }

  /** Whether a slot is used up, or other runs stand in its line in front of the run. */
  #refuses(run: MemoryRun, slot: OwnSlot, limit: Slot): boolean {
    const line = this.#lines.get(limit.key);
    if (line === undefined) return false;
    if (this.#isUsedUp(line, limit)) return true;
    const { first } = line.waiting;
    if (first === undefined || first.item === run) return false;
    const rank = this.#rankIn(line, limit.key, run, slot);
    return rank > first.due_at || (rank === first.due_at && run.order > first.order);
  }

  /** The place that a run gets in a line. It keeps the one that it had there before it was looked at. */
  #rankIn({ last }: Line, key: string, { priority }: MemoryRun, slot: OwnSlot): number {
    if (slot.rank !== null && slot.key === key) return slot.rank;
    const now = this.#clock.now();
    return priority === 0 ? Math.max(now, last + 1) : now - priority * AHEAD_MS;
  }

  #stand(run: MemoryRun, slot: OwnSlot, { key, max = EVER }: Slot): void {
    const line = this.#lineOf(key);
    slot.rank = this.#rankIn(line, key, run, slot);
    slot.key = key;
    slot.max = max;
    slot.line = line;
    if (run.priority === 0) line.last = Math.max(slot.rank, line.last);
    add(line.waiting, run, slot.rank);
    this.#mark(line);
  }

  /** A run that needs permits holds them. */
  #admit(run: MemoryRun, slot: OwnSlot): void {
    this.#count(slot, true);
    slot.line = null;
    slot.rank = null;
    run.head = { ...run.head, holds_slot: true };
    if (run.head.owner !== null) return;
    this.#reserve(run, slot, this.#clock.now());
    this.#enqueue(run);
  }

  /** `since`: since when a run holds its permits without an owner. Null: it does not. */
  #reserve(run: MemoryRun, slot: OwnSlot, since: number | null): void {
    slot.since = since;
    if (since === null) this.#reserved.delete(run);
    else this.#reserved.add(run);
  }

  /**
   * Gives permits of a slot to the runs in its line, as long as the first of them gets one. If another slot is used up, the run
   * goes to the end of the line of that one, and lets the next one pass. That others stand in line there does not hold it up: the
   * first of two lines would do so to each other without end.
   */
  #letIn(key: string): void {
    const line = this.#lines.get(key);
    if (line === undefined) return;
    for (let run = line.waiting.first?.item; run !== undefined; run = line.waiting.first?.item) {
      const slot = run.extras?.slot ?? null;
      if (slot === null || this.#isUsedUp(line, limitOf(slot, key))) break;
      const refusing = slot.limits?.find((limit) => {
        const other = limit.key === key ? undefined : this.#lines.get(limit.key);
        return other !== undefined && this.#isUsedUp(other, limit);
      });
      remove(line.waiting, run);
      if (refusing === undefined) this.#admit(run, slot);
      else this.#stand(run, slot, refusing);
    }
    this.#mark(line);
    if (line.held === 0 && line.waiting.size === 0 && line.grants === undefined) this.#lines.delete(key);
  }

  /** Notes when a rate gives again, if that is what the first in line waits for. */
  #mark({ grants, waiting, held }: Line): void {
    if (grants === undefined) return;
    if (grants.mark !== null) this.#marks.remove(grants.mark);
    grants.mark = null;
    const slot = waiting.first?.item.extras?.slot ?? null;
    const { max = EVER, rate } = slot === null ? {} : limitOf(slot, grants.key);
    if (slot === null || rate === undefined || held >= max) return;
    grants.mark = { item: grants, due_at: nextAt({ grants }, rate), order: 0, place: 0 };
    this.#marks.add(grants.mark);
  }

  /** Gives permits of rates to those that wait for their times. */
  #look(): void {
    const now = this.#clock.now();
    const keys: [at: number, key: string][] = [];
    for (let { first } = this.#marks; first !== undefined && first.due_at <= now; first = this.#marks.first) {
      keys.push([first.due_at, first.item.key]);
      this.#marks.remove(first);
      first.item.mark = null;
    }
    keys.sort(([at, key], [other, otherKey]) => at - other || (key < otherKey ? -1 : 1));
    for (const [, key] of keys) this.#letIn(key);
  }

  /** See {@link TakeRequest}. `before`: since when the runs must have been without a process. */
  #freeUnused(wanted: readonly AgentVersion[], before: number): void {
    const isOther = (run: MemoryRun): boolean => !wanted.some((agent) => isOf(run, agent));
    const since = ({ head, extras }: MemoryRun): number => Math.max(head.due_at ?? EVER, extras?.slot?.since ?? EVER);
    const reserved = [...this.#reserved].filter((run) => since(run) <= before);
    this.#freePermits([...this.#durableOfDeadOwners(before), ...reserved].filter(isOther));
  }

  /** As `#freeUnused`, at once, for the runs of agents and versions that are paused. */
  #freePaused(pauses: readonly Pause[], now: number): void {
    const ofAgents = pauses.filter(({ tenant }) => tenant === undefined);
    if (ofAgents.length === 0) return;
    const isPaused = ({ created }: MemoryRun): boolean =>
      ofAgents.some((pause) => covers(pause, created.agent_name, created.version ?? null, ""));
    const reserved = [...this.#reserved].filter(({ head }) => (head.due_at ?? EVER) <= now);
    this.#freePermits([...this.#durableOfDeadOwners(now), ...reserved].filter(isPaused));
  }

  /**
   * Runs that no process may execute give their permits back, if others wait for them. The other runs of their versions leave
   * these lines: they would only get the permits next. A run that gets one from another of the runs is looked at by the next call.
   */
  #freePermits(runs: readonly MemoryRun[]): void {
    const now = this.#clock.now();
    const holders = runs.filter(({ head }) => head.holds_slot);
    for (const run of holders.sort((one, other) => one.order - other.order)) {
      const slot = run.extras?.slot ?? null;
      if (slot === null || !run.head.holds_slot) continue;
      const limits = slot.limits ?? [slot];
      const lines = limits.flatMap(({ key }) => this.#lines.get(key) ?? []);
      const { agent_name, version = null } = run.created;
      for (const line of lines)
        for (const other of line.waiting.items)
          if (isOf(other, { agent_name, version }) && other.head.owner === null) this.#stepAside(other, line);
      if (lines.every(({ waiting }) => waiting.size === 0)) continue;
      if (run.head.owner !== null) this.give(run, taken(run.head, null, now));
      run.head = { ...run.head, holds_slot: false };
      this.#reserve(run, slot, null);
      this.#count(slot, false);
      for (const { key } of limits) this.#letIn(key);
    }
  }

  /** A run leaves a line, and is due without a permit, until a process takes it. */
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

  /**
   * A run joins the due ones. `place`: where it was there before. A run with a gate stands there by the time at which it
   * comes, so that it is not in front of what was due before it was let through.
   */
  #enqueue(run: MemoryRun, place?: number): void {
    const { due_at } = run.head;
    const hasGate = (run.extras?.turn?.gate ?? null) !== null;
    const from = hasGate ? Math.max(due_at ?? NEVER, this.#clock.now()) : (due_at ?? NEVER);
    add(this.#dueOf(run), run, place ?? from);
  }

  #dueOf({ created, priority }: MemoryRun): DueHeap<MemoryRun> {
    const { agent_name, version = null } = created;
    let versions = this.#agents.get(agent_name);
    if (versions === undefined) {
      versions = new Map();
      this.#agents.set(agent_name, versions);
    }
    let priorities = versions.get(version);
    if (priorities === undefined) {
      priorities = new Map();
      versions.set(version, priorities);
    }
    let due = priorities.get(priority);
    if (due === undefined) {
      due = new DueHeap();
      priorities.set(priority, due);
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
    const found = this.#ofDeadOwners(now).filter(isWanted);
    if (cancelledForMs !== undefined)
      for (const run of this.#cancelling)
        if (this.#dueSince(run.head) <= now - cancelledForMs && !isInLine(run) && !isWanted(run)) found.push(run);
    return found.sort(byPlace).reverse();
  }

  /** The runs of owners whose leases had ended by a time, oldest first. */
  #ofDeadOwners(by: number): MemoryRun[] {
    const dead = new Set<string>();
    for (const [name, { runs, until }] of this.#owners) if (runs > 0 && until <= by) dead.add(name);
    return dead.size === 0 ? [] : this.#find(EVER, ({ head }) => head.owner !== null && dead.has(head.owner));
  }

  #durableOfDeadOwners(by: number): MemoryRun[] {
    return this.#ofDeadOwners(by).filter(({ created }) => created.durable === true);
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

/** The due runs of an agent and version, by their priority. */
type Priorities = Map<number, DueHeap<MemoryRun>>;

/** How a run stood to its gate. */
interface Standing {
  /** Whether it was through, or passes for another reason. */
  readonly passes?: boolean;
  /** Its place behind the gate. */
  readonly rank?: number | undefined;
  /** Its place among the due ones, if it keeps it. */
  readonly place?: number | undefined;
}

/** Whether a run without an owner waits in a line or behind its gate. */
function isInLine({ head, extras }: MemoryRun): boolean {
  return head.owner === null && ((extras?.slot?.line ?? null) !== null || extras?.turn?.isBehind === true);
}

/** The runs of a gate are of one agent. */
function isOfAny({ behind }: Gate, agents: readonly AgentVersion[]): boolean {
  const run = behind.first?.item;
  return run !== undefined && agents.some((agent) => isOf(run, agent));
}

function isBefore(one: Omit<DueEntry<MemoryRun>, "place">, other: Omit<DueEntry<MemoryRun>, "place">): boolean {
  const [a, b] = [one.item.priority, other.item.priority];
  if (a !== b) return a > b;
  return one.due_at < other.due_at || (one.due_at === other.due_at && one.order < other.order);
}

function placeOf(run: MemoryRun): Omit<DueEntry<MemoryRun>, "place"> {
  return { item: run, due_at: run.head.due_at ?? NEVER, order: run.order };
}

/** For sorting: the run that is due first comes first. */
function byPlace(one: MemoryRun, other: MemoryRun): number {
  return isBefore(placeOf(one), placeOf(other)) ? -1 : 1;
}

function lineOf(key: string, line: Line | undefined, now: number): SlotLine | undefined {
  const first = line?.waiting.first?.item;
  const slot = first?.extras?.slot ?? null;
  if (line === undefined || first === undefined || slot === null) return undefined;
  const { agent_name, version = null } = first.created;
  const { max, rate } = limitOf(slot, key);
  const next_at = rate && nextAt(line, rate);
  return {
    key,
    ...(max !== undefined && { max }),
    ...(rate !== undefined && { rate }),
    ...(next_at !== undefined && next_at > now && { next_at }),
    held: line.held,
    waiting: Math.min(line.waiting.size, COUNTED),
    first: { key: first.key, agent_name, version, due_at: first.head.due_at ?? slot.rank ?? NEVER },
  };
}

/** The limit that a run has under one of its keys. */
function limitOf(slot: OwnSlot, key: string): Slot {
  return slot.limits?.find((limit) => limit.key === key) ?? slot;
}

/** From when on a rate gives the next permit, which may be past. */
function nextAt({ grants }: Pick<Line, "grants">, { count, perMs }: Rate): number {
  const last = grants === undefined || count > grants.kept ? undefined : grants.times.at(-count);
  return last === undefined ? NEVER : last + perMs;
}

/** Whether a run of a dead owner is only taken to end it. For that it needs no permit. */
function onlyEnds({ head, created }: MemoryRun): boolean {
  return head.owner !== null && (created.durable !== true || head.status === "cancelling");
}

/** Whether a pause of its tenant covers a run. */
function isCovered({ created, key }: MemoryRun, pauses: readonly Pause[]): boolean {
  const { agent_name, version = null } = created;
  return pauses.some((pause) => pause.tenant !== undefined && covers(pause, agent_name, version, key.tenant));
}

/** Whether `take` may set a run aside. A process that takes one with a slot or a priority sets it aside. */
function mayWait(run: MemoryRun): boolean {
  const { created, head, extras } = run;
  if (head.owner !== null || head.status === "cancelling" || extras?.slot || run.priority !== 0) return false;
  return created.durable === true || (head.status === "created" && head.takeovers === 0);
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
