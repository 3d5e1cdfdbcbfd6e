import type { ResultEntry } from "../core/log.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { Question } from "./agent-context.ts";
import { readMessage, textPart } from "./input.ts";
import type { OpenQuestion } from "./questions.ts";
import type { Operation } from "./results.ts";
import type { Validated } from "./standard-schema.ts";

/** What a question needs from the agent that asks it. */
export interface AskHost {
  /** How long a question stands that says nothing about it, in milliseconds. */
  readonly awaitTimeoutMs: number;
  onAsk(question: OpenQuestion): void;
  onAnswer(entry: ResultEntry): void;
  /** The log holds an answer that does not fit the question as it is asked now. */
  onUnfitAnswer(key: string): void;
  /** The answer to a request that was yielded: `yield` gives it. */
  goOn(sent: unknown): void;
}

/** Settles the promise of whoever asks. */
interface Settle {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** A question as an operation. Without a promise it is a request that was yielded, and its answer goes back into the loop. */
export class Ask implements Operation, OpenQuestion {
  readonly key: string;
  readonly parts: readonly MessagePart[];
  readonly validate: (answer: AwaitResume) => MaybePromise<Validated>;
  readonly emitted: number;
  readonly #host: AskHost;
  readonly #timeoutMs: number | undefined;
  readonly #fallback: unknown;
  /** Undefined for a request that was yielded. */
  readonly #promise: Settle | undefined;

  constructor(
    host: AskHost,
    key: string,
    parts: readonly MessagePart[],
    validate: (answer: AwaitResume) => MaybePromise<Validated>,
    timeoutMs: number | undefined,
    fallback: unknown,
    emitted: number,
    promise?: Settle,
  ) {
    this.#host = host;
    this.key = key;
    this.parts = parts;
    this.validate = validate;
    this.#timeoutMs = timeoutMs;
    this.#fallback = fallback;
    this.emitted = emitted;
    this.#promise = promise;
  }

  get timeoutMs(): number {
    return this.#timeoutMs ?? this.#host.awaitTimeoutMs;
  }

  get hasDefault(): boolean {
    return this.#fallback !== undefined;
  }

  start(): void {
    this.#host.onAsk(this);
  }

  settle(entry: ResultEntry, live: unknown): unknown {
    this.#host.onAnswer(entry);
    if (entry.type === "timed-out") return this.#fallback;
    if (live !== undefined) return live;
    if (entry.type !== "resumed") throw new TypeError(`${entry.type} is no answer`);
    return this.#settled(entry.answer);
  }

  /** An answer that is read from the log again. */
  async #settled(answer: AwaitResume): Promise<unknown> {
    const outcome = await this.validate(answer);
    if ("value" in outcome) return outcome.value;
    this.#host.onUnfitAnswer(this.key);
    return new Promise(ignore);
  }

  resolve(value: unknown): void {
    if (this.#promise === undefined) this.#host.goOn(value);
    else this.#promise.resolve(value);
  }

  reject(error: unknown): void {
    this.#promise?.reject(error);
  }
}

export function asItCame(answer: AwaitResume): Validated {
  return { value: answer };
}

export function questionParts(question: Question): readonly MessagePart[] {
  return typeof question === "string" ? [textPart(question)] : readMessage("question", question).parts;
}

/** The schema of the answer travels as a part of the question, since clients drop what they do not know of the request itself. */
export function withSchema(
  parts: readonly MessagePart[],
  schema: JsonObject | undefined,
  key: string,
): readonly MessagePart[] {
  if (schema === undefined) return parts;
  const content = JSON.stringify(schema);
  return [...parts, { content_type: "application/schema+json", content, content_encoding: "plain", await_id: key }];
}
