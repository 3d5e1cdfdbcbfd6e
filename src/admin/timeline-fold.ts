import { evolve } from "../core/evolve.ts";
import type { StepFailure } from "../core/failure.ts";
import type { AttemptFailedEntry, AwaitedEntry, EmittedEntry, Entry, IntentEntry, StepEntry } from "../core/log.ts";
import { isReceive, isWait, nameIn } from "../core/operation-keys.ts";
import { initialState, latestTime } from "../core/state.ts";
import { isoTime } from "../core/time.ts";
import { addUsage } from "../core/usage.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import { parsedJson } from "../protocol/json-text.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { Run } from "../protocol/run.ts";
import { SCHEMA_TYPE } from "../protocol/run.ts";
import type {
  Lasting,
  Placed,
  QuestionItem,
  ReceiveItem,
  SleepItem,
  StepItem,
  SubRunItem,
  TimelineItem,
} from "./timeline.ts";

/** How much of consecutive output an item shows, in characters. */
const MAX_TEXT = 10_000;

type Open = StepItem | SleepItem | ReceiveItem | SubRunItem | QuestionItem;

/** Makes a timeline of the entries of a log, from the first one on. */
export class TimelineFold {
  readonly items: TimelineItem[] = [];
  /** How many entries it has. */
  position = 0;
  /** What the run and its sub-runs have reported so far. */
  usage: Usage | null = null;
  /** The items of operations that are open, and of steps that failed, by key: not of all, since a large map is slow to grow. */
  readonly #operations = new Map<string, Open>();
  /** The names of the steps that call the tools which models have asked for. */
  readonly #toolSteps = new Set<string>();
  #at = "";
  /** The state up to the last entry, which says whether the entry counts. */
  readonly #state = initialState("");

