import { copyJson } from "../core/json.ts";
import type { IntentEntry } from "../core/log.ts";
import { isReceive, nameIn } from "../core/operation-keys.ts";
import type { RunState } from "../core/state.ts";
import { isFinal, openQuestions } from "../core/state.ts";
import type { JsonValue } from "../protocol/json.ts";
import { badArgument, checkKeys, checkObject, checkText } from "../runtime/agent/check.ts";

/**
 * The messages for an agent: a list, or a function of the name that it receives, which returns the data. Each is sent
 * when the agent waits for a message of its name. Undefined, and nothing in the list: no message comes.
 */
export type Messages = readonly TestMessage[] | ((name: string, index: number) => unknown);

/** A message for an agent, as `send` takes it. */
export interface TestMessage {
  readonly name: string;
  /** JSON. */
  readonly data: unknown;
}

/** A message for one receive. */
export interface Delivery {
  readonly run_id: string;
  readonly name: string;
  readonly data: JsonValue;
  readonly idempotencyKey: string;
}

/** A sleep or a receive that is open. */
export interface OpenWait {
  readonly run_id: string;
  readonly wait: IntentEntry;
}

/** What identifies a wait in every execution of the same agent. */
export function waitId({ run_id, wait }: OpenWait): string {
  return `${run_id}/${wait.key}`;
}

/** Gives each receive that waits the message that the test has for it. */
export class Supply {
  readonly #messages: Messages;
  /** By receive; null for one that gets none. */
  readonly #deliveries = new Map<string, Delivery | null>();
  readonly #used = new Set<TestMessage>();
  readonly #delivered = new Set<Delivery>();

  constructor(messages: Messages) {
    this.#messages = messages;
  }

  /** The message for an open wait. Null: it gets none. */
  for(open: OpenWait): Delivery | null {
    const id = waitId(open);
    const { run_id, wait } = open;
    const known = this.#deliveries.get(id);
    if (known !== undefined) return known;
    const name = nameIn(wait.key);
    const data = isReceive(wait.key) ? this.#dataFor(name) : undefined;
    const idempotencyKey = `message-${this.#deliveries.size + 1}`;
    const delivery = data === undefined ? null : { run_id, name, data, idempotencyKey };
    this.#deliveries.set(id, delivery);
    return delivery;
  }

  /** The first message that is to be sent. */
  next(waits: readonly OpenWait[]): Delivery | undefined {
    for (const wait of waits) {
      const delivery = this.for(wait);
      if (delivery !== null && !this.#delivered.has(delivery)) return delivery;
    }
    return undefined;
  }

  /** A receive that waits for ever, since it has neither a message nor a deadline. */
  lacking(waits: readonly OpenWait[]): OpenWait | undefined {
    return waits.find((open) => isReceive(open.wait.key) && open.wait.until == null && this.for(open) === null);
  }

  onDelivered(delivery: Delivery): void {
    this.#delivered.add(delivery);
  }

  /** The messages of the list that an open receive has got. */
  get used(): ReadonlySet<TestMessage> {
    return this.#used;
  }

  /** The messages that were sent. */
  get delivered(): readonly Delivery[] {
    return [...this.#delivered];
  }

  #dataFor(name: string): JsonValue | undefined {
    const messages = this.#messages;
    if (typeof messages === "function") return copyJson(messages(name, this.#deliveries.size));
    const message = messages.find((one) => one.name === name && !this.#used.has(one));
    if (message === undefined) return undefined;
    this.#used.add(message);
    return copyJson(message.data);
  }
}

/** The sleeps and receives that are open, run by run. */
export function openWaits(states: Iterable<RunState>): OpenWait[] {
  return [...states].flatMap(({ run_id, status, waits }) =>
    isFinal(status) ? [] : [...(waits?.values() ?? [])].map((wait) => ({ run_id, wait })),
  );
}

/** When the first open question expires, in milliseconds since 1970; `Infinity` for never. */
export function nextExpiry(states: Iterable<RunState>): number {
  const open = [...states].filter(({ status }) => !isFinal(status)).flatMap((state) => [...openQuestions(state)]);
  return Math.min(Number.POSITIVE_INFINITY, ...open.map(({ asked }) => asked.deadline ?? Number.POSITIVE_INFINITY));
}

/** Throws `invalid_argument` for anything else than messages. */
export function checkMessages(messages: unknown): void {
  if (typeof messages === "function") return;
  if (!Array.isArray(messages)) throw badArgument("options.messages", "a list, or a function of the name", messages);
  for (const [index, message] of messages.entries()) {
    const name = `options.messages[${index}]`;
    checkObject(name, message);
    checkKeys(name, message, ["name", "data"]);
    checkText(`${name}.name`, (message as TestMessage).name);
    if (copyJson((message as TestMessage).data) === undefined)
      throw badArgument(`${name}.data`, "a JSON value", (message as TestMessage).data);
  }
}

/** What is missing, and how to give it. */
export function describeLacking(tool: string, { wait: { key } }: OpenWait): string {
  const name = JSON.stringify(nameIn(key));
  return `${tool}: the agent waits for ${key}, and there is no message ${name} for it. Add one: { messages: [{ name: ${name}, data: … }] }.`;
}
