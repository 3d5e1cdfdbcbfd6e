import type { DetailedEvent, Message, Run, Scope, StreamedEvent } from "cadenza";
import type { Entry, RunKey, Store } from "cadenza/store";
import type { Mail, Reply } from "./answers.ts";
import { expect, isAsExpected, misasked, textOfReply, wordOfEntry, wordsIn } from "./expected.ts";
import type { EmittedEntry, IntentEntry, MaybePromise } from "./internals.ts";
import { foldEntries, resultKey } from "./internals.ts";
import { MAIL } from "./program.ts";
import { namedIn } from "./program-player.ts";

/*
 * Judges a run that has ended, and the runs below it: by their logs, by their programs, and by what clients and readers
 * were told. It is the judge of the simulated world and of real processes. What happened there to processes and stores
 * makes no difference to it. `body-judge.ts` judges what steps did meanwhile, and `time-judge.ts` when.
 */

/** The log of a run. Undefined: there is no such run. */
export type LogOf = (run_id: string) => MaybePromise<readonly Entry[] | undefined>;

/** What has arrived for a run in a store, and is not in its log. Of a run that has ended, it came as the run ended. */
export async function inboxIn(store: Store, key: RunKey): Promise<readonly Entry[]> {
  const stored = await store.find(key, "with inbox");
  return stored?.inbox?.flatMap(({ entries }) => entries) ?? [];
}

/** What the client of a run and its readers were told, and what was acknowledged. */
export interface Told {
  /** The events that readers have got, in any order. */
  readonly seen: readonly StreamedEvent[];
  /** The acknowledged replies, by the ids of the questions in the run. */
  readonly replies: ReadonlyMap<string, Reply>;
  /** The acknowledged messages, by the run that they were sent to. */
  readonly sent: ReadonlyMap<string, readonly Mail[]>;
  /** Whether its cancellation was accepted. */
  readonly isCancelled: boolean;
  /** Whether the messages were sent one after the other. */
  readonly sentInOrder: boolean;
}

/** What a run shows in the end. */
export interface Shown {
  readonly run: Run;
  readonly events: readonly StreamedEvent[];
  readonly details: readonly DetailedEvent[];
  readonly transcript: readonly Message[];
}

export async function shownBy(scope: Scope, run_id: string): Promise<Shown> {
  return {
    run: await scope.getRun(run_id),
    events: await collect(scope.events(run_id, { until: "now" })),
    details: await collect(scope.events(run_id, { detail: true, until: "now" })),
    transcript: await scope.transcript(run_id),
  };
}

/** What is wrong with a run and the runs below it, by their logs and, if they have them, by their programs. */
export async function misjudged(run_id: string, logOf: LogOf): Promise<string[]> {
  const log = await logOf(run_id);
  // A run that was stopped may have ended before its sub-run began.
  if (log === undefined || log.length === 0) return [];
  const wrong: string[] = [];
  let used = 0;
  const subRuns = new Set(
    log.flatMap((entry) => (entry.type === "intent" && entry.run_id !== null ? [entry.run_id] : [])),
  );
  for (const subRun of subRuns) {
    wrong.push(...(await misjudged(subRun, logOf)));
    const below = (await logOf(subRun)) ?? [];
    const result = resultOf(subRun, log);
    // The tokens of a sub-run come with its result. One that was cancelled with its parent has none.
    if (result !== undefined) used += usageOf(subRun, below);
    wrong.push(...misshown(subRun, below, log, result).map((what) => `${run_id} ${what}`));
  }
  const own = [...malformed(log), ...(await misperformed(run_id, log, used))];
  if (own.length === 0) return wrong;
  return [...wrong, ...own.map((what) => `${namedIn(log)?.name ?? "a run"} (${run_id}) ${what}\n${describe(log)}`)];
}

