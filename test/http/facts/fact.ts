import { expect } from "vitest";
import type { Client, Json, Reply, SentEvent } from "../client.ts";
import type { Kept } from "../mounts.ts";

/** One fact of the HTTP interface that clients rely on. */
export interface Fact {
  readonly name: string;
  /** The kind of request that the fact needs; it is not checked with a host that does not pass this kind on. */
  readonly needs?: Kept;
  readonly check: (client: Client) => Promise<void>;
}

export const UNKNOWN_ID = "00000000-0000-4000-8000-000000000000";

export function fact(name: string, check: Fact["check"], needs?: Fact["needs"]): Fact {
  return needs === undefined ? { name, check } : { name, check, needs };
}

export const user = (content: string) => ({ role: "user", parts: [{ content, content_type: "text/plain" }] });

/** A message as the answer to a question. */
export const answer = (content: string) => ({ type: "message", message: user(content) });

/** Expects a refusal with this status, code and reason. */
export function refused(reply: Reply, status: number, code: string, reason?: string): void {
  expect({ status: reply.status, text: reply.text }).toMatchObject({ status });
  expect(reply.json).toMatchObject({ code, message: expect.stringMatching(/\S/) });
  if (reason !== undefined) expect(reply.json["data"]).toMatchObject({ reason });
}

/** The run in an event. */
export function runOf(event: SentEvent | undefined): Json {
  return event?.data["run"] as Json;
}

/** The path of a URL, below the base of the service. */
export function pathOf(client: Client, url: string): string {
  expect(url.startsWith(client.base)).toBe(true);
  return url.slice(client.base.length);
}

/** The id of the run of a session, as soon as one is in progress. */
export async function untilRunOf(client: Client, sessionId: string): Promise<unknown> {
  for (;;) {
    const { json } = await client.get(`/runs?session_id=${sessionId}&status=in-progress`);
    const [run] = json["runs"] as unknown as Json[];
    if (run !== undefined) return run["run_id"];
    // In process, only this gives the agent a turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
  }
}
