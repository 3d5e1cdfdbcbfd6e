import type { StandardSchema } from "cadenza";
import { Random } from "../random.ts";
import type { AskOrder, Order } from "./puppet.ts";
import { puppetErrors } from "./puppet.ts";
import type { Reader, Setting, World } from "./world.ts";
import { agents, LONGEST_DEADLINE_MS, uuid } from "./world.ts";

/** The schedule of a seed: its setting, and then one number for each step. */
export function scheduleOf(seed: number, stores: readonly Setting["store"][]): { setting: Setting; steps: number[] } {
  const random = new Random(seed);
  const first = random.bits();
  const setting: Setting = {
    store: stores[first % stores.length] ?? "at once",
    forgetful: (first >>> 4) % 8 === 0,
    listens: (first >>> 8) % 4 === 0,
  };
  // Most faults need few steps, and some need many.
  const length = 2 + ((first >>> 16) % ((first >>> 12) % 4 === 0 ? 40 : 12));
  return { setting, steps: Array.from({ length }, () => random.bits()) };
}

/** The fields of a step. A schedule is a list of numbers, so that it can be shortened without interpreting it. */
interface Step {
  /** Chooses one of the existing runs, puppets or readers. */
  readonly target: number;
  readonly detail: number;
  readonly more: number;
}

type Move = (world: World, step: Step, settle: () => Promise<void>) => void | Promise<void>;

const moves: readonly (readonly [weight: number, move: Move])[] = [
  [9, create],
  [20, order],
  [9, answer],
  [3, cancel],
  [2, read],
  [3, readOn],
  [1, leave],
  [1, get],
  [4, takeTurn],
  [8, serveStore],
  [3, passTime],
  [1, failStore],
];
const table: readonly Move[] = moves.flatMap(([weight, move]) => Array.from({ length: weight }, () => move));

/** Carries out one step, and lets a shorter or longer moment pass after it. */
export async function takeStep(world: World, bits: number, settle: () => Promise<void>): Promise<void> {
  const move = table[(bits & 63) % table.length] ?? takeTurn;
  await move(world, { target: (bits >>> 6) & 15, detail: (bits >>> 10) & 255, more: (bits >>> 18) & 255 }, settle);
  const pause = (bits >>> 26) & 7;
  if (pause === 0) return;
  if (pause <= 2) for (let hop = 0; hop < pause * pause; hop++) await undefined;
  else await settle();
  if (pause >= 6) {
    world.clock.takeTurns(1);
    await settle();
  }
  if (pause === 7) {
    world.late?.serve(bits >>> 29);
    await settle();
  }
}

function create(world: World, { target, detail, more }: Step): void {
  const agent_name = agents[target % (agents.length - 1)] ?? "puppet";
  world.setManners(more);
  // A key is removed with its run, and may then create another one.
  const idempotencyKey = (detail & 12) === 12 && !world.setting.forgetful ? `key ${detail & 1}` : undefined;
  const input =
    idempotencyKey === undefined ? `run ${world.calls.length}/${world.readers.length}` : `body ${more >> 7}`;
  const request = { agent_name, input, ...session(world, more) };
  world.story.push(`create ${agent_name} ${detail % 3} ${idempotencyKey ?? ""} ${request.session_id ?? ""}`);
  if (detail % 3 === 2) world.createStream(request, idempotencyKey, (more & 1) === 0);
  else world.create(request, detail % 3 === 0 ? "sync" : "async", idempotencyKey);
}

function session(world: World, choice: number): { readonly session_id?: string } {
  if (choice % 4 !== 0) return {};
  if (choice % 8 === 0) return { session_id: uuid(900 + (choice % 3)) };
  const run_id = at(world.runs, choice);
  return run_id === undefined ? {} : { session_id: run_id };
}

function order(world: World, { target, detail, more }: Step): void {
  const busy = world.puppets.filter(({ finished }) => !finished);
  const puppet = at(busy, target);
  if (puppet === undefined) {
    create(world, { target, detail, more });
    return;
  }
  const given = orderOf(world, detail, more);
  world.story.push(`order ${puppet.run_id.slice(-2)} to ${given.does}`);
  puppet.order(given);
}

function orderOf(world: World, detail: number, more: number): Order {
  switch (detail % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      return emitOrder(world, more, detail > 128);
    case 5:
    case 6:
    case 7:
      return { does: "ask", options: askOf(world, more) };
    case 8:
    case 9:
      return { does: "await", options: askOf(world, more) };
    case 10:
      return { does: "wait for answers" };
    case 11:
      return { does: "run a sub-run" };
    case 12:
      if (more % 3 === 0) return { does: "close" };
      return (more & 1) === 0 ? { does: "set state", value: more } : { does: "read history" };
    case 13:
      return { does: "throw", error: puppetErrors[more % puppetErrors.length] };
    default:
      return { does: "return", value: more < 128 ? undefined : "That is all." };
  }
}

/** Everything that a puppet emits has a number, so that a repetition or a loss is found. */
function emitOrder(world: World, choice: number, emits: boolean): Order {
  const serial = ++world.emitted;
  return { does: "emit", value: emittedValue(choice, `no. ${serial}`), serial, emits: emits && choice % 8 !== 4 };
}

