import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { createInspectorHandler } from "cadenza/inspector";
import type { RunKey, Store } from "cadenza/store";
import { record } from "cadenza/testing";

/** What most of a log is made of. */
export const kinds = ["steps", "parts", "messages"] as const;
export type Kind = (typeof kinds)[number];

const PAGE = 1_000;
const AT_ONCE = 50;
/** Each entry is small. */
const limits = { maxLogEntries: 10_000_000, maxLogBytes: 1024 ** 3, maxWaitingMessages: 10_000_000 };

/** A runtime whose agents fill a log with about so many entries, and ask then. */
export function longRuntime(store: Store, entries: number): AgentRuntime {
  return new AgentRuntime({ store, limits })
    .register("steps", { durable: true }, async (_input, { step, ask }) => {
      for (let n = 0; n < entries / 2; n++) await step("count", () => ({ n, text: "what a step has made" }));
      return ask("Is that all?");
    })
    .register("parts", { durable: true }, async function* (_input, { ask }) {
      for (let n = 0; n < entries; n++) yield `part ${n} `;
      yield `${await ask("Is that all?")}`;
    })
    .register("messages", { durable: true }, async (_input, { receive, ask }) => {
      for (let n = 0; n < entries / 2; n++) await receive("count");
      return ask("Is that all?");
    });
}

/** Makes a run of a long log that waits for its answer. */
export async function makeLong(runtime: AgentRuntime, kind: Kind, entries: number): Promise<string> {
  const { run_id } = await runtime.createRun({ agent_name: kind, input: "", mode: "async" });
  for (let n = 0; kind === "messages" && n < entries / 2; n += AT_ONCE) {
    const numbers = Array.from({ length: AT_ONCE }, (_, index) => n + index);
    await Promise.all(numbers.map((data) => runtime.send({ to: run_id, name: "count", data })));
  }
  for await (const { type } of runtime.events(run_id)) if (type === "run.awaiting") break;
  return run_id;
}

/** Writes a run that waits, with its log, into another store. */
export async function copyRun(from: Store, to: Store, key: RunKey): Promise<void> {
  const { head, position = 0 } = (await from.find(key)) ?? {};
  if (head === undefined) throw new Error("There is no such run.");
  for (let at = 0; at < position; ) {
    const entries = (await from.read(key, at, at === 0 ? 1 : PAGE)) ?? [];
    const refused =
      at === 0
        ? await to.create(key, { entries, head }, null)
        : await to.append(key, { epoch: head.epoch, position: at }, { entries, head });
    if (refused?.conflict !== undefined) throw new Error(`The store refuses the log: ${refused.conflict}.`);
    at += entries.length;
  }
}

/** A run with a long log, as one process sees it. */
export interface LongRun {
  readonly runtime: AgentRuntime;
  readonly store: Store;
  readonly run_id: string;
}

/** The calls that read the log of a run that waits. The last one answers it. */
export const readers = {
  getRun: ({ runtime, run_id }) => runtime.getRun(run_id),
  listRuns: ({ runtime }) => runtime.listRuns(),
  details: ({ runtime, run_id }) => untilAwaiting(runtime.events(run_id, { detail: true })),
  transcript: ({ runtime, run_id }) => runtime.transcript(run_id),
  timeline: ({ runtime, run_id }) => createAdmin(runtime).timeline(run_id),
  cassette: ({ store, run_id }) => record(store, run_id),
  events: ({ runtime, run_id }) => untilAwaiting(runtime.events(run_id)),
  resume: ({ runtime, run_id }) => runtime.resume({ run_id, await_resume: { ok: true } }),
} satisfies Readonly<Record<string, (run: LongRun) => Promise<unknown>>>;

/** As the pages of the inspector read the log. */
export async function inspect({ runtime, run_id }: LongRun): Promise<void> {
  const handler = createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) });
  for (const page of ["log", "cassette"]) {
    const answer = await handler(new Request(`http://localhost/api/${page}?run_id=${run_id}`));
    if (!answer.ok) throw new Error(`The inspector answers ${answer.status} for its ${page}.`);
    for await (const piece of answer.body ?? []) void piece;
  }
}

async function untilAwaiting(events: AsyncIterable<{ readonly type: string }>): Promise<void> {
  for await (const { type } of events) if (type === "run.awaiting") return;
}
