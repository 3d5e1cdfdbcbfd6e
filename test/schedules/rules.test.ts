import { describe, expect, it } from "vitest";
import type { Command, Definition, Fired, ScheduleState } from "../../src/schedules/state.ts";
import { commanded, decideNext, fired, newSchedule } from "../../src/schedules/state.ts";
import { Calendar } from "../../src/schedules/times.ts";

/* What a schedule does with its times, as tables. A time is a minute, and the schedule has one every ten minutes. */

const MINUTE_MS = 60_000;
const calendar = new Calendar();

const every10: Definition = {
  ...{ agent_name: "a", version: null, input: [], overlap: "skip", missed: "latest", jitter_ms: 0, labels: {} },
  timing: { cron: null, every_ms: 10 * MINUTE_MS, time_zone: "UTC", start_at: null, end_at: null },
};

function timingOf(change: Partial<Definition["timing"]>): Pick<Definition, "timing"> {
  return { timing: { ...every10.timing, ...change } };
}

/** Plays a schedule: `busy` says of each run until which minute it lives. Gives what happens, with its minute. */
class Play {
  state: ScheduleState = newSchedule("", "s");
  readonly happened: string[] = [];
  readonly #livesFor: number;
  #aliveUntil = -1;

  constructor(definition: Partial<Definition>, livesFor = 0) {
    this.#livesFor = livesFor;
    this.command({ type: "put", definition: { ...every10, ...definition } }, 1);
  }

  command(command: Command, minute: number, takenAt = minute): this {
    this.state = commanded(calendar, this.state, command, minute * MINUTE_MS, takenAt * MINUTE_MS);
    return this;
  }

  /** Whether a time or a trigger waits for its run. */
  waits(minute: number): boolean {
    const { times, triggers } = decideNext(calendar, this.state, minute * MINUTE_MS).state;
    return times.length + triggers.length > 0;
  }

  /** Lets the schedule do all that it does until a minute, from its process's start on. */
  run(from: number, until: number): this {
    for (let now = from * MINUTE_MS; ; ) {
      const { state, due, wakeAt } = decideNext(calendar, this.state, now);
      this.state = state;
      if (due !== undefined) this.state = fired(calendar, state, due, this.#create(due, now), now);
      else if (wakeAt > until * MINUTE_MS) return this;
      else now = Math.max(now, wakeAt);
    }
  }

  #create({ time, trigger }: { readonly time: number; readonly trigger?: string }, now: number): Fired {
    const minute = now / MINUTE_MS;
    const { overlap = "skip" } = this.state.definition ?? {};
    const isAlive = minute < this.#aliveUntil;
    if (isAlive && overlap !== "cancel") return { before: overlap === "skip" ? "skipped" : "queued" };
    if (isAlive) this.happened.push(`cancelled at ${minute}`);
    this.#aliveUntil = minute + this.#livesFor;
    const what = trigger ?? String(time / MINUTE_MS);
    const late = Math.floor((now - time) / MINUTE_MS);
    this.happened.push(late === 0 ? what : `${what}, ${late} late`);
    return { run_id: what };
  }
}

describe("overlap: runs live for 25 minutes", () => {
  it.each([
    { overlap: "skip", happened: ["10", "40", "70"] },
    { overlap: "queue", happened: ["10", "20, 15 late", "30, 30 late"] },
    { overlap: "cancel", happened: ["10", "cancelled at 20", "20", "cancelled at 30", "30", "cancelled at 40", "40"] },
  ] as const)("$overlap", ({ overlap, happened }) => {
    const play = new Play({ overlap }, 25).run(1, 70);
    expect(play.happened.slice(0, happened.length)).toEqual(happened);
  });

  it("queue: each time has its run, in order, when there is time", () => {
    const play = new Play({ overlap: "queue", ...timingOf({ end_at: 50 * MINUTE_MS }) }, 25).run(1, 500);
    expect(play.happened.map((what) => what.split(",")[0])).toEqual(["10", "20", "30", "40", "50"]);
    expect(play.state.times).toEqual([]);
  });
});

describe("missed: no process from minute 15 to minute 55", () => {
  it.each([
    { missed: "skip", happened: ["10", "60", "70"] },
    { missed: "latest", happened: ["10", "50, 5 late", "60", "70"] },
    { missed: "all", happened: ["10", "20, 35 late", "30, 25 late", "40, 15 late", "50, 5 late", "60", "70"] },
  ] as const)("$missed", ({ missed, happened }) => {
    expect(new Play({ missed }).run(1, 15).run(55, 70).happened).toEqual(happened);
  });

  it.each(["skip", "latest", "all"] as const)("%s: a time is not missed within a minute", (missed) => {
    expect(new Play({ missed }).run(1, 15).run(20.9, 25).happened).toEqual(["10", "20"]);
  });

  it("latest: what comes within the last minute stands for all before", () => {
    expect(new Play({ missed: "latest" }).run(1, 15).run(50.5, 55).happened).toEqual(["10", "50"]);
  });

  it.each(["skip", "latest", "all"] as const)("%s: each time that is not missed has its run", (missed) => {
    const play = new Play({ missed, ...timingOf({ every_ms: MINUTE_MS / 3 }) }).run(1, 2);
    const before = play.happened.length;
    play.run(54, 54);
    const times = play.happened.slice(before).map((what) => Math.round(3 * Number(what.split(",")[0])));
    expect(times.slice(-4)).toEqual([159, 160, 161, 162]);
    if (missed !== "all") expect(times).toHaveLength(4);
  });

  it("all, queued: each has its run after the one before", () => {
    const play = new Play({ missed: "all", overlap: "queue", ...timingOf({ end_at: 60 * MINUTE_MS }) }, 3)
      .run(1, 15)
      .run(55, 500);
    expect(play.happened.map((what) => what.split(",")[0])).toEqual(["10", "20", "30", "40", "50", "60"]);
  });
});

