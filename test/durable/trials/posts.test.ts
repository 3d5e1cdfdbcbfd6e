import type { Entry, FoundRun, RunPost } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { awaitRequest, openQuestions } from "../../harness/internals.ts";
import type { Ending } from "../../harness/world/play.ts";
import { play } from "../../harness/world/play.ts";
import type { Scenario } from "../../harness/world/scenario.ts";
import { scenarios } from "../../harness/world/scenarios.ts";
import type { World } from "../../harness/world/world.ts";

/* A process that does not execute a run may post some entries to the end of its log: here between any two entries. */

/** At one of so many positions it is tried, on stores of each kind; `npm run stress -- posts` tries all. */
const SHARE = process.env["CADENZA_POSTS"] === "all" ? { atOnce: 1, late: 1 } : { atOnce: 6, late: 15 };

/** What is posted to a run in this state. Undefined: nothing can be. */
type Post = (world: World, run: FoundRun) => Promise<RunPost | undefined>;

/** Posts as soon as the log has that many entries, from a process that has neither the run nor its code. */
function postAt(position: number, post: Post): { disturb: (world: World) => void; isPosted: () => boolean } {
  let isPosted = false;
  const tryIt = async (world: World): Promise<void> => {
    // Time may pass between the moment at which the process says what it posts, and the post.
    const end = world.disturb();
    await tryNow(world);
    end();
  };
  const tryNow = async (world: World): Promise<void> => {
    const [root] = await world.store.list({ tenant: "", limit: 1, offset: 0, roots: true });
    if (isPosted || root === undefined || root.position < position || root.head.finished_at !== null) return;
    const posted = await post(world, root);
    if (isPosted || posted === undefined) return;
    isPosted = true;
    await world.store.post(root.key, posted);
  };
  return { disturb: (world) => void tryIt(world), isPosted: () => isPosted };
}

const cancel: Post = async ({ now }) => ({
  entries: [{ type: "cancel-requested", at: now }],
  status: "cancelling",
  unblocks: true,
  due: "look",
});

const message: Post = async ({ now }, { head }) => {
  if (head.status === "cancelling") return undefined;
  const entry: Entry = { type: "received", at: now, name: "unasked", data: 1, idempotency_key: "posted" };
  return { entries: [entry], due: "work" };
};

const OFFER = "00000000-0000-4000-8000-00000000000f";

/** The answer that the client of a scenario would give, offered by another process. */
function answerOf({ answer, decline }: Scenario): Post {
  return async (world, { key }) => {
    const [log, state] = [await world.log(key.run_id), await world.stateOf(key.run_id)];
    const asked = openQuestions(state).find((question) => question.asked.of === undefined)?.asked;
    if (asked === undefined || state.status !== "awaiting") return undefined;
    const request = awaitRequest(state, asked);
    const given = answer === undefined ? { number: request.await_id.length % 7 } : answer(request, log);
    if (given === undefined) return undefined;
    const declined = decline?.(request, log);
    const said = declined === undefined ? { answer: given } : { decline: declined };
    const { await_id } = asked;
    const entry: Entry = { type: "offered", at: world.now, offer_id: OFFER, await_id, idempotency_key: null, ...said };
    return { entries: [entry], due: "look" };
  };
}

interface Played {
  readonly position: number;
  readonly log: readonly Entry[];
  /** What came as the run ended. */
  readonly inbox: readonly Entry[];
  readonly ending: Ending;
}

/** Plays a scenario with a post at each position, or a share of them, and gives the plays in which it could be posted. */
async function posted(scenario: Scenario, late: boolean, post: Post) {
  const { log, ending } = await play(scenario, { late });
  const plays: Played[] = [];
  for (let position = 1; position < log.length; position += late ? SHARE.late : SHARE.atOnce) {
    const { disturb, isPosted } = postAt(position, post);
    const played = await play(scenario, { late, disturb });
    if (!isPosted()) continue;
    expect({ position, violations: played.world.violations }).toEqual({ position, violations: [] });
    const inbox = await played.world.inbox(played.run_id);
    plays.push({ position, log: played.log, inbox, ending: played.ending });
  }
  return { plays, ending };
}

/** The ending without the order of messages, which a post may change. */
function unordered({ history, ...ending }: Ending): unknown {
  return { ...ending, history: [...history].sort() };
}

describe.each([
  { store: "a store that answers at once", late: false },
  { store: "a store that answers later", late: true },
])("on $store", ({ late }) => {
  const uncancelled = scenarios.filter(({ cancelWhen }) => cancelWhen === undefined);

  it.each(uncancelled)("a cancel may be posted between any two entries: $name", async (scenario) => {
    const { plays } = await posted(scenario, late, cancel);
    expect(plays.length).toBeGreaterThan(0);
    for (const { log, ending } of plays) {
      // An end that was being written when the post came may win.
      expect(["cancelled", "failed"]).toContain(ending.status);
      expect(log.filter(({ type }) => type === "cancel-requested")).toHaveLength(1);
    }
  });

  it.each(uncancelled)("a message may be posted between any two entries: $name", async (scenario) => {
    const { plays, ending } = await posted(scenario, late, message);
    expect(plays.length).toBeGreaterThan(0);
    for (const one of plays) {
      expect({ ...one, ending: unordered(one.ending) }).toMatchObject({ ending: unordered(ending) });
      const isIt = (entry: Entry): boolean => entry.type === "received" && entry.idempotency_key === "posted";
      expect([...one.log, ...one.inbox].filter(isIt)).toHaveLength(1);
    }
  });

  const answered = uncancelled.filter(({ ends, answer }) => ends.includes("5") && answer !== undefined);

  it.each(answered)("an answer may be offered between any two entries: $name", async (scenario) => {
    const { plays, ending } = await posted(scenario, late, answerOf(scenario));
    for (const one of plays)
      expect({ ...one, ending: unordered(one.ending) }).toMatchObject({ ending: unordered(ending) });
  });

  it("an offered answer gets its verdict", async () => {
    const scenario = scenarios.find(({ name }) => name === "questions one after the other");
    if (scenario === undefined) throw new Error("There is no such scenario.");
    // The client leaves the questions to the other process.
    const silent: Scenario = {
      ...scenario,
      answer: (_request, log) => (log.some(isVerdict) ? { number: 5 } : undefined),
    };
    const { disturb } = postAt(1, answerOf(scenario));
    const { log, run, world } = await play(silent, { late, disturb });
    expect([run.status, world.violations]).toEqual(["completed", []]);
    expect(log.filter(isVerdict)).toHaveLength(1);
  });
});

function isVerdict(entry: Entry): boolean {
  return entry.type === "resumed" && entry.offer_id === OFFER;
}
