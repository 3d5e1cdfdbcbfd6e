import { CadenzaError } from "../../core/errors.ts";
import type { RunSummary } from "../../core/record.ts";
import { WireError } from "../../http/errors.ts";
import { visibleEvents } from "../../http/event-stream.ts";
import type { HttpSettings } from "../../http/options.ts";
import { MIB } from "../../http/options.ts";
import type { Call } from "../../http/service.ts";
import { askAbout } from "../../http/service.ts";
import { checkAgent, checkSession } from "../../http/visibility.ts";
import { namedUuid } from "../../runtime/agent/uuid.ts";
import type { DetailedEvent, EventStream } from "../../runtime/log/event-stream.ts";
import type { ListRunsQuery, RunDetails } from "../../runtime/runs/requests.ts";

/* A chat is a session under the id that its pages give it. Its runs are those of one agent. */

/** A page sends the whole chat with each message, and the files in it. */
export const chatLimits = { maxBodyBytes: 10 * MIB };

/** Refuses a chat that does not exist for the caller. Gives the id of its session. */
export async function checkChat({ caller, parameter: name }: Call, chatId: string): Promise<string> {
  checkAgent(caller, name);
  await caller.scope.getAgent(name);
  const session_id = caller.scope.sessionId(chatId);
  await checkSession(caller, session_id);
  return session_id;
}

/** The call with a chat that its body has named: the host learns of the chat with what it is asked later. */
export function inChat<Settings extends HttpSettings>(
  call: Call<Settings>,
  chat_id: string,
  session_id: string,
): Call<Settings> {
  const { ask } = call.caller;
  if (ask === undefined) return call;
  return { ...call, caller: { ...call.caller, ask: (about) => ask({ chat_id, session_id, ...about }) } };
}

/** Asks the host whether the client may talk in the chat of a call. */
export async function admitTalk<Settings extends HttpSettings>(call: Call<Settings>): Promise<Call<Settings>> {
  return askAbout(call, { action: "create", agent_name: call.parameter });
}

/** The details of a run of this chat. Any other run does not exist here. */
export async function detailsIn(call: Call, session_id: string, run_id: string): Promise<RunDetails> {
  const details = await call.caller.scope.details(run_id);
  if (details.session_id === session_id && details.agent_name === call.parameter) return details;
  throw new WireError(404, "run_not_found", `There is no run ${run_id}.`);
}

const OPEN = ["created", "in-progress", "awaiting", "cancelling"] as const;

/** The runs of the chat that have not ended, the newest first. */
export function openRuns(call: Call, session_id: string): Promise<readonly RunSummary[]> {
  return runsOf(call, session_id, { status: OPEN });
}

/** The runs of the chat, the newest first. */
export async function runsOf(
  { caller, parameter: agent_name }: Call,
  session_id: string,
  which: Pick<ListRunsQuery, "status" | "limit">,
): Promise<readonly RunSummary[]> {
  return caller.scope.listRuns({ session_id, agent_name, roots: true, ...which });
}

/**
 * Goes through the events of a run, with details: those so far, or until it rests or the client leaves. Other requests get
 * turns of the event loop meanwhile.
 */
export async function forEachEvent(
  { caller, service, request }: Pick<Call<HttpSettings>, "caller" | "service" | "request">,
  run_id: string,
  take: (event: DetailedEvent) => unknown,
  until: "now" | "rest" = "now",
): Promise<void> {
  const events = visibleEvents(caller, caller.scope.events(run_id, { until, detail: true }) as EventStream);
  const stopListening = request.onLeave(() => events.return());
  try {
    let count = 0;
    for (let next = await events.poll(); next.done !== true; next = await events.poll()) {
      take(next.value);
      count += 1;
      if (count % EVENTS_A_TURN === 0) await service.clock.turn();
    }
  } finally {
    stopListening();
  }
}

const EVENTS_A_TURN = 1_000;

/** Cancels runs, those that have not ended meanwhile. */
export async function cancelRuns(
  { caller }: Pick<Call, "caller">,
  runs: readonly { readonly run_id: string }[],
): Promise<void> {
  for (const { run_id } of runs) {
    try {
      await caller.scope.cancel(run_id);
    } catch (error) {
      if (!CadenzaError.is(error) || error.code !== "run_finished") throw error;
    }
  }
}

/** The headers of a response without a body. */
export const noContentHeaders = { "cache-control": "no-store", "x-content-type-options": "nosniff" };

/** The namespace of the UUIDs that stand for long keys. It must never change. */
const LONG_KEYS = "5a1dcb4e-8a1c-4f0f-9a55-1f3b2f9f6a31";

/**
 * The idempotency key of what a user has done in a chat. `what` names it among all that is done there: the id of a message
 * or, for what has no message of its own, a word and an id. Undefined: the page has given it no id.
 */
export function keyOf(
  chatId: string,
  ...what: readonly [string] | readonly [kind: string, id: string]
): string | undefined {
  if (what.at(-1) === "") return undefined;
  // Each of them may hold any character.
  const key = JSON.stringify([chatId, ...what]);
  return key.length > MAX_KEY_LENGTH ? `chat ${namedUuid(LONG_KEYS, key)}` : key;
}

const MAX_KEY_LENGTH = 255;
