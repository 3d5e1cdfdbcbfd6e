import type { Message } from "cadenza";
import { hashOf } from "../random.ts";
import type { Answer } from "./messages.ts";

/** The answer to a question: always the same, an object or a message. */
export function answerTo(input: string, await_id: string): Answer {
  const hash = hashOf(`${input} ${await_id}`);
  const value = hash % 1_000;
  if (hash & 1024) return { value };
  return { type: "message", message: { role: "user", parts: [{ content: JSON.stringify({ value }) }] } };
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