/** What is wrong with what a run shows in the end, by what was told of it before and by its log. */
export async function mistold(
  run_id: string,
  told: Told,
  shown: Shown,
  logOf: LogOf,
  inboxOf: (run_id: string) => Promise<readonly Entry[]>,
): Promise<string[]> {
  const { run, events } = shown;
  const wrong: string[] = [];
  events.forEach(({ id }, index) => {
    if (id !== index + 1) wrong.push(`event ${index + 1} has the number ${id}`);
  });
  for (const seen of told.seen) {
    const [was, is] = [seen, events[seen.id - 1]].map((event) => JSON.stringify(event));
    if (was !== is) wrong.push(`event ${seen.id} was ${was} and is ${is}`);
  }
  if (told.isCancelled && run.status !== "cancelled") wrong.push(`was cancelled, and is ${run.status}`);
  const log = (await logOf(run_id)) ?? [];
  for (const [await_id, reply] of told.replies) {
    const kept = await repliesTo(await_id, log, logOf);
    if (kept.length !== 1 || textOfReply(kept[0]) !== textOfReply(reply))
      wrong.push(
        `the answer to ${await_id} is lost: it is ${JSON.stringify(reply)}, and is in the log as ${JSON.stringify(kept)}`,
      );
  }
  for (const [to, mails] of told.sent) {
    const its = (await logOf(to)) ?? [];
    for (const mail of mails)
      if (!isReceived(its, mail) && !isReceived(await inboxOf(to), mail))
        wrong.push(`the message ${mail.idempotencyKey} to ${to} is lost`);
    if (told.sentInOrder) wrong.push(...disordered(to, its));
  }
  const [is, must] = [run.output.map(linesOf), outputIn(log)].map((output) => JSON.stringify(output));
  if (is !== must) wrong.push(`shows the output ${is}, and its log has ${must}`);
  return wrong.map((what) => `${run_id}: ${what}`);
}

/** Whether a log holds a message. A process that was frozen while it sent one may post it once more. It counts once. */
export function isReceived(log: readonly Entry[], { name, data, idempotencyKey }: Mail): boolean {
  // A fork of a later generation knows the keys of the messages that earlier ones had.
  const begin = log[1]?.type === "continued" ? log[1] : undefined;
  if (begin?.message_keys?.includes(idempotencyKey) === true) return true;
  const found = log.filter((entry) => entry.type === "received" && entry.idempotency_key === idempotencyKey);
  const isIt = (entry: Entry): boolean =>
    entry.type === "received" && entry.name === name && JSON.stringify(entry.data) === JSON.stringify(data);
  return found.length > 0 && found.every(isIt);
}

/** What is wrong with a session in which only these runs are, each with its transcript. */
export function misremembered(
  history: readonly Message[],
  before: readonly Message[],
  runs: readonly Shown[],
): readonly string[] {
  const added = runs.flatMap(({ run, transcript }) => (run.status === "completed" ? transcript : []));
  const [is, must] = [history, [...before, ...added]].map((messages) =>
    messages.map(({ role, parts }) => JSON.stringify([role, parts])).sort(),
  );
  return String(is) === String(must) ? [] : [`session has ${is}, and must have ${must}`];
}

/** A log in short, for a message. */
export function describe(log: readonly Entry[]): string {
  return log.map((entry, index) => `  ${index} ${JSON.stringify(entry)}`).join("\n");
}

/** What is wrong with the form of a log. Each operation begins before its result, and no attempt is left out. */
function malformed(log: readonly Entry[]): string[] {
  const wrong: string[] = [];
  const count = (type: Entry["type"]): number => log.filter((entry) => entry.type === type).length;
  const isWhole = count("created") === 1 && count("started") <= 1 && count("ended") === 1;
  if (!isWhole || log[0]?.type !== "created" || log.at(-1)?.type !== "ended")
    wrong.push(`has an inconsistent log: ${log.map(({ type }) => type).join(" ")}`);
  const results = new Set<string>();
  const intents = new Map<string, IntentEntry>();
  const taken = new Set<string>();
  for (const entry of log) {
    const key = resultKey(entry);
    if (key !== undefined && results.has(key)) wrong.push(`has two results of ${key}`);
    if (key !== undefined) results.add(key);
    if (entry.type === "taken" && entry.position !== null) {
      const message = log[entry.position];
      const name = message?.type === "received" ? message.idempotency_key : `position ${entry.position}`;
      if (taken.has(name)) wrong.push(`has taken ${name} twice`);
      taken.add(name);
    }
    if (entry.type === "step" && !intents.has(entry.key) && !entry.key.startsWith("session."))
      wrong.push(`has a result of ${entry.key}, which it never began`);
    if (entry.type !== "intent") continue;
    if (results.has(entry.key)) wrong.push(`went on with ${entry.key} after its result`);
    // A second entry of the same attempt says that the store holds the sub-run.
    const before = intents.get(entry.key);
    const isSame = entry.stored === true && before?.stored !== true && before?.run_id === entry.run_id;
    if (entry.attempt !== (before?.attempt ?? 0) + (isSame ? 0 : 1))
      wrong.push(`has attempt ${entry.attempt} at ${entry.key} out of order`);
    intents.set(entry.key, entry);
  }
  return wrong;
}

