import type { Store } from "cadenza/store";
import { record, replay } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import { TimelineFold } from "../../src/admin/timeline-fold.ts";
import { DetailFold } from "../../src/core/detail.ts";
import { evolve } from "../../src/core/evolve.ts";
import type { Entry } from "../../src/core/log.ts";
import { project } from "../../src/core/project.ts";
import { runRecord, transcript } from "../../src/core/record.ts";
import { initialState } from "../../src/core/state.ts";
import {
  asked,
  cancelRequested,
  created,
  ended,
  offered,
  RUN_ID,
  received,
  relayed,
  resumed,
  settled,
  started,
} from "../harness/logs.ts";
import { textsOf } from "../harness/runtimes.ts";
import type { Hook } from "../harness/store-proxy.ts";
import { inMemory } from "../harness/world/replicas.ts";

/* A post that two processes have made at once is twice in the log. Every view of the log shows it once. */

interface Posts {
  readonly post: Entry["type"];
  /** A log in which the post at `first` is made again at `again`. */
  readonly log: readonly Entry[];
  readonly first: number;
}

const answer = { answer: { ok: true } };
const begin = [created({ durable: true }), started];
const received1 = received("news", 1, "k");

const logs: readonly Posts[] = [
  { post: "received", log: [...begin, received1, received("other", 2, "l"), ended("completed")], first: 2 },
  { post: "awaited", log: [...begin, relayed("run:a#1/ask#1"), asked("ask#1"), ended("failed")], first: 2 },
  {
    post: "settled",
    log: [...begin, relayed("run:a#1/ask#1"), settled("run:a#1/ask#1", answer), ended("completed")],
    first: 3,
  },
  {
    post: "offered",
    log: [...begin, asked("ask#1"), offered("o-1", "ask#1"), resumed("ask#1"), ended("completed")],
    first: 3,
  },
  { post: "cancel-requested", log: [...begin, asked("ask#1"), cancelRequested, ended("cancelled")], first: 3 },
];

/** Everything that the views of a log show, without the positions in the log. */
function views(log: readonly Entry[]): unknown {
  const state = initialState(RUN_ID);
  const details = new DetailFold(true);
  const timeline = new TimelineFold();
  const told: unknown[] = [];
  const events: unknown[] = [];
  for (const entry of log) {
    evolve(state, entry);
    told.push(...details.detailsOf(state, entry));
    for (let index = 0; index < state.last_events; index++) events.push(project(state, entry, index));
    timeline.add(entry);
  }
  const items = timeline.items.map(({ position: _position, last_position: _last, ...item }) => item);
  return structuredClone({ record: runRecord(state), transcript: transcript(state), told, events, items });
}

describe.each(logs)("a second $post", ({ log, first }) => {
  const post = log[first] ?? expect.fail();
  const repeats = Array.from({ length: log.length - 1 - first }, (_, index) => first + 1 + index);

  it.each(repeats)("at position %i shows nowhere", (at) => {
    expect(views(log.toSpliced(at, 0, { ...post }))).toEqual(views(log));
  });
});

it("a message that two processes have sent under one key is taken once, and a cassette replays", async () => {
  const replicas = inMemory();
  let isSlow = false;
  const slow: Hook = (call) =>
    isSlow ? new Promise<void>((resolve) => replicas.clock.setTimeout(resolve, 5)).then(call) : call();
  const worker = replicas.start();
  const agent = { durable: true } as const;
  const letters = async (_input: unknown, { receive }: { receive(name: string): Promise<unknown> }) =>
    `${await receive("mail")}, ${await receive("mail")}`;
  worker.runtime.register("agent", agent, letters);
  const { run_id } = await worker.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.advance(50);
  isSlow = true;
  const senders = [1, 2].map(() => replicas.start({ work: false }, slow));
  const sent = Promise.all(
    senders.map(({ runtime }) => runtime.send({ to: run_id, name: "mail", data: "one" }, { idempotencyKey: "k" })),
  );
  await replicas.clock.advance(1_000);
  await sent;
  await worker.runtime.send({ to: run_id, name: "mail", data: "two" });
  await replicas.clock.advance(1_000);
  expect(textsOf(await worker.runtime.getRun(run_id))).toEqual(["one, two"]);
  expect(await mailIn(worker.store, run_id)).toEqual(["one", "one", "two"]);
  const cassette = await record(worker.store, run_id);
  expect(textsOf(await replay(letters, cassette))).toEqual(["one, two"]);
});

async function mailIn(store: Store, run_id: string): Promise<unknown[]> {
  const log = (await store.read({ tenant: "", run_id }, 0, 1_000)) ?? [];
  return log.flatMap((entry) => (entry.type === "received" ? [entry.data] : []));
}
