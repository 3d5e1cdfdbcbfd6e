import type { Agent, AgentFunction } from "../runtime/agent/agent.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { Chance } from "./chance.ts";
import { readAgent } from "./drive-options.ts";
import type { Interruption, OperationPlace } from "./interruption.ts";
import { describeInterruption } from "./interruption.ts";
import type { InterruptionResult } from "./interruption-report.ts";
import { InterruptionReport } from "./interruption-report.ts";
import { brokenPromises, emittedAfterStop } from "./promises-kept.ts";
import type { Outcome, Play } from "./rehearsal.ts";
import { rehearse } from "./rehearsal.ts";
import type { WayOptions, WaySettings } from "./way-options.ts";
import { chosenWays, failureProblems, problemsAfter, readWayOptions, sortOut, suppliesLeft } from "./way-options.ts";

/** How an agent is interrupted. `patienceMs` is 250 by default. */
export interface InterruptionOptions extends WayOptions {}

/** For an agent that never ends, only this many things are interrupted. */
const MAX_WITHOUT_END = 10;

/**
 * Executes an agent many times, and disturbs it at every possible point: cancels it before it begins, after each thing
 * that it does and during each step, sleep and receive; makes each step and each sub-agent fail; answers each question
 * twice, as late as possible, and not in time; sends messages before the agent begins, as late as possible, and not in
 * time. The clock moves by itself when the agent only waits for it. After each run it checks the agent: its `finally` ran, there is one terminal entry and
 * nothing after it, no question, step or sub-run is pending, and no timer or abort listener is left. Undisturbed, it must not
 * fail, unless by an `AgentError`, a declined answer, time or its budget. All `answers` of a list must be asked for.
 *
 * @example
 * ```ts
 * import { defineAgent } from "cadenza";
 * import { everyInterruption } from "cadenza/testing";
 *
 * const booking = defineAgent("booking", async (_input, { ask }) => ask("Book it?"));
 * const report = await everyInterruption(booking, "Berlin to Paris", { answers: [{ ok: true }] });
 * report.assert();
 * ```
 */
export async function everyInterruption(
  agent: Agent | AgentFunction,
  input: RunInput,
  options: InterruptionOptions = {},
): Promise<InterruptionReport> {
  const way = readWayOptions(options);
  const play: Play = {
    agent: readAgent(agent),
    input,
    settings: way.drive,
    answers: way.answers,
    messages: way.messages,
    chance: new Chance(way.seed),
  };

  const run = async (interruption: Interruption): Promise<{ outcome: Outcome; problems: readonly string[] }> => {
    await way.before?.();
    const outcome = await rehearse(play, interruption);
    return { outcome, problems: await problemsAfter(way, outcome.stage.run) };
  };

  return Chance.during(async () => {
    const undisturbed: Interruption = { kind: "none" };
    const alone = await run(undisturbed);
    const uninterrupted = alone.outcome;
    const results: InterruptionResult[] = [];
    const outcomes = [uninterrupted];
    const whereOf = (interruption: Interruption): string =>
      describeInterruption(interruption, uninterrupted.driveEvents);
    for (const interruption of chosenWays(interruptionsOf(uninterrupted), undisturbed, whereOf, way)) {
      const { outcome, problems } = await run(interruption);
      const broken = [...brokenPromises(outcome, uninterrupted), ...problems];
      if (broken.length === 0 && goesOn(outcome)) {
        const twin = await run({ ...interruption, kind: "fail" } as Interruption);
        broken.push(...indifference(outcome, twin.outcome));
      }
      results.push(resultOf(way, interruption, outcome, broken));
      outcomes.push(outcome);
    }
    const problems = [
      ...brokenPromises(uninterrupted, uninterrupted),
      ...failureProblems(way, uninterrupted.stage.view),
      ...suppliesLeft(way, outcomes),
      ...alone.problems,
    ];
    results.unshift(resultOf(way, undisturbed, uninterrupted, problems));
    return new InterruptionReport(play.agent.name, results, play.chance.isUsed ? play.chance.seed : undefined);
  });
}

/** Every possible interruption of an agent that does this when it is left alone. */
function interruptionsOf({ driveEvents, places, problems, deliveries }: Outcome): readonly Interruption[] {
  const interruptions: Interruption[] = [{ kind: "cancel", at: 0, during: undefined }];
  if (deliveries.length > 0) interruptions.push({ kind: "message early", at: 0, deliveries });
  const seen =
    driveEvents.at(-1)?.type === "end" && problems.length === 0 ? driveEvents : driveEvents.slice(0, MAX_WITHOUT_END);
  for (const [index, driveEvent] of seen.entries()) {
    const at = index + 1;
    for (const during of places.filter((place) => place.at === index)) interruptions.push(...interruptionsAt(during));
    if (driveEvent.type === "end") break;
    interruptions.push({ kind: "cancel", at, during: undefined });
    if (driveEvent.type !== "await") continue;
    interruptions.push({ kind: "answer twice", at }, { kind: "answer late", at });
    if (driveEvent.expires_at !== undefined) interruptions.push({ kind: "expire", at });
  }
  return interruptions;
}

function interruptionsAt(during: OperationPlace): readonly Interruption[] {
  const { at, wait } = during;
  const cancel: Interruption = { kind: "cancel", at, during };
  if (wait === undefined) return [cancel, { kind: "fail", at, during }];
  if (!wait.isSent) return [cancel];
  const late: Interruption = { kind: "message late", at, during };
  return wait.expires ? [cancel, late, { kind: "expire", at, during }] : [cancel, late];
}

/**
 * A function cannot be stopped from outside. It may go on because it ignores its signal, or because it cleans up. To
 * tell them apart, the function is also made to fail at the same place. A function that has taken its signal is not
 * blamed: it may have passed the signal on, for example to a stream that still delivers what it has read ahead.
 */
function goesOn(outcome: Outcome): boolean {
  const { conduct, listeners } = outcome.stage.cast;
  return (
    conduct.form === "function" && !conduct.interrupted && !listeners.isUsed && emittedAfterStop(outcome).length > 1
  );
}

function indifference(cancelled: Outcome, failed: Outcome): string[] {
  const injected = failed.stage.cast.conduct.thrown !== undefined;
  const more = emittedAfterStop(cancelled).length;
  const tidying = failed.driveEvents.length - (cancelled.driveEvents.length - more);
  if (!injected || more <= tidying + 1) return [];
  return [
    `It went on as if nothing had happened, and emitted ${more} more things. Look at context.signal between them.`,
  ];
}

function resultOf(
  way: WaySettings,
  interruption: Interruption,
  outcome: Outcome,
  problems: readonly string[],
): InterruptionResult {
  const where = describeInterruption(interruption, outcome.driveEvents);
  return {
    kind: interruption.kind,
    yieldIndex: interruption.kind === "none" ? 0 : interruption.at,
    where,
    status: outcome.stage.state?.status ?? "created",
    ...sortOut(problems, where, way),
  };
}
