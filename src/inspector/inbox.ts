import type { Admin } from "../admin/admin.ts";
import type { AdminQuestion, AdminRun } from "../admin/records.ts";
import type { AdminRunQuery } from "../admin/several-runs.ts";
import type { QuestionItem, TimelineItem } from "../admin/timeline.ts";
import type { Entry } from "../core/log.ts";
import type { Clock, RunKey } from "../core/ports.ts";
import { isoTime } from "../core/time.ts";
import { unfitAt } from "../http/errors.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import { SCHEMA_TYPE } from "../protocol/run.ts";
import type { AnsweredQuestion, Answers, AskedQuestion, InboxEvent, InboxQuestion } from "./api.ts";
import { questionItemId, runItemId } from "./api.ts";
import type { Feed } from "./feed.ts";
import type { Inspected } from "./inspected.ts";
import { noSuchRun } from "./inspected.ts";
import { changedSince, ListReader } from "./lists.ts";
import { Reading, recordOf } from "./one-run.ts";

/** How many waiting runs an inbox looks at, and how many of them at a time. */
const MAX_RUNS = 20_000;
const PAGE = 100;
/** After so many runs the page is told how many were read. */
const PIECE = 1_000;
/** An inbox looks for changes in at most this share of the time. */
const LOOK_SHARE = 20;
/** A look that took less pauses as long as others. */
const SHORT_MS = 20;
/** A run that begins to wait after others appears at the latest after so long, in milliseconds, or so many times what a whole reading took. */
const RELOAD_MS = 5_000;
/** How many characters of a question the list has. */
const TEXT = 200;
/** How many items of the run are shown with a question. */
const BEFORE = 8;
/** Of how many runs, and of how many of their last entries, it is told who has answered. */
const ANSWERED_RUNS = 200;
const ANSWERED_ENTRIES = 100;

const sorts = ["oldest", "newest", "deadline", "agent", "tenant"] as const;

/** Which questions an inbox shows, and in which order. */
export interface InboxQuery {
  readonly sort: (typeof sorts)[number];
  readonly agent: string | null;
  readonly tenant: string | null;
  readonly kind: string | null;
  readonly limit: number;
}

export function readInboxQuery(search: URLSearchParams, limit: number): InboxQuery {
  const wanted = search.get("sort") ?? "oldest";
  const sort = sorts.find((one) => one === wanted);
  if (sort === undefined) throw unfitAt(["sort"], `expected one of ${sorts.join(", ")}`);
  return { sort, agent: search.get("agent"), tenant: search.get("tenant"), kind: search.get("kind"), limit };
}

/** A question in an inbox, with the times by which it is sorted. */
interface Sorted {
  readonly item: InboxQuestion;
  readonly since: number;
  readonly expires: number;
}

/** The open questions of all runs that `runs` selects: in their order, up to a limit, whenever they differ. */
export function inboxFeed({ admin, clock }: Inspected, runs: AdminRunQuery, query: InboxQuery): Feed {
  return async function* (pause) {
    const inbox = new Inbox(admin, clock, runs);
    for await (const known of inbox.load()) yield { ...eventOf(inbox.questions, query), reading: known };
    let before = "";
    const changed = (): InboxEvent | undefined => {
      const event = eventOf(inbox.questions, query, inbox.more);
      const text = JSON.stringify(event);
      if (text === before) return undefined;
      before = text;
      return event;
    };
    const first = changed();
    if (first !== undefined) yield first;
    let loadedAt = clock.now();
    let tookMs = 0;
    while (await pause(tookMs < SHORT_MS ? undefined : LOOK_SHARE * tookMs)) {
      const beganAt = clock.now();
      const isDue = beganAt - loadedAt >= Math.max(RELOAD_MS, LOOK_SHARE * inbox.readMs);
      const isSame = !(await inbox.look(isDue));
      if (isDue) loadedAt = clock.now();
      tookMs = clock.now() - beganAt;
      const event = isSame ? undefined : changed();
      if (event !== undefined) yield event;
    }
  };
}

/** The waiting runs, with their questions. */
class Inbox {
  readonly #admin: Admin;
  readonly #clock: Clock;
  readonly #query: AdminRunQuery;
  readonly #reader: ListReader<AdminQuestion>;
  #runs: readonly AdminRun[] = [];
  readonly #asked = new Map<string, readonly Sorted[]>();
  more = false;
  /** How long the last reading of all runs took. */
  readMs = 0;