/** The messages to a run that were sent one after the other are in its log in this order. */
function disordered(run_id: string, log: readonly Entry[]): string[] {
  return MAIL.flatMap((name) => {
    // A fork of a later generation has only the messages that earlier ones have left, and knows the keys of others.
    const begin = log[1]?.type === "continued" ? log[1] : undefined;
    const carried = begin?.messages?.map(({ entry }) => entry) ?? [];
    const keys = new Set(
      [...carried, ...log].flatMap((entry) =>
        entry.type === "received" && entry.name === name ? [entry.idempotency_key] : [],
      ),
    );
    const numbers = [...keys].map((key) => Number(key.slice(name.length)));
    const isInOrder = numbers.every((number, index) =>
      begin === undefined ? number === index + 1 : number > (numbers[index - 1] ?? 0),
    );
    return isInOrder ? [] : [`the messages to ${run_id} are out of order: ${[...keys].join()}`];
  });
}

const PROMISES = [0, 1, 3, 8];

/** What is wrong with a run of a program, by its log. `used`: the tokens of its sub-runs. */
async function misperformed(run_id: string, log: readonly Entry[], used: number): Promise<string[]> {
  const named = namedIn(log);
  if (named === undefined) return [];
  let wrong: string[] = [];
  // The order in which branches begin operations side by side depends on the number of promises before each.
  for (const yields of PROMISES) {
    wrong = await expect(named, run_id, log, yields).then(
      (expected) => [...expected.wrong, ...misasked(expected, named, log), ...otherwise(expected, run_id, log, used)],
      (error: unknown) => [String(error)],
    );
    if (wrong.length === 0) break;
  }
  return wrong;
}

function otherwise(
  expected: Awaited<ReturnType<typeof expect>>,
  run_id: string,
  log: readonly Entry[],
  used: number,
): string[] {
  const { words, ending, error, tokens, lateTokens, open } = expected;
  const end = log.at(-1);
  const status = end?.type === "ended" ? end.outcome : "open";
  const stopped = log.findIndex(({ type }) => type === "cancel-requested");
  const was = wordsIn(status === "cancelled" ? log.slice(0, stopped) : log);
  const must = words.map((some) => some.map(({ text }) => text).join("|")).join(" / ");
  const isRight = isAsExpected(expected, was, status === "cancelled");
  const wrong = isRight ? [] : [`emits ${was.join("|")}, and must emit ${must}`];
  if (status === "cancelled") return wrong;
  if (status !== ending) wrong.push(`is ${status}, and must be ${ending}; waits for ${open.join()}`);
  const said = end?.type === "ended" ? (end.cause ?? end.error)?.message : undefined;
  if (said !== error) wrong.push(`has failed with ${said}, and must have failed with ${error}`);
  const own = usageOf(run_id, log) - used;
  // A fork has not used what its origin has used.
  const isFork = log[0]?.type === "created" && log[0].origin !== undefined;
  if (!isFork && own !== tokens && own !== tokens + lateTokens)
    wrong.push(`has used ${own + used}, and must have used ${tokens} and ${used}`);
  return wrong;
}

/** The result of a sub-run in the log of its parent. */
function resultOf(subRun: string, log: readonly Entry[]): (Entry & { readonly type: "step" }) | undefined {
  const key = log.find((entry) => entry.type === "intent" && entry.run_id === subRun);
  return log.find((entry) => entry.type === "step" && key?.type === "intent" && entry.key === key.key) as
    | (Entry & { readonly type: "step" })
    | undefined;
}

/** What is wrong with what a run has of a sub-run: its result, and the copies of what it shows, which have to be complete then. */
function misshown(
  subRun: string,
  below: readonly Entry[],
  above: readonly Entry[],
  result: ReturnType<typeof resultOf>,
): string[] {
  const wrong: string[] = [];
  const copies = above.filter(
    (entry) =>
      entry.type === "created" ||
      ("source" in entry && entry.source !== undefined && "run_id" in entry.source && entry.source.run_id === subRun),
  );
  const is = emittedIn(copies);
  // A program says whether it is shown.
  const must = (namedIn(below)?.isShown ?? is.length > 0) ? emittedIn(below) : [];
  if (must.slice(0, result === undefined ? is.length : undefined).join("|") !== is.join("|"))
    wrong.push(`shows ${is.join("|")} of ${subRun}, and must show ${must.join("|")}`);
  if (result === undefined || result.error !== null) return wrong;
  const output = outputIn(below);
  if (must.length > 0) {
    // What interrupted attempts at a step have emitted is left out of both outputs.
    const [shown, own] = [outputIn(copies), outputIn(below, "of all generations")].map((messages) =>
      messages.flatMap(([, ...texts]) => texts).join("|"),
    );
    if (shown !== own) wrong.push(`has shown ${shown} in the end, and ${subRun} ${own}`);
  }
  const { status, output: given } = result.result as unknown as Pick<Run, "status" | "output">;
  const end = below.at(-1);
  const texts = [
    [status, given.map(linesOf)],
    [end?.type === "ended" ? end.outcome : "open", output],
  ];
  const [has, ought] = texts.map((one) => JSON.stringify(one));
  if (has !== ought) wrong.push(`has ${has} as the result of ${subRun}, which has ${ought}`);
  return wrong;
}

