import type { AdminFigures } from "../admin/figures.ts";
import type { AdminTimeline } from "../admin/one-run.ts";
import type { AdminPause } from "../admin/pauses.ts";
import type {
  AdminBacklog,
  AdminBlocked,
  AdminQuestion,
  AdminRun,
  AdminTree,
  AdminUnregistered,
  AdminVersion,
  AdminWorker,
} from "../admin/records.ts";
import type { QuestionItem, TimelineItem } from "../admin/timeline.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { RuntimeStats } from "../runtime/api/agent-runtime.ts";
import type { Schedule } from "../schedules/schedules.ts";
import type { CodeOfRun } from "./code-of-run.ts";

export type { CodeOfRun };

/*
 * What the inspector's page and its server say to each other. Paths are below the mount. `tenant` may always be left
 * out: a user of one tenant has that one, any other user the empty one; in lists, all.
 *
 * GET "" gives the page, api/start `Start`, api/log?run_id=&cursor=&limit= a page of the raw log,
 * api/cassette?run_id= a cassette for `replay` of cadenza/testing, api/question?run_id=&await_id= an `AskedQuestion`,
 * api/code?run_id= a `CodeOfRun`, if the inspector has a playground, and api/answers `Answers`, with the parameters of a list.
 *
 * Feeds are server-sent events without names, below api/feed/: runs and failures give `ListEvent`s, with the
 * parameters tenant, agent, version (empty: none), status (by commas), label=name:value (repeated), id (its beginning),
 * roots, after and before (times), and limit; questions `InboxEvent`s, with tenant, agent, kind, sort (oldest, newest,
 * deadline, agent or tenant) and limit; stuck `StuckEvent`s, figures `FiguresEvent`s, run?run_id= `RunEvent`s,
 * family?run_id= `FamilyEvent`s, several?run_ids= (by commas, at most 50) `SeveralEvent`s, session?session_id=
 * `SessionEvent`s, schedules `SchedulesEvent`s, and history?over=&by= `HistoryEvent`s, also with tenant, agent and version.
 *
 * POST takes JSON, with `tenant` and `run_id` unless said otherwise, and gives {} unless said otherwise:
 *   api/create { tenant?, agent_name, input, session_id? } gives { tenant, run_id, session_id }. The input is a value for
 *     the agent's schema; without one a text, a message or a list of messages
 *   api/answer { await_id, answer }: a text, or a value for the schema
 *   api/decline { await_id, reason? }, api/cancel { }, api/delete { }, api/send { name, data }
 *   api/pause { agent_name, version: text or null, now: true or left out }, api/resume { agent_name, version }, without `tenant` and `run_id`, give { changed }
 *   api/pause-schedule, api/resume-schedule { tenant?, id }, api/trigger-schedule { tenant?, id, key }, without `run_id`. `key`
 *     makes a trigger that is repeated one
 *   api/cancel-many, api/retry-many { filters } and api/move-many { filters, version } act on the runs of a list: `filters` are
 *     its parameters, as in an address. They give an `AdminAct`, and so does GET api/many?run_id= of the act; api/stop-many { run_id } stops it
 *   api/fork { before?, version?, keys?, stub?, except? } gives { tenant, run_id }. `before` is the key of an operation, as items
 *     have it; `stub` and `except`, of a playground, are those of `StubbedSteps`
 *
 * A refusal has { code, message, data: { reason, issues? } }.
 */

/** What the page needs to begin with. */
export interface Start {
  /** The only tenant that the caller may see; null: all tenants. */
  readonly tenant: string | null;
  /** Whether the caller may cancel, fork, delete and create runs, and send messages. */
  readonly may_write: boolean;
  /** Whether the caller may answer questions, or some of them. */
  readonly may_answer: boolean;
  /** The agents that this process knows, each with the version that new runs get. */
  readonly agents: readonly InspectedAgent[];
  /** Whether the inspector was given schedules. */
  readonly has_schedules: boolean;
  /** Whether runs can be forked from where edited code differs. */
  readonly has_playground: boolean;
}

/** An agent of which runs can be created. */
export interface InspectedAgent {
  readonly agent_name: string;
  readonly version: string | null;
  readonly description: string;
  readonly durable: boolean;
  /** The JSON Schema of its input; null: messages. */
  readonly input_schema: JsonValue;
  /** The names of the messages that it declares. */
  readonly messages: readonly string[];
}

/** An event of a feed of a list. The first one, also after each reconnection, is a page. */
export type ListEvent<Item> =
  | {
      readonly type: "page";
      readonly items: readonly Item[];
      /** Whether there are more than the limit. */
      readonly more: boolean;
      /** The processes; empty for a caller of one tenant. */
      readonly workers: readonly AdminWorker[];
    }
  | {
      readonly type: "change";
      readonly changed: readonly Item[];
      /** New items, the newest first: they come before all others. */
      readonly added: readonly Item[];
      /** The ids of items that are no longer in the list. */
      readonly gone: readonly string[];
      /** Left out: as before. */
      readonly workers?: readonly AdminWorker[];
    };

/** An open question in the inbox, as far as its list shows it. */
export interface InboxQuestion extends Omit<AdminQuestion, "schema" | "parts" | "root_run_id"> {
  /** The first 200 characters of what it says. */
  readonly text: string;
}

