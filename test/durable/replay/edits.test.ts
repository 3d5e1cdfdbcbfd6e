import type { AwaitRequest, AwaitResume } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Entry, RunHead } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { answerTo } from "../../harness/answers.ts";
import { awaitRequest, createdEntry, foldEntries, isFinal } from "../../harness/internals.ts";
import { textsOf } from "../../harness/runtimes.ts";
import type { Edit } from "../../harness/world/edits.ts";
import { edits, mismatchAt, original, register } from "../../harness/world/edits.ts";
import { play } from "../../harness/world/play.ts";
import type { Process } from "../../harness/world/world.ts";
import { keyOf, World } from "../../harness/world/world.ts";

/** Each edit is tried with one of so many positions in the log. */
const EVERY = 2;
/** Longer than the time that a replay may make no progress. */
const LONG_MS = 8_000;

const uncrashed = await play({ register: (process) => register(process, original, false), answer });
const allEdits = edits();
const positions = uncrashed.log.map((_, index) => index).filter((index) => index >= 2 && index % EVERY === 0);

it("the edits of code are tried at 240 places of logs at least", () => {
  expect(uncrashed.world.violations).toEqual([]);
  expect(allEdits.length * positions.length).toBeGreaterThanOrEqual(240);
});

describe.each(allEdits)("code with $name", (edit) => {
  it.each(positions)("matches a log of %i entries, or blocks the run and writes nothing", async (length) => {
    const log = uncrashed.log.slice(0, length);
    const position = mismatchAt(log, edit.code);
    const world = await worldWith(log);
    if (position === undefined) await isCompleted(world, edit);
    else await isBlocked(world, edit, position, length % 3);
    expect(world.violations).toEqual([]);
  });
});

async function isCompleted(world: World, { code }: Edit): Promise<void> {
  const process = world.start();
  register(process, code, false);
  expect(await toTheEnd(world, process)).toBe("completed");
  expect((await process.runtime.stats()).blocked).toEqual([]);
}

async function isBlocked(world: World, { code }: Edit, position: number, way: number): Promise<void> {
  const process = world.start();
  const announced: unknown[] = [];
  process.runtime.on("run.blocked", (event) => announced.push(event));
  const before = await world.log(uncrashed.run_id);
  register(process, code, false);
  await world.pass(LONG_MS);
  if ((await statusOf(world)) === "awaiting") expect(await answerOf(world, process)).toBe("run_blocked");
  await world.pass(LONG_MS);

  const { blocked } = await process.runtime.stats();
  const expected = expectation(before[position]);
  expect(blocked).toEqual([
    { run_id: uncrashed.run_id, agent_name: "agent", version: "1", position, expected, asked: expect.any(String) },
  ]);
  expect(announced.at(0)).toMatchObject({ type: "run.blocked", version: "1", position, expected });
  const head = (await world.find(uncrashed.run_id))?.head;
  await world.pass(LONG_MS);
  expect(await world.log(uncrashed.run_id)).toEqual(before);
  expect((await world.find(uncrashed.run_id))?.head).toEqual(head);

  if (way === 0) {
    register(process, original, true);
    await world.pass(LONG_MS);
    await bringsBack(world, process);
  } else if (way === 1) {
    process.kill();
    const next = world.start();
    register(next, original, false);
    await bringsBack(world, next);
    return;
  } else {
    await isCancelled(world, process);
  }
  expect((await process.runtime.stats()).blocked).toEqual([]);
}

/** The original code completes the run with the original output. */
async function bringsBack(world: World, process: Process): Promise<void> {
  expect(await toTheEnd(world, process)).toBe("completed");
  const run = await settled(world, process, process.runtime.getRun(uncrashed.run_id));
  expect(textsOf(run)).toEqual(textsOf(uncrashed.run));
}

async function isCancelled(world: World, process: Process): Promise<void> {
  await settled(world, process, process.runtime.cancel(uncrashed.run_id));
  await world.pass(LONG_MS);
  const state = await world.stateOf(uncrashed.run_id);
  expect(state.status).toBe("cancelled");
  expect(state.output.flatMap(({ parts }) => parts.map(({ content }) => content))).not.toContain("finally");
  expect((await process.runtime.stats()).withoutFinally).toBe(1);
}

/** What the report of a mismatch must say of the entry that was expected. */
function expectation(entry: Entry | undefined): unknown {
  if (entry?.type === "intent") return expect.stringContaining(entry.key);
  if (entry?.type === "awaited") return expect.stringContaining(entry.await_id);
  if (entry?.type === "emitted") return entry.kind === "part" ? `the text "${entry.part.content}"` : "an object";
  return expect.any(String);
}

/** A world whose store holds the beginning of the run; the process of the run has died. */
async function worldWith(log: readonly Entry[]): Promise<World> {
  const world = new World({ register: () => {} });
  const { status, question } = foldEntries(uncrashed.run_id, log);
  const owner = status === "awaiting" ? null : "a process that died";
  const head: RunHead = {
    status,
    epoch: 3,
    owner,
    due_at: owner === null ? (question?.asked.deadline ?? null) : null,
    blocked: null,
    holds_slot: false,
    finished_at: null,
    takeovers: 0,
  };
  await world.store.create(keyOf(uncrashed.run_id), { entries: log, head }, null);
  expect(createdEntry(uncrashed.state).durable).toBe(true);
  return world;
}

async function toTheEnd(world: World, process: Process): Promise<string> {
  for (let round = 0; round < 10; round++) {
    await world.pass(1_000);
    const status = await statusOf(world);
    if (isFinal(status)) return status;
    if (status === "awaiting") expect(await answerOf(world, process)).toBe("accepted");
  }
  return statusOf(world);
}

function answer({ await_id }: AwaitRequest): AwaitResume {
  return answerTo("edited", await_id);
}

async function answerOf(world: World, process: Process): Promise<string> {
  const state = await world.stateOf(uncrashed.run_id);
  if (state.question === null) return "nothing is asked";
  const resuming = process.runtime.resume({
    run_id: uncrashed.run_id,
    await_resume: answer(awaitRequest(state, state.question.asked)),
    mode: "async",
  });
  const outcome = await world.until(resuming, process);
  if (outcome === undefined || "value" in outcome) return "accepted";
  return CadenzaError.is(outcome.error) ? outcome.error.code : String(outcome.error);
}

async function statusOf(world: World): Promise<ReturnType<typeof foldEntries>["status"]> {
  return (await world.stateOf(uncrashed.run_id)).status;
}

async function settled<T>(world: World, process: Process, promise: Promise<T>): Promise<T> {
  const outcome = await world.until(promise, process);
  if (outcome === undefined) throw new Error("The process died.");
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}