/** What an agent and its steps have emitted, by its log, without the ends of messages. */
function emittedIn(log: readonly Entry[]): string[] {
  return log.flatMap((entry) => (entry.type === "emitted" && entry.kind !== "close" ? [wordOfEntry(entry)] : []));
}

/** What was replied to a question of a run or of one below it, in the log of the run that asks. */
export async function repliesTo(await_id: string, log: readonly Entry[], logOf: LogOf): Promise<readonly Reply[]> {
  const [key, ...rest] = await_id.split("/");
  if (rest.length > 0) {
    const begun = log.find((entry) => entry.type === "intent" && entry.key === key);
    const below = begun?.type === "intent" && begun.run_id !== null ? await logOf(begun.run_id) : undefined;
    return repliesTo(rest.join("/"), below ?? [], logOf);
  }
  return log.flatMap((entry): Reply[] => {
    if (entry.type === "resumed" && entry.await_id === key) return [{ await_resume: entry.answer }];
    return entry.type === "declined" && entry.await_id === key ? [{ decline: entry.decline }] : [];
  });
}

type Lines = readonly [role: string, ...texts: (string | undefined)[]];

function linesOf({ role, parts }: Pick<Message, "role" | "parts">): Lines {
  return [role, ...parts.map(({ content }) => content ?? undefined)];
}

/** A message while it is put together. `step`, `attempt`: of a step's body. */
interface Draft {
  readonly lines: [string, ...(string | undefined)[]];
  readonly by: string;
  readonly step: string | undefined;
  readonly attempt: number;
}

/**
 * The output that a log tells of, by rules of its own: a part joins the open message of what emits it. What an attempt at
 * a step has emitted is left out as soon as there is another attempt.
 */
function outputIn(log: readonly Entry[], which?: "of all generations"): readonly Lines[] {
  let messages: Draft[] = [];
  let open: Draft | undefined;
  const leaveOut = (step: string | undefined, attempt: number): void => {
    messages = messages.filter((one) => one.step === undefined || one.step !== step || one.attempt >= attempt);
    if (open !== undefined && !messages.includes(open)) open = undefined;
  };
  const [created] = log;
  const agent = created?.type === "created" ? `agent/${created.agent_name}` : "";
  for (const entry of log) {
    if (entry.type === "continued" && which === undefined) messages = [];
    if (entry.type === "continued" || (entry.type === "awaited" && entry.of === undefined)) open = undefined;
    if (entry.type === "intent") leaveOut(entry.key, entry.attempt);
    else if (entry.type === "attempt-failed") leaveOut(entry.key, entry.attempt + 1);
    else if (entry.type === "torn") leaveOut(stepOf(entry.source), entry.source.step?.attempt ?? 0);
    if (entry.type !== "emitted" || entry.kind === "generic") continue;
    const { source } = entry;
    const step = stepOf(source);
    const isCopy = source !== undefined && "run_id" in source;
    const attempt = (isCopy ? source.step : source)?.attempt ?? 0;
    leaveOut(step, attempt);
    if (entry.kind === "close") {
      open = undefined;
      continue;
    }
    const by = isCopy ? source.run_id : `${step} ${attempt}`;
    const role = isCopy ? source.role : agent;
    const begin = (...texts: (string | undefined)[]): Draft => {
      const draft: Draft = { lines: [role, ...texts], by, step, attempt };
      messages.push(draft);
      return draft;
    };
    if (entry.kind === "message") {
      begin(...entry.message.parts.map(({ content }) => content ?? undefined));
      open = undefined;
    } else if (open === undefined || open.by !== by || (isCopy && entry.opens === true))
      open = begin(entry.part.content ?? undefined);
    else open.lines.push(entry.part.content ?? undefined);
  }
  return messages.map(({ lines }) => lines);
}

/** The step that emitted something, with a key that no other step has, also of a sub-run. */
function stepOf(source: EmittedEntry["source"]): string | undefined {
  if (source === undefined || !("run_id" in source)) return source?.key;
  return source.step && `${source.run_id}/${source.step.key}`;
}

function usageOf(run_id: string, log: readonly Entry[]): number {
  return log.length === 0 ? 0 : (foldEntries(run_id, log).usage?.total_tokens ?? 0);
}

async function collect<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of stream) all.push(one);
  return all;
}
