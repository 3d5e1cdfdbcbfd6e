import type { Message } from "cadenza";
import { hashOf } from "./random.ts";
import { markOf } from "./tenants.ts";

/* The answers to the questions of programs. */

export type Answer =
  | { readonly value: number; readonly of?: string }
  | {
      readonly type: "message";
      readonly message: { readonly role: "user"; readonly parts: readonly [{ readonly content: string }] };
    };

/** What the client says to a question. */
export type Reply =
  | { readonly await_resume: Answer }
  /** It declines to answer. */
  | { readonly decline: { readonly reason?: string } };

/** The text of a question that is left to its deadline, and the answer that it gets then. */
export const NO_ANSWER = "Is there an answer?";
export const BY_DEFAULT = { value: 5 };

/** The answer to a question of a run with this name: always the same, an object or a message. `tenant`: who gives it. */
export function answerTo(name: string, await_id: string, tenant?: string): Answer {
  const hash = hashOf(`${name} ${await_id}`);
  const answer = { value: hash % 1_000, ...(tenant !== undefined && { of: tenant }) };
  if (hash & 1024) return answer;
  return { type: "message", message: { role: "user", parts: [{ content: JSON.stringify(answer) }] } };
}

/** Why the client declines a question. Undefined: it answers. Always the same for the same question. */
export function declineOf(name: string, await_id: string, tenant?: string): { readonly reason?: string } | undefined {
  const hash = hashOf(`decline ${name} ${await_id}`);
  if (hash % 8 !== 0) return undefined;
  return hash % 16 === 0 ? {} : { reason: `${markOf(tenant)}not now` };
}

/** What the client says to a question of a run with this name: it answers or declines, always the same. */
export function replyTo(name: string, await_id: string): Reply {
  const decline = declineOf(name, await_id);
  return decline === undefined ? { await_resume: answerTo(name, await_id) } : { decline };
}

/** A message to a run. */
export interface Mail {
  readonly name: string;
  readonly data: { readonly value: number; readonly of?: string } | string;
  readonly idempotencyKey: string;
}

/** What a receive of a program gets that has had no message in time. */
export const NO_MAIL = { value: 6 };

/** The message with this number and name to a run: always the same. Some do not fit the schema. `tenant`: who sends it. */
export function mailTo(run: string, name: string, number: number, tenant?: string): Mail {
  const idempotencyKey = `${name} ${number}`;
  const hash = hashOf(`${run} ${idempotencyKey}`);
  const data = { value: hash % 1_000, ...(tenant !== undefined && { of: tenant }) };
  return { name, data: hash % 8 === 0 ? `${markOf(tenant)}no ${number}` : data, idempotencyKey };
}

/** The number in an answer, however it comes: as an object, as a message, or as what a `yield` gives. */
export function numberIn(answer: unknown): number {
  const { value, parts, message } = answer as {
    readonly value?: number;
    readonly parts?: Message["parts"];
    readonly message?: Message;
  };
  return value ?? (JSON.parse((parts ?? message?.parts)?.[0]?.content ?? "{}") as { readonly value: number }).value;
}