  add(entry: Entry): void {
    evolve(this.#state, entry);
    this.position = this.#state.position - 1;
    // The `created` entry of a fork is younger than the entries of its origin, which follow it.
    this.#at = isoTime(entry.type === "created" ? entry.at : latestTime(this.#state));
    // What the entries before the fork report was used by its origin.
    if (entry.type === "forked") this.usage = null;
    else if ("usage" in entry) this.usage = addUsage(this.usage, entry.usage ?? null);
    if (this.#state.last_counts) this.#tell(entry);
    this.position += 1;
  }

  #tell(entry: Entry): void {
    switch (entry.type) {
      case "created":
        this.#push({ ...this.#place(), type: "created", input: entry.input });
        return;
      case "forked":
        this.#push({ ...this.#place(), type: "forked", by: this.#state.created?.origin?.by ?? null });
        return;
      case "started":
        this.#push({ ...this.#place(), type: "started" });
        return;
      case "continued":
        for (const key of this.#operations.keys()) this.#withdraw(key);
        this.#operations.clear();
        this.#push({ ...this.#place(), type: "continued", generation: entry.generation, carry: entry.carry ?? null });
        return;
      case "cancel-requested":
        this.#push({ ...this.#place(), type: "cancel_requested", by: entry.by ?? null });
        return;
      case "exceeded":
        this.#push({ ...this.#place(), type: "budget_exceeded" });
        return;
      case "emitted":
        this.#emit(entry);
        return;
      case "intent":
        this.#begin(entry);
        return;
      case "attempt-failed":
        this.#fail(entry);
        return;
      case "step":
        this.#end(entry);
        return;
      case "awaited":
        this.#ask(entry);
        return;
      case "resumed":
        this.#settle(entry.await_id, "answer", { answer: entry.answer, by: entry.by ?? null });
        return;
      case "declined":
        this.#settle(entry.await_id, "declined", { reason: entry.decline.reason ?? null, by: entry.by ?? null });
        return;
      case "settled": {
        const how = entry.answer !== undefined ? "answer" : entry.decline === undefined ? "settled" : "declined";
        const { answer = null, decline, by = null } = entry;
        this.#settle(entry.await_id, how, { answer, reason: decline?.reason ?? null, by });
        return;
      }
      case "withdrawn":
        this.#withdraw(entry.await_id);
        return;
      case "timed-out":
        if (entry.await_id === null) this.#push({ ...this.#place(), type: "timed_out" });
        else this.#settle(entry.await_id, entry.defaulted ? "default" : "expired");
        return;
      case "received":
        this.#push({
          ...this.#place(),
          type: "message",
          name: entry.name,
          data: entry.data,
          by: entry.by ?? null,
        });
        return;
      case "taken": {
        const { key, position, issues = null } = entry;
        const how = position === null ? "expired" : issues === null ? "message" : "rejected";
        const item = this.#operations.get(key) ?? this.#receive(key, null);
        if (item.type === "receive") Object.assign(this.#close(item), { how, message: position, issues });
        return;
      }
      case "offered":
        this.#push({ ...this.#place(), type: "offered", await_id: entry.await_id, by: entry.by ?? null });
        return;
      case "refused":
        this.#push({ ...this.#place(), type: "refused", code: entry.code, issues: entry.issues ?? null });
        return;
      case "ended": {
        for (const key of this.#operations.keys()) this.#withdraw(key);
        const { outcome, error = null, key = null, cause = this.#causeOf(key) } = entry;
        this.#push({ ...this.#place(), type: "ended", outcome, error, key, cause });
        return;
      }
      default:
    }
  }

  #emit(entry: EmittedEntry): void {
    if (entry.kind === "close") return;
    const source = (entry.source ?? null) as unknown as JsonValue;
    let item = this.items.at(-1);
    if (item?.type !== "output" || JSON.stringify(item.source) !== JSON.stringify(source)) {
      item = { ...this.#place(), type: "output", text: "", count: 0, objects: [], source };
      this.#push(item);
    }
    item.last_position = this.position;
    item.count += 1;
    if (entry.kind === "generic") item.objects.push(entry.generic as JsonValue);
    const parts = entry.kind === "part" ? [entry.part] : entry.kind === "message" ? entry.message.parts : [];
    for (const { content } of parts)
      if (item.text.length < MAX_TEXT) item.text = `${item.text}${content ?? ""}`.slice(0, MAX_TEXT);
  }

  #begin(entry: IntentEntry): void {
    const { key, attempt, run_id, until, stored, queued_ms } = entry;
    if (stored === true) return;
    // What the runtime records for the session of the run is no step of the agent.
    if (key.startsWith("session.")) return;
    const name = nameIn(key);
    const deadline = until === undefined || until === null ? null : isoTime(until);
    if (run_id !== null) {
      this.#open({
        ...this.#lasting(key, queued_ms),
        type: "sub_run",
        agent_name: name,
        run_id,
        status: null,
        error: null,
        usage: null,
      });
    } else if (isWait(entry) && isReceive(key)) {
      this.#receive(key, deadline, queued_ms);
    } else if (isWait(entry))
      this.#open({ ...this.#lasting(key, queued_ms), type: "sleep", until: deadline, how: null });
    else this.#attempt(key, attempt, queued_ms);
  }

