import type { AwaitResume, Message } from "cadenza";
import { hashOf } from "./random.ts";
import { markOf } from "./tenants.ts";

/* The answers to the questions of programs. */

/** What the client says to a question: it answers, or declines to. */
export type Reply = { readonly await_resume: AwaitResume } | { readonly decline: { readonly reason?: string } };

/** The text of a question that is left to its deadline, and the answer that it gets then. */
export const NO_ANSWER = "Is there an answer?";
export const BY_DEFAULT = { value: 5 };

/**
 * What the client says to a question of a run with this name: it answers or declines, always the same. The answer is an
 * object or a message. `tenant`: who gives it.
 */
export function replyTo(name: string, key: string, tenant?: string): Reply {
  const declines = hashOf(`decline ${name} ${key}`);
  if (declines % 16 === 0) return { decline: {} };
  if (declines % 8 === 0) return { decline: { reason: `${markOf(tenant)}not now` } };
  return { await_resume: answerTo(name, key, tenant) };
}

export function answerTo(name: string, key: string, tenant?: string): AwaitResume {
  const hash = hashOf(`${name} ${key}`);
  const answer = { value: hash % 1_000, ...(tenant !== undefined && { of: tenant }) };
  if (hash & 1024) return answer;
  return { type: "message", message: { role: "user", parts: [{ content: JSON.stringify(answer) }] } };
}

/** As {@link replyTo}, for a question that a run with this name shows: it is its own, or one of a run below it. */
export function replyBelow(name: string, await_id: string, tenant?: string): Reply {
  const keys = await_id.split("/");
  const key = keys.pop() ?? "";
  return replyTo([name, ...keys.map(numberOf)].join("."), key, tenant);
}

/** The number in the key of a sub-run, which its name ends with, behind that of a later generation. */
export function numberOf(key: string): string {
  return key.slice(key.lastIndexOf("#") + 1).replace(".", "-");
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
