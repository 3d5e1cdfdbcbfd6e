import { createRequire } from "node:module";
import type * as AcpSdk from "acp-sdk";
import { expect } from "vitest";
import type { Json } from "./client.ts";

// The published ES module of the client does not load.
const sdk = createRequire(import.meta.url)("acp-sdk") as typeof AcpSdk;

/** The part of the official client's schemas that is used here. */
interface Schema {
  safeParse(value: unknown): { readonly success: boolean; readonly error?: unknown };
}

/** Checks an answer with the schemas of the official TypeScript client. */
export function checkWithSdk(
  method: string,
  path: string,
  status: number,
  json: Json | undefined,
  events: readonly { readonly data: unknown }[],
): void {
  for (const { data } of events) if (isKnown(data)) accept(sdk.Event, data);
  const schema = status >= 400 ? sdk.ErrorModel : schemaOf(method, path.split("?")[0]?.replace(/\/+$/, "") ?? "");
  if (json === undefined || schema === undefined) return;
  const list = json["events"] as unknown;
  accept(schema, Array.isArray(list) ? { ...json, events: list.filter(isKnown) } : json);
}

/** Whether the client knows events of this kind: it knows none of the details, which it has to ask for. */
function isKnown(event: unknown): boolean {
  return typeof event !== "object" || event === null || !("position" in event);
}

function schemaOf(method: string, path: string): Schema | undefined {
  if (path === "/ping") return sdk.PingResponse;
  if (path === "/agents") return sdk.AgentsListResponse;
  if (path.startsWith("/agents/")) return sdk.AgentsReadResponse;
  if (/^\/runs\/[^/]+\/events$/.test(path)) return sdk.RunEventsListResponse;
  // The client can neither list runs nor read what is not part of ACP.
  const isRun = /^\/runs(\/[^/]+(\/cancel)?)?$/.test(path);
  return isRun && `${method} ${path}` !== "GET /runs" ? sdk.Run : undefined;
}

function accept(schema: Schema, value: unknown): void {
  const { error } = schema.safeParse(value);
  expect(error, JSON.stringify(value)).toBeUndefined();
}
