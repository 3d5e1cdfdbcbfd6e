import { basename } from "node:path";
import { beforeEach } from "vitest";

/*
 * Tests of the runtime that cannot hold for durable agents which are run again after each commit, with the reason.
 */

const RUN_ONCE = "counts how often code outside of steps is run";
const OUTSIDE =
  "its agent is led by variables and timers outside of steps, and does something else when it is run again";
const TIMERS = "counts timers, and a store that outlives the process is looked through now and then";
const HANDED_BACK = "a durable run is handed back when the runtime is closed, and does not fail";
const FLOATING = "a step that nobody waits for may be cut off by the end of the run";
const COUNTS_CALLS = "counts calls of the store, and to run an agent again takes more";
const ARGUMENTS = "calls `register` with arguments that are to be refused as they are";
const TOO_LONG = "what it does without end, or for hours, is too much to be done again after each commit";
const OWN_PROCESS = "is about a process of its own, in which nothing is run again";
const HAS_TIME = "what its agent sees at a point in time is seen a second time later";

const notRepeatable: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "cancel.test.ts": {
    "runs the finally blocks of the agent also when the list that is drained ends by itself then": RUN_ONCE,
    "by the agent itself works in every form of agent": RUN_ONCE,
    "ends: a stubborn agent is left behind, and what it still shows is dropped and counted": RUN_ONCE,
    "may be zero, or without end": TIMERS,
    "leaves no timer when the agent stops in time": TIMERS,
    "counts active time only: waiting for answers does not count": OUTSIDE,
    "leaves no timer behind when the run ends": TIMERS,
  },
  "events.test.ts": {
    "a reader that is behind a run which has been forgotten is told so": TOO_LONG,
  },
  "misbehaving.test.ts": {
    "is cancelled in time": TOO_LONG,
    "runs out of time in time": TOO_LONG,
    "that yields a million parts leaves room for others": TOO_LONG,
    "is told of a rejection that the agent's own code leaves floating, as the host has it": OWN_PROCESS,
    "lives, and exits by itself, whatever its agents do: the library adds no unhandled rejection": OWN_PROCESS,
  },
  "regressions.test.ts": {
    "cancel stops the agent, and its side effects with it": RUN_ONCE,
    "a part costs the same however many there are already": TOO_LONG,
    "a finished run leaves nothing behind that watches it, and its writes wake nobody else": TIMERS,
  },
  "runs.test.ts": {
    "lets so many runs of an agent be at work; the others stay created, and begin in their order": RUN_ONCE,
    "may be counted for each session by itself": RUN_ONCE,
    "keeps sessions of the same id apart that belong to different tenants": RUN_ONCE,
    "gives the place back while a run waits for an answer, and takes one again before it goes on": OUTSIDE,
    "takes a place again also when a question ends with its default": RUN_ONCE,
    "a run that is cancelled in the queue leaves it at once": RUN_ONCE,
    "a run that fails, is cancelled or runs out of time gives its place back": OUTSIDE,
    "maxLiveRuns counts sub-runs, so that an agent which runs itself comes to an end": TOO_LONG,
    "forgets ended runs after a time, and idle sessions after theirs": TOO_LONG,
    "keeps everything when it is told to": TOO_LONG,
    "reports what was left, and what it waited for; what cannot go on elsewhere fails as interrupted": HANDED_BACK,
    "does not wait where it is told not to": HANDED_BACK,
  },
  "sessions.test.ts": {
    "loses nothing of runs at the same time, each seeing it as it was when it was created": RUN_ONCE,
    "that a run has for itself goes with it, unless another joins it": TOO_LONG,
    "has a state that runs read and write": RUN_ONCE,
    "keeps the state that is set right before the end, also of a run on its own": FLOATING,
    "are averages of active time, tokens and success; cancelled runs count for none": TOO_LONG,
    "adds up over calls, and through questions": HAS_TIME,
  },
  "stores.test.ts": {
    "is given entries in batches, in order, and none twice": COUNTS_CALLS,
    "makes an agent wait when too much of it is under way": COUNTS_CALLS,
    "in the last append keeps the session's messages and state, and counts the run once": FLOATING,
    "in prune and close says so to the logger": TOO_LONG,
    "in the same epoch is read again, and what was decided is decided again": OUTSIDE,
    "in a higher epoch is given up: its agent is left alone, and nothing more is written": OUTSIDE,
  },
  "yields.test.ts": {
    "what is sent back is undefined after a plain yield, before and after an answer": RUN_ONCE,
    "a promise of a plain generator comes back to it as undefined, and one of a request as the answer": RUN_ONCE,
  },
  "bad-input.test.ts": {
    "of 'register()' throws an error that names it, and changes nothing": ARGUMENTS,
    "of 'register with null for options' throws an error that names it, and changes nothing": ARGUMENTS,
    "of 'register with a bad durable' throws an error that names it, and changes nothing": ARGUMENTS,
    "of 'register of a value with unknown opti…' throws an error that names it, and changes nothing": ARGUMENTS,
    "of 'register without a function' throws an error that names it, and changes nothing": ARGUMENTS,
  },
};

beforeEach(({ task, skip }) => {
  const reason = notRepeatable[basename(task.file.filepath)]?.[task.name];
  if (reason !== undefined) skip(reason);
});
