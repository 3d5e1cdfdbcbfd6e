import { evolve } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import { isSubRun, nameIn } from "../core/operation-keys.ts";
import type { RunState } from "../core/state.ts";
import { activeMs, initialState } from "../core/state.ts";
import type { Usage } from "../protocol/extensions.ts";
import { isJsonObject } from "../protocol/json.ts";
import { readUsage } from "../runtime/agent/usage.ts";
import { isModelCall } from "./timeline-fold.ts";

/** Tokens that were used within a minute, with the calls of the model that used them. */
export interface SpentTokens {
  /** In milliseconds since the epoch. */
  readonly at: number;
  /** As its provider names it; null: the agent reported the tokens without a recorded call of a model. */
  readonly model: string | null;
  calls: number;
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
}

/** How long a question was open, in milliseconds since the epoch. */
export interface OpenTime {
  readonly from: number;
  /** Null while it is open. */
  to: number | null;
}

/** What the figures count of a run. Its sub-runs count for themselves. */
export interface RunFacts {
  readonly tenant: string;
  readonly agent_name: string;
  readonly version: string | null;
  readonly created_at: number;
  /** Null before its agent was called. */
  readonly started_at: number | null;
  /** Null before its end. */
  readonly ended_at: number | null;
  readonly outcome: "completed" | "failed" | "cancelled" | null;
  /** How long its agent was at work; null before its end. */
  readonly active_ms: number | null;
  /** Its own questions. */
  readonly questions: readonly OpenTime[];
  readonly spent: readonly SpentTokens[];
}

const MINUTE_MS = 60_000;

/** Folds the log of a run to what the figures count. */
export class RunFactsFold {
  readonly #tenant: string;
  readonly #state: RunState = initialState("");
  readonly #open = new Map<string, OpenTime>();
  #questions: OpenTime[] = [];
  #spent: SpentTokens[] = [];
  /** What recorded calls of models have used, and the agent has not reported yet. */
  #unreported = { input: 0, output: 0, total: 0 };

  constructor(tenant: string) {
    this.#tenant = tenant;
  }

  /** The position behind the last entry. */
  get position(): number {
    return this.#state.position;
  }

  add(entry: Entry): void {
    evolve(this.#state, entry);
    if (!this.#state.last_counts) return;
    if (entry.type === "step" && isSubRun(entry.key)) this.#report(entry.at, entry.own_usage);
    else if ("usage" in entry) this.#report(entry.at, entry.usage);
    switch (entry.type) {
      case "forked":
        // The entries before were written by the origin of the fork.
        this.#open.clear();
        this.#questions = [];
        this.#spent = [];
        this.#unreported = { input: 0, output: 0, total: 0 };
        return;
      case "step":
        if (isModelCall(nameIn(entry.key), entry.result)) this.#call(entry.at, entry.result);
        return;
      case "awaited":
        if (entry.of === undefined) this.#ask(entry.await_id, entry.at);
        return;
      case "resumed":
      case "declined":
      case "withdrawn":
        this.#settle(entry.await_id, entry.at);
        return;
      case "timed-out":
        if (entry.await_id !== null && entry.defaulted) this.#settle(entry.await_id, entry.at);
        else this.#settleAll(entry.at);
        return;
      case "exceeded":
      case "cancel-requested":
      case "continued":
      case "ended":
        this.#settleAll(entry.at);
        return;
      default:
    }
  }

  /** Undefined before the first entry. */
  facts(): RunFacts | undefined {
    const { created, started, ended } = this.#state;
    if (created === null) return undefined;
    return {
      tenant: this.#tenant,
      agent_name: created.agent_name,
      version: created.version ?? null,
      created_at: created.at,
      started_at: started?.at ?? null,
      ended_at: ended?.at ?? null,
      outcome: ended?.outcome ?? null,
      active_ms: ended === null ? null : activeMs(this.#state, ended.at),
      questions: this.#questions,
      spent: this.#spent,
    };
  }

  #ask(awaitId: string, from: number): void {
    const question = { from, to: null };
    this.#open.set(awaitId, question);
    this.#questions.push(question);
  }

  #settle(awaitId: string, at: number): void {
    const question = this.#open.get(awaitId);
    if (question === undefined) return;
    question.to = Math.max(at, question.from);
    this.#open.delete(awaitId);
  }

  #settleAll(at: number): void {
    for (const awaitId of this.#open.keys()) this.#settle(awaitId, at);
  }

  /** What the agent reports may repeat what its recorded calls have used. */
  #report(at: number, usage: Usage | null | undefined): void {
    if (usage == null) return;
    const { input_tokens, output_tokens, total_tokens } = usage;
    const { input, output, total } = this.#unreported;
    this.#spend(at, null, {
      calls: 0,
      input_tokens: Math.max(0, input_tokens - input),
      output_tokens: Math.max(0, output_tokens - output),
      total_tokens: Math.max(0, total_tokens - total),
    });
    this.#unreported = {
      input: Math.max(0, input - input_tokens),
      output: Math.max(0, output - output_tokens),
      total: Math.max(0, total - total_tokens),
    };
  }

  #call(at: number, result: unknown): void {
    const { model, usage } = modelCallIn(result);
    const { input_tokens, output_tokens, total_tokens } = usage;
    this.#spend(at, model, { calls: 1, input_tokens, output_tokens, total_tokens });
    const { input, output, total } = this.#unreported;
    this.#unreported = { input: input + input_tokens, output: output + output_tokens, total: total + total_tokens };
  }

  #spend(at: number, model: string | null, used: Omit<SpentTokens, "at" | "model">): void {
    if (used.calls + used.total_tokens === 0) return;
    const last = this.#spent.findLast((spent) => spent.model === model);
    const isSameMinute = last !== undefined && Math.floor(last.at / MINUTE_MS) === Math.floor(at / MINUTE_MS);
    if (!isSameMinute) this.#spent.push({ at, model, ...used });
    else {
      last.calls += used.calls;
      last.input_tokens += used.input_tokens;
      last.output_tokens += used.output_tokens;
      last.total_tokens += used.total_tokens;
    }
  }
}

const nothingUsed = { input_tokens: 0, output_tokens: 0, total_tokens: 0 };

/** Which model a recorded call has called, and what it has used. Both are as the process that recorded it wrote them. */
function modelCallIn(result: unknown): { readonly model: string; readonly usage: typeof nothingUsed } {
  const { model, answer } = isJsonObject(result) ? result : {};
  const id = isJsonObject(model) ? model["id"] : model;
  const chunks: readonly unknown[] = Array.isArray(answer) ? answer : [answer];
  const usage = chunks.findLast((chunk) => isJsonObject(chunk) && isJsonObject(chunk["usage"]));
  return { model: typeof id === "string" ? id : "unknown", usage: usedBy(isJsonObject(usage) ? usage["usage"] : null) };
}

function usedBy(usage: unknown): typeof nothingUsed {
  try {
    return readUsage(usage);
  } catch {
    // The provider has counted nothing.
    return nothingUsed;
  }
}
