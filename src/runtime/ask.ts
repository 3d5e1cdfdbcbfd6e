import type { ResultEntry } from "../core/log.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { Question } from "./agent-context.ts";
import { badArgument, checkKeys, checkObject } from "./check.ts";
import { readItem, textPart } from "./input.ts";
import type { Operation } from "./operations.ts";
import type { OwnQuestion } from "./questions.ts";
import { readAnswer } from "./questions.ts";
import type { StandardSchema, Validated } from "./standard-schema.ts";
import { isStandardSchema } from "./standard-schema.ts";

const SCHEMA_TYPE = "application/schema+json";

/** What a question needs from the agent that asks it. */
export interface AskHost {
  /** How long a question without a `timeoutMs` may be answered, in milliseconds. */
  readonly awaitTimeoutMs: number;
  onAsk(question: OwnQuestion): void;
  /** The log holds an answer that fails the validation of the question as the code asks it now. */
  onUnfitAnswer(key: string): void;
  /** Continues an agent that has yielded an await request. `yield` returns `sent`. */
  goOn(sent: unknown): void;
}

/** A question as an operation. */
abstract class Ask implements Operation, OwnQuestion {
  readonly key: string;
  readonly parts: readonly MessagePart[];
  readonly emitted: number;
  protected readonly host: AskHost;
  readonly #timeoutMs: number | undefined;
  readonly #fallback: unknown;

  constructor(
    host: AskHost,
    key: string,
    parts: readonly MessagePart[],
    timeoutMs: number | undefined,
    fallback: unknown,
    emitted: number,
  ) {
    this.host = host;
    this.key = key;
    this.parts = parts;
    this.#timeoutMs = timeoutMs;
    this.#fallback = fallback;
    this.emitted = emitted;
  }

  get timeoutMs(): number {
    return this.#timeoutMs ?? this.host.awaitTimeoutMs;
  }

  get hasDefault(): boolean {
    return this.#fallback !== undefined;
  }

  start(): void {
    this.host.onAsk(this);
  }

  settle(entry: ResultEntry, live: unknown): unknown {
    if (entry.type === "timed-out") return this.#fallback;
    if (live !== undefined) return live;
    if (entry.type !== "resumed")
      throw new TypeError(`Expected an entry with an answer, found an entry of type ${entry.type}.`);
    return this.#settled(entry.answer);
  }

  /** Validates an answer from the log. */
  async #settled(answer: AwaitResume): Promise<unknown> {
    const outcome = await this.validate(answer);
    if ("value" in outcome) return outcome.value;
    this.host.onUnfitAnswer(this.key);
    return new Promise(ignore);
  }

  abstract validate(answer: AwaitResume): MaybePromise<Validated>;
  abstract resolve(value: unknown): void;
  abstract reject(error: unknown): void;
}

/** The question of an await request that the agent has yielded. */
export class YieldedQuestion extends Ask {
  validate(answer: AwaitResume): Validated {
    return { value: answer };
  }

  resolve(value: unknown): void {
    this.host.goOn(value);
  }

  reject(): void {
    // The execution unwinds an agent that is stopped.
  }
}

/** A question of `context.ask`. */
export class AskedQuestion extends Ask {
  readonly #schema: StandardSchema | undefined;
  #resolve: (value: unknown) => void = ignore;
  readonly answer = new Promise<unknown>((resolve) => {
    this.#resolve = resolve;
  });

  constructor(
    host: AskHost,
    key: string,
    parts: readonly MessagePart[],
    schema: StandardSchema | undefined,
    timeoutMs: number | undefined,
    fallback: unknown,
    emitted: number,
  ) {
    super(host, key, parts, timeoutMs, fallback, emitted);
    this.#schema = schema;
  }

  validate(answer: AwaitResume): MaybePromise<Validated> {
    return readAnswer(answer, this.#schema);
  }

  resolve(value: unknown): void {
    this.#resolve(value);
  }

  /** The rejection is handled here, so that an agent that ignores the promise causes no unhandled rejection. */
  reject(error: unknown): void {
    this.answer.catch(ignore);
    this.#resolve(Promise.reject(error));
  }
}

export function questionParts(question: Question): readonly MessagePart[] {
  if (typeof question === "string") return [textPart(question)];
  return readItem("question", question).parts;
}

/** Adds the schema of the answer as a part of the question, because clients drop unknown fields of the request. */
export function withSchema(
  parts: readonly MessagePart[],
  schema: JsonObject | undefined,
  key: string,
): readonly MessagePart[] {
  if (schema === undefined) return parts;
  const content = JSON.stringify(schema);
  return [...parts, { content_type: SCHEMA_TYPE, content, content_encoding: "plain", await_id: key }];
}

/**
 * The parts of a sub-run's question as its parent asks it. The part with the schema gets the parent's id of the
 * question.
 */
export function passedOnParts(parts: readonly MessagePart[], from: string, to: string): readonly MessagePart[] {
  return parts.map((part) =>
    part.content_type === SCHEMA_TYPE && part["await_id"] === from ? { ...part, await_id: to } : part,
  );
}

/** Throws `invalid_argument` for unknown or invalid options of `context.ask`. */
export function checkAskOptions(options: unknown): void {
  checkObject("options", options);
  checkKeys("options", options, ["schema", "timeoutMs", "default"]);
  const { schema, timeoutMs } = options as { schema?: unknown; timeoutMs?: unknown };
  if (schema !== undefined && !isStandardSchema(schema))
    throw badArgument("options.schema", "a Standard Schema", schema);
  if (timeoutMs !== undefined && !(typeof timeoutMs === "number" && timeoutMs >= 0)) {
    throw badArgument("options.timeoutMs", "a number from 0 to Infinity", timeoutMs);
  }
}
