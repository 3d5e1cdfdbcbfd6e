import type { Call } from "../../http/service.ts";
import { findVisibleSession } from "../../http/visibility.ts";
import type { Message } from "../../protocol/message.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";
import { forEachEvent, runsOf } from "./chat.ts";
import { endsWith } from "./said.ts";

/** How many runs are shown as they were seen. What was said before them is shown as the session has it. */
const RUNS_SHOWN = 50;

/** A run of a chat as a page has seen it. */
export interface SeenRun {
  readonly run_id: string;
  /** Whether it has not ended. */
  readonly isOpen: boolean;
  /** Whether the session holds what was said in it. */
  readonly isInSession: boolean;
  /** What the user said to begin it. */
  readonly inputs: readonly Message[];
}

/** What was said in a chat: its runs, and what the session has from before them. The last run may be in no session. */
export async function seenRuns(
  call: Call,
  session_id: string,
): Promise<{ readonly history: readonly Message[]; readonly runs: readonly SeenRun[] }> {
  const { caller } = call;
  const runs = await runsOf(call, session_id, { limit: RUNS_SHOWN });
  // Read after the runs, it holds what was said in those that had completed by then.
  let history = (await findVisibleSession(caller, session_id))?.history ?? [];
  const seen: SeenRun[] = [];
  for (const [index, { run_id, finished_at }] of runs.entries()) {
    const transcript = await caller.scope.transcript(run_id);
    const isInSession = endsWith(history, transcript);
    // A run that the user has taken back is in the session no more.
    if (!isInSession && index > 0) continue;
    if (isInSession) history = history.slice(0, history.length - transcript.length);
    const inputs = inputsOf(transcript);
    seen.unshift({ run_id, isOpen: finished_at === null && !isInSession, isInSession, inputs });
  }
  return { history, runs: seen };
}

/** What the user said to begin a run, of what was said in it. */
export function inputsOf(transcript: readonly Message[]): readonly Message[] {
  const said = transcript.findIndex(({ role }) => role !== "user");
  return transcript.slice(0, said === -1 ? undefined : said);
}

/** The events of a run so far, without the parts of interrupted attempts. */
export async function seenEvents(call: Call, run_id: string): Promise<readonly DetailedEvent[]> {
  const all: DetailedEvent[] = [];
  await forEachEvent(call, run_id, (event) => all.push(event));
  return withoutTorn(all);
}

/** The events without the parts that do not count, since their step was tried again. */
function withoutTorn(events: readonly DetailedEvent[]): readonly DetailedEvent[] {
  const torn = events.flatMap((event) => (event.type === "output.torn" ? event.events : []));
  if (torn.length === 0) return events;
  const numbers = new Set(
    torn.flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, i) => first + i)),
  );
  return events.filter((event) => event.type !== "message.part" || !numbers.has(event.id));
}
