import type { Issue } from "../../core/errors.ts";
import { withinLimits } from "../../http/body.ts";
import { asUser } from "../../http/claims.ts";
import { unfitAt, WireError } from "../../http/errors.ts";
import { baseUrl } from "../../http/service.ts";
import { checkVisibleSession, findVisibleSession } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { JsonLimits } from "../../protocol/json-text.ts";
import { checkTree } from "../../protocol/json-text.ts";
import type { Message } from "../../protocol/message.ts";
import { messageSchema } from "../../protocol/message.ts";
import type { PostedSession } from "../../protocol/session.ts";
import type { Session } from "../../runtime/runs/requests.ts";
import type { AcpCall } from "./options.ts";
import { checkCounts, readWith } from "./requests.ts";
import { ResourceFetcher } from "./resource-fetcher.ts";

const FETCHED_AT_ONCE = 10;

/** The contents of a session that a client has brought along. */
export interface SessionContents {
  readonly history: readonly Message[];
  readonly state: JsonValue;
}

/** `GET /sessions/{id}`: where the contents of a session are. */
export async function getSession(call: AcpCall): Promise<WireResponse> {
  const session = await call.caller.scope.getSession(call.parameter);
  await checkVisibleSession(call.caller, session);
  const { id, history, state } = session;
  const resources = `${baseUrl(call)}/resources/${id}`;
  return json(200, {
    id,
    history: history.map((_, index) => `${resources}.${index}`),
    ...(state !== null && { state: `${resources}.state` }),
  });
}

/** `GET /resources/{id}`: a message of a session, or its state. */
export async function getResource({ caller, parameter }: AcpCall): Promise<WireResponse> {
  const [id, which] = splitResourceId(parameter);
  const found = id === undefined ? undefined : contentOf(await findVisibleSession(caller, id), which);
  if (found === undefined) throw missingResource(parameter);
  return json(200, found);
}

/**
 * Reads a session that a client brings along: contents of this service from the store, the others from where the host
 * allows it.
 */
export async function loadSession(call: AcpCall, { history, state }: PostedSession): Promise<SessionContents> {
  const { service, caller } = call;
  const { sessions, limits } = service.settings;
  if (history.length > limits.maxMessages)
    throw unfitAt(["session", "history"], `expected at most ${limits.maxMessages} messages`);
  const own = `${baseUrl(call)}/resources/`;
  const known = new Map<string, Promise<Session | undefined>>();
  const fetcher = new ResourceFetcher(sessions, limits, service);
  const load = async (url: string, path: Issue["path"]): Promise<unknown> => {
    if (!url.startsWith(own)) {
      const foreign = await fetcher.fetch(url, path);
      checkCounts(path, [foreign], limits);
      return foreign;
    }
    const [id, which] = splitResourceId(url.slice(own.length));
    const session = id === undefined ? undefined : (known.get(id) ?? findVisibleSession(caller, id));
    if (id !== undefined && session !== undefined) known.set(id, session);
    const found = contentOf(await session, which);
    if (found === undefined) throw unfitAt(path, "there is no such resource");
    return found;
  };
  try {
    const messages: Message[] = [];
    for (let from = 0; from < history.length; from += FETCHED_AT_ONCE) {
      const some = history.slice(from, from + FETCHED_AT_ONCE).map(async (url, index) => {
        const path = ["session", "history", from + index];
        return readMessage(await load(url, path), path, limits);
      });
      messages.push(...(await Promise.all(some)));
    }
    if (state === undefined) return { history: messages, state: null };
    const value = (await load(state, ["session", "state"])) as JsonValue;
    withinLimits("The state of the session", () => checkTree(value, limits));
    return { history: messages, state: value };
  } finally {
    fetcher.close();
  }
}

function readMessage(value: unknown, path: Issue["path"], limits: JsonLimits): Message {
  withinLimits("A message of the session", () => checkTree(value, limits));
  const message = readWith(messageSchema, value, path);
  return message.role === "user" ? asUser(message) : message;
}

/** The id of a resource is that of its session and, after a dot, an index in its history, or `state`. */
function splitResourceId(id: string): readonly [session: string | undefined, which: string] {
  const match = /^([0-9a-f-]{36})\.(0|[1-9]\d{0,9}|state)$/.exec(id);
  return [match?.[1], match?.[2] ?? ""];
}

function contentOf(session: Session | undefined, which: string): unknown {
  if (which !== "state") return session?.history[Number(which)];
  return session?.state ?? undefined;
}

function missingResource(id: string): WireError {
  return new WireError(404, "resource_not_found", `There is no resource ${JSON.stringify(id)}.`);
}
