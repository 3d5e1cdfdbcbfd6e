import { expect } from "vitest";
import type { Client, Json, Reply, SentEvent } from "../client.ts";
import type { Kept } from "../mounts.ts";

/** One fact on the interface that clients rely on. */
export interface Fact {
  readonly name: string;
  /** What the service has to be given for it; a host that keeps it is not asked. */
  readonly needs?: Kept;
  readonly check: (client: Client) => Promise<void>;
}

export const UNKNOWN_ID = "00000000-0000-4000-8000-000000000000";

export function fact(name: string, check: Fact["check"], needs?: Fact["needs"]): Fact {
  return needs === undefined ? { name, check } : { name, check, needs };
}

export const user = (content: string) => ({ role: "user", parts: [{ content, content_type: "text/plain" }] });

/** A message as the answer to what a run asks. */
export const answer = (content: string) => ({ type: "message", message: user(content) });

/** An answer that refuses: its status, its code, and the reason in its data. */
export function refused(reply: Reply, status: number, code: string, reason?: string): void {
  expect({ status: reply.status, text: reply.text }).toMatchObject({ status });
  expect(reply.json).toMatchObject({ code, message: expect.stringMatching(/\S/) });
  if (reason !== undefined) expect(reply.json["data"]).toMatchObject({ reason });
}

/** The run that an event tells of. */
export function runOf(event: SentEvent | undefined): Json {
  return event?.data["run"] as Json;
}

/** The path of a URL of the place, from where the place begins. */
export function pathOf(client: Client, url: string): string {
  expect(url.startsWith(client.base)).toBe(true);
  return url.slice(client.base.length);
}

/** The id of the run of a session, as soon as there is one that is at work. */
export async function untilRunOf(client: Client, sessionId: string): Promise<unknown> {
  for (;;) {
    const { json } = await client.get(`/runs?session_id=${sessionId}&status=in-progress`);
    const [run] = json["runs"] as unknown as Json[];
    if (run !== undefined) return run["run_id"];
    // In process nothing else makes room for the agent.
    await new Promise((resolve) => setImmediate(resolve));
  }
}