  constructor(admin: Admin, clock: Clock, query: AdminRunQuery) {
    this.#admin = admin;
    this.#clock = clock;
    this.#query = query;
    this.#reader = new ListReader<AdminQuestion>(admin, clock, {
      ...{ query, limit: MAX_RUNS, showsWorkers: false, idOf: questionItemId },
      read: async (among) => (await admin.questions({ ...query, among })).items,
    });
  }

  get questions(): readonly Sorted[] {
    // Of those that were asked at the same time, the run that was created first is first.
    return this.#runs.toReversed().flatMap((run) => this.#asked.get(runItemId(run)) ?? []);
  }

  /** Reads all runs, and tells from time to time how many. */
  async *load(): AsyncGenerator<number, void, void> {
    const beganAt = this.#clock.now();
    let cursor: string | undefined;
    let told = 0;
    const runs: AdminRun[] = [];
    this.#runs = runs;
    do {
      const page = { ...this.#query, cursor, limit: PAGE };
      const { items, next } = await this.#admin.runs(page);
      for (const [run, asked] of byRun((await this.#admin.questions(page)).items)) this.#asked.set(run, asked);
      runs.push(...items);
      cursor = next ?? undefined;
      await this.#clock.turn();
      if (cursor !== undefined && runs.length >= told + PIECE) {
        told = runs.length;
        yield told;
      }
    } while (cursor !== undefined && runs.length < MAX_RUNS);
    this.more = cursor !== undefined;
    this.readMs = this.#clock.now() - beganAt;
    // A run that came in between has moved others to a page whose questions were not read.
    await this.#read(runs.filter((run) => !this.#asked.has(runItemId(run))));
  }

  /** Looks for changes. `isDue`: reads the list of runs anew. False: nothing has changed. */
  async look(isDue: boolean): Promise<boolean> {
    let runs = await this.#reader.look(this.#runs);
    if (isDue) {
      const whole = await this.#reader.load();
      this.readMs = whole.tookMs;
      this.more = whole.more;
      runs = whole.runs;
    }
    if (runs === this.#runs) return false;
    const stale = changedSince(this.#runs, runs);
    if (stale.length === 0 && runs.length === this.#runs.length) return false;
    await this.#read(stale);
    const kept = new Set(runs.map(runItemId));
    for (const id of this.#asked.keys()) if (!kept.has(id)) this.#asked.delete(id);
    this.#runs = runs;
    return true;
  }

  async #read(runs: readonly AdminRun[]): Promise<void> {
    for (const [run, questions] of await this.#reader.itemsOf(runs)) this.#asked.set(run, questions.map(sortedOf));
  }
}

function byRun(questions: readonly AdminQuestion[]): ReadonlyMap<string, readonly Sorted[]> {
  const found = new Map<string, Sorted[]>();
  for (const question of questions) {
    const id = runItemId(question);
    const questionsOfRun = found.get(id) ?? [];
    questionsOfRun.push(sortedOf(question));
    found.set(id, questionsOfRun);
  }
  return found;
}

function sortedOf({ schema: _schema, parts, root_run_id: _root, ...kept }: AdminQuestion): Sorted {
  const { since, expires_at } = kept;
  return {
    item: { ...kept, text: textIn(parts) },
    since: Date.parse(since),
    expires: expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(expires_at),
  };
}

/** The beginning of what a question says. What is no text is left out. */
function textIn(parts: readonly MessagePart[]): string {
  let text = "";
  for (const { content, content_type } of parts)
    if (content_type !== SCHEMA_TYPE && text.length < TEXT) text += content ?? "";
  return text.slice(0, TEXT);
}

function eventOf(all: readonly Sorted[], query: InboxQuery, more = false): InboxEvent {
  const { agent, tenant, kind, sort, limit } = query;
  const matching = all.filter(
    ({ item }) =>
      (agent === null || item.agent_name === agent) &&
      (tenant === null || item.tenant === tenant) &&
      (kind === null || item.kind === kind),
  );
  const sorted = sort === "newest" ? matching.toSorted(bySince).toReversed() : matching.toSorted(orders[sort]);
  const items = sorted.slice(0, limit);
  return {
    type: "inbox",
    items: items.map(({ item }) => item),
    total: matching.length,
    agents: countsOf(all.map(({ item }) => item.agent_name)),
    tenants: countsOf(all.map(({ item }) => item.tenant)),
    more,
    reading: null,
  };
}

const bySince = (a: Sorted, b: Sorted): number => a.since - b.since;
const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const orders: Readonly<Record<Exclude<InboxQuery["sort"], "newest">, (a: Sorted, b: Sorted) => number>> = {
  oldest: bySince,
  // Two that never expire differ by NaN, which counts as no difference.
  deadline: (a, b) => a.expires - b.expires || bySince(a, b),
  agent: (a, b) => byText(a.item.agent_name, b.item.agent_name) || bySince(a, b),
  tenant: (a, b) => byText(a.item.tenant, b.item.tenant) || bySince(a, b),
};

function countsOf(names: readonly string[]): InboxEvent["agents"] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, questions]) => ({ name, questions })).toSorted((a, b) => byText(a.name, b.name));
}

/** A question, open or settled, with what one needs to know to answer it. */
export async function askedQuestion(inspected: Inspected, key: RunKey, await_id: string): Promise<AskedQuestion> {
  const run = await recordOf(inspected, key);
  if (run === undefined) throw noSuchRun(key);
  const reading = new Reading(inspected, key);
  while (reading.fold.position < run.position && !reading.isUnreadable && (await reading.next()) !== undefined)
    await inspected.clock.turn();
  const { items } = reading.fold;
  const at = items.findLastIndex((item) => item.type === "question" && item.key === await_id);
  const input: readonly Message[] = items[0]?.type === "created" ? items[0].input : [];
  const before = items.slice(0, at === -1 ? undefined : at).filter(isTelling);
  return {
    run,
    question: (items[at] as QuestionItem | undefined) ?? null,
    input,
    before: before.slice(-BEFORE),
  };
}

/** Whether an item says what a run has done: that it began says nothing. */
function isTelling({ type }: TimelineItem): boolean {
  return type !== "created" && type !== "started";
}

/** What was answered by whom in the newest runs, the last answer first. */
export async function answeredQuestions({ admin, store }: Inspected, query: AdminRunQuery): Promise<Answers> {
  const { items, next } = await admin.runs({ ...query, limit: ANSWERED_RUNS });
  const runs = items.filter(({ created }) => created !== null);
  const keys = runs.map(({ tenant, run_id }) => ({ tenant, run_id }));
  const tails = keys.length === 0 ? [] : await store.tails(keys, ANSWERED_ENTRIES);
  const answered = runs.flatMap((run, index) => answersIn(run, tails[index]?.entries ?? []));
  return { answers: answered.toSorted((a, b) => byText(b.at, a.at)), runs: runs.length, more: next !== null };
}

function answersIn({ tenant, run_id, created }: AdminRun, entries: readonly Entry[]): readonly AnsweredQuestion[] {
  const texts = new Map<string, string>();
  const found: AnsweredQuestion[] = [];
  const add = (await_id: string, at: number, rest: Pick<AnsweredQuestion, "how" | "answer" | "by">): void => {
    const agent_name = created?.agent_name ?? "";
    found.push({ tenant, run_id, agent_name, await_id, at: isoTime(at), text: texts.get(await_id) ?? "", ...rest });
  };
  // What a fork has taken over was answered in another run.
  for (const entry of entries.slice(entries.findLastIndex(({ type }) => type === "forked") + 1)) {
    if (entry.type === "awaited" && entry.of === undefined) texts.set(entry.await_id, textIn(entry.parts));
    if (entry.type === "resumed")
      add(entry.await_id, entry.at, { how: "answer", answer: entry.answer, by: entry.by ?? null });
    if (entry.type === "declined")
      add(entry.await_id, entry.at, { how: "declined", answer: entry.decline.reason ?? null, by: entry.by ?? null });
    if (entry.type === "timed-out" && entry.await_id !== null)
      add(entry.await_id, entry.at, { how: entry.defaulted ? "default" : "expired", answer: null, by: null });
  }
  return found;
}
