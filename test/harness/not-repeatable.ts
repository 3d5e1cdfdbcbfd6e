import { basename } from "node:path";
import { beforeEach } from "vitest";

/*
 * Tests of the runtime that cannot hold for durable agents which are replayed after each commit, with the reason.
 */

const RUN_ONCE = "counts how often code outside of steps runs";
const OUTSIDE = "its agent depends on variables and timers outside of steps, so that its replay does not match";
const TIMERS = "counts timers, and a persistent store is scanned at intervals";
const HANDED_BACK = "a durable run is released when the runtime is closed, and does not fail";
const FLOATING = "a step that the agent does not wait for may be cut off by the end of the run";
const COUNTS_CALLS = "counts calls of the store, and a replay takes more";
const ARGUMENTS = "calls `register` with invalid arguments";
const TOO_LONG = "its agent emits without end or works for hours, which takes too long to replay after each commit";
const OWN_PROCESS = "uses a process of its own, in which nothing is replayed";
const HAS_TIME = "its agent reads the time, which is later in the replay";

const notRepeatable: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "cancel.test.ts": {
    "runs the finally blocks of the agent also when the iterable that is drained ends by itself then": RUN_ONCE,
    "by the agent itself works in every form of agent": RUN_ONCE,
    "ends: an agent that does not stop is abandoned, and what it still emits is dropped and counted": RUN_ONCE,
    "may be zero or infinite": TIMERS,
    "leaves no timer when the agent stops in time": TIMERS,
    "counts active time only: waiting for answers does not count": OUTSIDE,
    "leaves no timer when the run ends": TIMERS,
  },
  "events.test.ts": {
    "a reader of a run that has been removed is told so": TOO_LONG,
  },
  "misbehaving.test.ts": {
    "is cancelled in time": TOO_LONG,
    "times out in time": TOO_LONG,
    "that yields a million parts lets other runs be served": TOO_LONG,
    "gets an unhandled rejection of the agent's own code, by the host's setting": OWN_PROCESS,
    "lives, and exits by itself, whatever its agents do: the library adds no unhandled rejection": OWN_PROCESS,
  },
  "regressions.test.ts": {
    "cancel stops the agent, and its side effects with it": RUN_ONCE,
    "the cost of a part does not depend on the number of parts": TOO_LONG,
    "a finished run leaves no listeners, and its writes notify no other run": TIMERS,
  },
  "runs.test.ts": {
    "limits how many runs of an agent execute; the others stay created, and begin in their order": RUN_ONCE,
    "may be counted per session": RUN_ONCE,
    "keeps sessions of the same id apart that belong to different tenants": RUN_ONCE,
    "releases the slot while a run waits for an answer, and takes one again before it goes on": OUTSIDE,
    "takes a slot again also when a question ends with its default": RUN_ONCE,
    "a run that is cancelled in the queue leaves it at once": RUN_ONCE,
    "a run that fails, is cancelled or times out releases its slot": OUTSIDE,
    "maxLiveRuns counts sub-runs, so that an agent which runs itself ends": TOO_LONG,
    "removes ended runs after a time, and idle sessions after theirs": TOO_LONG,
    "of Infinity keeps everything": TOO_LONG,
    "reports the runs that were left, and what they waited for; those that are not durable fail as interrupted":
      HANDED_BACK,
    "does not wait with a drainMs of 0": HANDED_BACK,
  },
  "sessions.test.ts": {
    "loses nothing of runs at the same time; each sees the history as of its creation": RUN_ONCE,
    "of one run is removed with it, unless another run joins it": TOO_LONG,
    "has a state that runs read and write": RUN_ONCE,
    "keeps the state that is set right before the end, also of a run with a session of its own": FLOATING,
    "are averages of active time, tokens and success; cancelled runs count for none": TOO_LONG,
    "adds up over calls, and through questions": HAS_TIME,
  },
  "stores.test.ts": {
    "is given entries in batches, in order, and none twice": COUNTS_CALLS,
    "makes an agent wait when too many entries are not committed": COUNTS_CALLS,
    "in the last append keeps the session's messages and state, and counts the run once": FLOATING,
    "in prune and close is reported to the logger": TOO_LONG,
    "in the same epoch is read again, and pending commands are decided again": OUTSIDE,
    "in a higher epoch is lost: its agent is abandoned, and nothing more is written": OUTSIDE,
  },
  "yields.test.ts": {
    "a plain yield returns undefined, before and after an answer": RUN_ONCE,
    "a plain generator that yields a promise gets undefined, and one of a request gets the answer": RUN_ONCE,
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