describe("commands", () => {
  it("a change that is taken late holds from when it was sent: earlier times are of what was before", () => {
    const definition: Definition = { ...every10, ...timingOf({ every_ms: 7 * MINUTE_MS }), missed: "all" };
    const play = new Play({ missed: "all" }).run(1, 15).command({ type: "put", definition }, 32, 50).run(50, 57);
    expect(play.happened.map((what) => what.split(",")[0])).toEqual(["10", "20", "30", "35", "42", "49", "56"]);
  });

  it("what was there before the first put has no runs", () => {
    expect(new Play({ missed: "all", ...timingOf({ start_at: -100 * MINUTE_MS }) }).run(1, 20).happened).toEqual([
      "10",
      "20",
    ]);
  });

  it("a paused schedule drops its times, and keeps what has waited before", () => {
    const play = new Play({ overlap: "queue" }, 25).run(1, 21);
    play.command({ type: "pause" }, 22).run(22, 100).command({ type: "resume" }, 101).run(101, 120);
    expect(play.happened.map((what) => what.split(",")[0])).toEqual(["10", "20"]);
    play.run(120, 200);
    expect(play.happened.map((what) => what.split(",")[0])).toContain("110");
    expect(play.happened.some((what) => /^[3-9]0/.test(what) || what.startsWith("100"))).toBe(false);
  });

  it("a pause that is taken late holds from when it was sent: what came before waits until it is resumed", () => {
    const play = new Play({ missed: "all" }).run(1, 15).command({ type: "pause" }, 25, 50).run(50, 100);
    expect(play.happened).toEqual(["10"]);
    expect(play.command({ type: "resume" }, 101).run(101, 111).happened).toEqual(["10", "20, 81 late", "110"]);
  });

  it("a trigger has a run beside the times, also while it is paused", () => {
    const play = new Play({}).run(1, 12).command({ type: "trigger", key: "t" }, 13).run(13, 20);
    expect(play.happened).toEqual(["10", "t", "20"]);
    play.command({ type: "pause" }, 21).command({ type: "trigger", key: "u" }, 22).run(22, 40);
    expect(play.happened).toEqual(["10", "t", "20", "u"]);
  });

  it("a trigger does not wait for a time that is still to come because of its jitter", () => {
    const play = new Play({ jitter_ms: 9 * MINUTE_MS }).run(1, 10);
    const [at] = new Play({ jitter_ms: 9 * MINUTE_MS }).run(1, 20).happened;
    expect(at).toMatch(/^10, [1-8] late$/);
    expect(play.happened).toEqual([]);
    expect(play.waits(10.1)).toBe(true);
    play.command({ type: "trigger", key: "t" }, 10.1).run(10.1, 10.2);
    expect(play.happened).toEqual(["t"]);
    expect(play.run(10.2, 20).happened).toEqual(["t", at]);
    expect(play.waits(19.9)).toBe(false);
  });

  it("the same put again changes nothing", () => {
    const play = new Play({ overlap: "queue" }, 25).run(1, 21);
    const before = play.state;
    const definition: Definition = { ...every10, overlap: "queue" };
    play.command({ type: "put", definition }, 21);
    expect(play.state).toEqual({ ...before, decided_until: 21 * MINUTE_MS });
  });

  it("triggers overlap as times do", () => {
    const play = new Play({ overlap: "queue" }, 4).run(1, 10);
    for (const key of ["t", "u"]) play.command({ type: "trigger", key }, 11);
    expect(play.run(11, 35).happened.map((what) => what.split(",")[0])).toEqual(["10", "t", "u", "20", "30"]);
    expect(
      new Play({ overlap: "skip" }, 4).run(1, 10).command({ type: "trigger", key: "t" }, 11).run(11, 12).happened,
    ).toEqual(["10"]);
  });
});

it("no time is decided twice when the clock is set back", () => {
  expect(new Play({}).run(1, 25).run(5, 35).happened).toEqual(["10", "20", "30"]);
});

it("a schedule that has ended waits for commands alone", () => {
  const play = new Play({ ...timingOf({ end_at: 20 * MINUTE_MS }) }).run(1, 100);
  expect(play.happened).toEqual(["10", "20"]);
  expect(decideNext(calendar, play.state, 100 * MINUTE_MS).wakeAt).toBe(Number.POSITIVE_INFINITY);
});
