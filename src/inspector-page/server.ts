import { signal } from "@preact/signals";
import type { Start } from "../inspector/api.ts";

/** Below it are the endpoints, wherever the page is mounted. */
const BASE = `${location.pathname.replace(/\/?$/, "/")}api/`;

/** Why the server has refused something. */
export class Refused extends Error {
  /** What is wrong with the value that was sent, and where. */
  readonly issues: readonly Issue[];

  constructor(message: string, issues: readonly Issue[]) {
    super(message);
    this.issues = issues;
  }
}

export interface Issue {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

export function addressOf(path: string, query: Readonly<Record<string, string>> = {}): string {
  const kept = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  return `${BASE}${path}${kept.size === 0 ? "" : `?${kept}`}`;
}

/** Asks the server. Rejects with {@link Refused}. */
export async function ask<Answer>(address: string, body?: object): Promise<Answer> {
  const sent = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(address, body === undefined ? undefined : sent).catch(() => undefined);
  if (response === undefined) throw new Refused("The server does not answer.", []);
  if (!response.ok) throw await refusalIn(response);
  return (await response.json()) as Answer;
}

/** Does something, and says what became of it. */
export function act<Answer = object>(name: string, body: object): Promise<Answer> {
  return ask<Answer>(addressOf(name), body);
}

export async function refusalIn(response: Response): Promise<Refused> {
  const said = (await response.json().catch(() => undefined)) as
    | { readonly message?: string; readonly data?: { readonly issues?: readonly Issue[] } }
    | undefined;
  return new Refused(said?.message ?? `The server answered with ${response.status}.`, said?.data?.issues ?? []);
}

/** What to show of an error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What the page begins with; null until it is there. */
export const start = signal<Start | null>(null);

export async function loadStart(): Promise<void> {
  start.value = await ask<Start>(addressOf("start"));
}