function emittedValue(choice: number, text: string): unknown {
  switch (choice % 8) {
    case 1:
      return { kind: "progress", text };
    case 2:
      return { role: "agent", parts: [{ content: "A whole message. " }, { content: text }] };
    case 3:
      return { content: text, content_type: "text/csv", name: "table.csv" };
    case 4:
      return [text, null];
    default:
      return text;
  }
}

function askOf(world: World, choice: number): AskOrder {
  return {
    ...(choice % 4 === 0 && { timeoutMs: (LONGEST_DEADLINE_MS / 5) * (1 + (choice % 5)) }),
    ...(choice % 8 === 0 && { default: { n: -1 } }),
    ...(choice % 3 === 0 && { schema: choice % 2 === 0 ? schema : slowSchema(world) }),
  };
}

/** Takes every answer but those that are divisible by seven. */
const schema: StandardSchema<{ readonly n: number }> = {
  "~standard": { version: 1, vendor: "model", validate: judge },
};

/** The same, answered after a delay. */
function slowSchema(world: World): StandardSchema<{ readonly n: number }> {
  const validate = async (value: unknown) => {
    const { n } = value as { n: number };
    if (!world.slowSince.has(n)) world.slowSince.set(n, world.clock.now());
    await world.clock.turn();
    return judge(value);
  };
  return { "~standard": { version: 1, vendor: "model", validate } };
}

function judge(value: unknown) {
  const { n } = value as { n: number };
  return n % 7 === 0 ? { issues: [{ message: "divisible by seven" }] } : { value: { n } };
}

function answer(world: World, { target, detail, more }: Step): void {
  const run_id = awaitingRun(world, target);
  if (run_id === undefined) {
    order(world, { target, detail, more });
    return;
  }
  const asked = world.store.logs.get(run_id)?.entries.flatMap((entry) => {
    return entry.type === "awaited" ? [entry.await_id] : [];
  });
  const await_id = detail % 4 === 0 ? at(asked ?? [], more) : detail % 4 === 1 ? asked?.at(-1) : undefined;
  const key = detail > 220 ? `answer ${more % 2}` : undefined;
  const given = { n: more % 5 === 0 ? 1 + (more % 4) : world.calls.length + world.readers.length + 10, await_id, key };
  world.story.push(`answer ${run_id.slice(-2)} with ${given.n} ${await_id ?? ""} ${key ?? ""}`);
  if (detail % 3 === 2) world.resumeStream(run_id, given, more % 2 === 0);
  else world.resume(run_id, given, detail % 3 === 0 ? "sync" : "async");
}

/** Mostly a run that waits. */
function awaitingRun(world: World, choice: number): string | undefined {
  const waiting = world.runs.filter((run_id) => world.store.logs.get(run_id)?.head.status === "awaiting");
  return choice % 8 === 0 || waiting.length === 0 ? at(world.runs, choice) : at(waiting, choice);
}

function cancel(world: World, { target }: Step): void {
  const run_id = at(world.runs, target);
  if (run_id === undefined) return;
  world.story.push(`cancel ${run_id.slice(-2)}`);
  world.cancel(run_id);
}

function read(world: World, { target, detail, more }: Step): void {
  const run_id = at(world.runs, target);
  if (run_id === undefined) return;
  const after = more % 3 === 0 ? more % (1 + (world.store.logs.get(run_id)?.events ?? 0)) : 0;
  world.story.push(`read ${run_id.slice(-2)} after ${after}`);
  world.read(run_id, { after, until: detail % 2 === 0 ? "rest" : "end" }, more % 2 === 0);
}

function readOn(world: World, { target }: Step): void {
  const reader = at(slowReaders(world), target);
  if (reader !== undefined) world.readOn(reader);
}

function leave(world: World, { target }: Step): void {
  const reader = at(slowReaders(world), target);
  if (reader !== undefined) world.leave(reader);
}

function slowReaders(world: World): readonly Reader[] {
  return world.readers.filter(({ eager, left, end }) => !eager && !left && end === undefined);
}

function get(world: World, { target }: Step): void {
  const run_id = at(world.runs, target);
  if (run_id !== undefined) world.get(run_id);
}

function takeTurn(world: World, { detail }: Step): void {
  world.clock.takeTurns(1 + (detail % 2));
}

function serveStore(world: World, step: Step): void {
  if (world.late === undefined) takeTurn(world, step);
  else world.late.serve(step.detail);
}

function failStore(world: World, { detail, more }: Step): void {
  if (world.setting.store !== "failing") return;
  world.story.push("the store fails");
  world.late?.fail(detail, more % 2 === 0);
}

const waits = [0, 1, 20, 50, 60, 250, 600, 5_000];

/** A machine calls no timer before it has done all that needs no turn of its event loop. */
async function passTime(world: World, { detail, more }: Step, settle: () => Promise<void>): Promise<void> {
  const ms = waits[detail % waits.length] ?? 0;
  world.story.push(`${ms} ms pass`);
  await settle();
  await world.clock.advance(ms, more % 4 === 0, settle);
}

function at<Item>(items: readonly Item[], choice: number): Item | undefined {
  return items[choice % Math.max(1, items.length)];
}