/** The inbox: whole, whenever it differs. */
export interface InboxEvent {
  readonly type: "inbox";
  /** In the order that was asked for, up to the limit. */
  readonly items: readonly InboxQuestion[];
  /** How many questions match the filters. */
  readonly total: number;
  /** How many questions are open, whatever the filters, by agent and by tenant. */
  readonly agents: readonly { readonly name: string; readonly questions: number }[];
  readonly tenants: readonly { readonly name: string; readonly questions: number }[];
  /** Whether more runs wait than an inbox looks at: the newest 20,000. */
  readonly more: boolean;
  /** How many waiting runs were read, while not all of them were; null: all were. */
  readonly reading: number | null;
}

/** A question with its context. */
export interface AskedQuestion {
  readonly run: AdminRun;
  /** Null: the run has not asked it. */
  readonly question: QuestionItem | null;
  readonly input: readonly Message[];
  /** What the run did last before it asked, at most 8 items. */
  readonly before: readonly TimelineItem[];
}

/** What was answered in the newest 200 runs, as their last 100 entries say. */
export interface Answers {
  /** The last answer first. */
  readonly answers: readonly AnsweredQuestion[];
  /** How many runs were looked at, and whether there are more. */
  readonly runs: number;
  readonly more: boolean;
}

/** A question that is not open any more. */
export interface AnsweredQuestion {
  readonly tenant: string;
  readonly run_id: string;
  readonly agent_name: string;
  readonly await_id: string;
  readonly text: string;
  readonly at: string;
  readonly how: "answer" | "declined" | "default" | "expired";
  /** The answer, or why it was declined; null for none. */
  readonly answer: QuestionItem["answer"] | string;
  readonly by: JsonValue;
}

/** An event of the feed of a run. */
export type RunEvent =
  | {
      readonly type: "run";
      readonly run: AdminRun;
      /** Whether the lease of its worker has ended, so that the run waits to be taken over. */
      readonly lost: boolean;
      /** Items that have begun or changed since the event before. `position` identifies an item. */
      readonly items: readonly TimelineItem[];
      readonly position: number;
      readonly usage: AdminTimeline["usage"];
      /** Whether all items up to `position` were sent. A long timeline comes in pieces. */
      readonly whole: boolean;
    }
  /** The run was deleted. */
  | { readonly type: "gone" };

/** A run with the runs that belong to it: whole, whenever they differ. */
export interface FamilyEvent {
  readonly type: "family";
  /** The tree of which the run is a part, from its top. */
  readonly tree: AdminTree;
  /** The run that it is a fork of; null for none, or if it was deleted. */
  readonly origin: AdminRun | null;
  /** Its forks, the newest first. */
  readonly forks: readonly AdminRun[];
  /** Whether its session has more runs than the 500 newest, among which they were looked for. */
  readonly more_forks: boolean;
  /** The open questions of all runs of the tree. */
  readonly questions: readonly AdminQuestion[];
}

/** A schedule with its next times. */
export interface InspectedSchedule extends Schedule {
  /** At most 5. Of a paused schedule those that it would have. */
  readonly next: readonly string[];
}

/** The schedules: whole, whenever they differ. */
export interface SchedulesEvent {
  readonly type: "schedules";
  readonly schedules: readonly InspectedSchedule[];
  /** Whether there are more than are shown. */
  readonly more: boolean;
}

/** An event of the feed of several runs of a tenant. Runs that do not exist are left out; if none does, it is refused. */
export interface SeveralEvent {
  readonly type: "several";
  readonly run: AdminRun;
  /** Items that have begun or changed since the event before of this run. */
  readonly items: readonly TimelineItem[];
  readonly usage: AdminTimeline["usage"];
}

/** The runs that need an operator: whole, whenever it differs. */
export interface StuckEvent {
  readonly type: "stuck";
  readonly blocked: readonly AdminBlocked[];
  /** Null for a caller of one tenant: it is counted over all. */
  readonly unregistered: readonly AdminUnregistered[] | null;
  /** Runs that were executed by processes whose leases have ended. */
  readonly lost: readonly AdminRun[];
}

/** The figures, once a second. Refused to callers of one tenant. */
export interface FiguresEvent {
  readonly type: "figures";
  readonly at: string;
  /** Null for a store without a runtime. */
  readonly stats: RuntimeStats | null;
  readonly versions: readonly AdminVersion[];
  readonly backlog: readonly AdminBacklog[];
  readonly pauses: readonly AdminPause[];
  /** Of the first 100 slots that runs wait for. */
  readonly lines: RuntimeStats["lines"];
  readonly workers: readonly AdminWorker[];
}

/** Figures over time: whole, whenever they differ. */
export interface HistoryEvent {
  readonly type: "history";
  readonly figures: AdminFigures;
}

/** The runs of a session, the oldest first: whole at first, then those that have changed. */
export interface SessionEvent {
  readonly type: "session";
  readonly runs: readonly { readonly run: AdminRun; readonly items: readonly TimelineItem[] }[];
}

/** The id of a run in a list. */
export function runItemId({ tenant, run_id }: { readonly tenant: string; readonly run_id: string }): string {
  return `${tenant}/${run_id}`;
}
/** The id of a question in the inbox. */
export function questionItemId(question: {
  readonly tenant: string;
  readonly run_id: string;
  readonly await_id: string;
}): string {
  return `${runItemId(question)}/${question.await_id}`;
}