  #receive(key: string, until: string | null, queued_ms?: number): ReceiveItem {
    const rest = { how: null, message: null, issues: null };
    return this.#open({ ...this.#lasting(key, queued_ms), type: "receive", name: nameIn(key), until, ...rest });
  }

  #attempt(key: string, attempt: number, queued_ms: number | undefined): void {
    const item = this.#stepOf(key);
    const before = item.attempts.at(-1);
    const why = before?.error == null ? "an interruption" : `the error ${JSON.stringify(before.error.message)}`;
    item.last_position = this.position;
    const queued = queued_ms === undefined ? {} : { queued_ms };
    item.attempts.push({ attempt, started_at: this.#at, ended_at: null, error: null, ...queued });
    if (queued_ms !== undefined) item.queued_ms = (item.queued_ms ?? 0) + queued_ms;
    item.waits_for =
      attempt === 1 ? "the result of its first attempt" : `the result of attempt ${attempt}, after ${why}`;
    item.retry_at = null;
  }

  #fail({ key, attempt, failure, until }: AttemptFailedEntry): void {
    const item = this.#stepOf(key);
    const last = item.attempts.at(-1);
    if (last !== undefined) Object.assign(last, { ended_at: this.#at, error: failure });
    item.last_position = this.position;
    item.retry_at = until === undefined ? null : isoTime(until);
    const begins = until === undefined ? "" : `, which begins at ${item.retry_at},`;
    item.waits_for = `attempt ${attempt + 1}${begins} after the error ${JSON.stringify(failure.message)}`;
  }

  #stepOf(key: string): StepItem {
    const known = this.#operations.get(key);
    if (known?.type === "step" && known.ended_at === null) return known;
    const name = nameIn(key);
    const of = this.#toolSteps.has(name) ? "tool" : "agent";
    const rest = {
      status: "running",
      attempts: [],
      error: null,
      usage: null,
      waits_for: null,
      retry_at: null,
    } as const;
    return this.#open({ ...this.#lasting(key), type: "step", name, of, ...rest, attempts: [] });
  }

  #end({ key, result, error, usage }: StepEntry): void {
    if (key.startsWith("session.")) return;
    const item = this.#operations.get(key) ?? this.#stepOf(key);
    if (item.type === "sleep") item.how = "elapsed";
    else if (item.type === "sub_run") {
      // The result of a sub-run is its record.
      const run = error === null ? (result as unknown as Run) : undefined;
      Object.assign(item, { status: run?.status ?? null, error: run?.error ?? error, usage });
    } else if (item.type === "step") {
      const last = item.attempts.at(-1);
      if (last !== undefined) Object.assign(last, { ended_at: this.#at, error });
      if (isModelCall(item.name, result)) {
        item.of = "model";
        for (const name of toolStepsIn(result)) this.#toolSteps.add(name);
      }
      Object.assign(item, {
        status: error === null ? "completed" : "failed",
        error,
        usage,
        waits_for: null,
        retry_at: null,
      });
      if (result !== undefined) item.result = result;
    }
    this.#close(item);
  }

  #ask(entry: AwaitedEntry): void {
    const { await_id, name = null, kind = "input", parts, deadline, of = null, queued_ms } = entry;
    this.#open({
      ...{ ...this.#lasting(await_id, queued_ms), type: "question", name, kind, parts, schema: schemaIn(parts), of },
      ...{
        expires_at: deadline === undefined ? null : isoTime(deadline),
        how: null,
        answer: null,
        reason: null,
        by: null,
      },
    });
  }

  #settle(key: string, how: NonNullable<QuestionItem["how"]>, reply: Partial<QuestionItem> = {}): void {
    const item = this.#operations.get(key);
    if (item?.type === "question") Object.assign(this.#close(item), { how, ...reply });
  }

  #withdraw(key: string): void {
    const item = this.#operations.get(key);
    if (item?.type === "question" || item?.type === "sleep" || item?.type === "receive")
      this.#close(item).how = "withdrawn";
  }

  #causeOf(key: string | null): StepFailure | null {
    const item = key === null ? undefined : this.#operations.get(key);
    return item?.type === "step" ? item.error : null;
  }

  #open<Item extends Open>(item: Item): Item {
    this.#operations.set(item.key, item);
    this.#push(item);
    return item;
  }

  #close<Item extends Open>(item: Item): Item {
    item.ended_at = this.#at;
    item.last_position = this.position;
    if (item.type !== "step" || item.error === null) this.#operations.delete(item.key);
    return item;
  }

  #push(item: TimelineItem): void {
    this.items.push(item);
  }

  #place(): Placed {
    return { position: this.position, last_position: this.position, at: this.#at };
  }

  #lasting(key: string, queued_ms?: number): Lasting {
    const lasting = { ...this.#place(), key, ended_at: null };
    return queued_ms === undefined ? lasting : { ...lasting, queued_ms };
  }
}

/** The JSON Schema of a question's answer; null for none. */
export function schemaIn(parts: readonly MessagePart[]): JsonValue {
  const content = parts.find(({ content_type }) => content_type === SCHEMA_TYPE)?.content;
  return typeof content === "string" ? (parsedJson(content) ?? null) : null;
}

/** Whether a step is a call of a model by `aiSdk(context)`. */
export function isModelCall(name: string, result: JsonValue | undefined): boolean {
  return name === "model" && isJsonObject(result) && "model" in result && "prompt" in result && "answer" in result;
}

/** The names of the steps that call the tools which the answer of a model asks for. */
function toolStepsIn(value: JsonValue | undefined): readonly string[] {
  if (Array.isArray(value)) return value.flatMap(toolStepsIn);
  if (!isJsonObject(value)) return [];
  const { type, toolName, toolCallId } = value;
  if (type === "tool-call") return [`${String(toolName)} ${String(toolCallId)}`];
  return Object.values(value).flatMap(toolStepsIn);
}
