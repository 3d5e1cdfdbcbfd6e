import type { RunStatus } from "../protocol/run.ts";
import type { CadenzaErrorCode } from "./errors.ts";

/** What can be asked of a run. */
export type CommandType = keyof typeof table;

/**
 * `accept`: the command is carried out. `drop`: it changes nothing, which is no error. Otherwise: the code of the
 * refusal.
 */
export type Verdict = "accept" | "drop" | Extract<CadenzaErrorCode, "not_awaiting" | "run_cancelling" | "run_finished">;

const yes = "accept";
const no = "drop";

/**
 * The transition table: which command a run accepts in which status. It is the only one in the library. A run that has
 * ended drops what its agent still does.
 */
const table = {
  //           created         in-progress     awaiting  cancelling        completed       failed          cancelled
  fork:       [yes,            yes,            no,       no,               no,             no,             no],
  start:      [yes,            no,             no,       no,               no,             no,             no],
  emit:       [no,             yes,            yes,      yes,              no,             no,             no],
  tear:       [no,             yes,            yes,      yes,              no,             no,             no],
  intend:     [no,             yes,            yes,      no,               no,             no,             no],
  retry:      [no,             yes,            yes,      no,               no,             no,             no],
  record:     [no,             yes,            yes,      yes,              no,             no,             no],
  ask:        [no,             yes,            yes,      no,               no,             no,             no],
  reply:      ["not_awaiting", "not_awaiting", yes,      "run_cancelling", "not_awaiting", "not_awaiting", "not_awaiting"],
  settle:     [no,             yes,            yes,      no,               no,             no,             no],
  offer:      [no,             no,             yes,      no,               no,             no,             no],
  refuse:     [no,             yes,            yes,      no,               no,             no,             no],
  receive:    [yes,            yes,            yes,      "run_cancelling", "run_finished", "run_finished", "run_finished"],
  take:       [no,             yes,            yes,      no,               no,             no,             no],
  patch:      [no,             yes,            yes,      yes,              no,             no,             no],
  move:       [yes,            yes,            yes,      no,               no,             no,             no],
  withdraw:   [no,             yes,            yes,      no,               no,             no,             no],
  expire:     [no,             no,             yes,      no,               no,             no,             no],
  overrun:    [no,             yes,            yes,      no,               no,             no,             no],
  exceed:     [no,             yes,            yes,      yes,              no,             no,             no],
  cancel:     [yes,            yes,            yes,      no,               "run_finished", "run_finished", no],
  continue:   [no,             yes,            yes,      no,               no,             no,             no],
  end:        [yes,            yes,            yes,      yes,              no,             no,             no],
} as const satisfies Record<string, Row>; // biome-ignore format: a table is read in columns

type Row = readonly [Verdict, Verdict, Verdict, Verdict, Verdict, Verdict, Verdict];

const column: Readonly<Record<RunStatus, 0 | 1 | 2 | 3 | 4 | 5 | 6>> = {
  created: 0,
  "in-progress": 1,
  awaiting: 2,
  cancelling: 3,
  completed: 4,
  failed: 5,
  cancelled: 6,
};

/** What the table says. */
export function verdict(command: CommandType, status: RunStatus): Verdict {
  return table[command][column[status]];
}
