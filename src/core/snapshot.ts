import { roughLength } from "./rough-length.ts";
import type { RunState } from "./state.ts";
import { MessageKeys } from "./state.ts";

/** A folded state as a store keeps it: the beginning of a log need not be read again. It can be deleted at any time. */
export interface Snapshot {
  /** How many entries of the log are in it. */
  readonly position: number;
  /** The number of the format of the library that has made it. */
  readonly format: number;
  /** JSON. */
  readonly state: string;
}

/** Raised with each change of what a state holds, or of how `evolve` folds: what another version has made is not used. */
const SNAPSHOT_FORMAT = 1;

/** About how many characters a state may have that is kept. A larger one takes as long to read as the log. */
const MAX_STATE = 262_144;
/** How many parts, questions or messages it may have. They are counted before anything is written. */
const MAX_ITEMS = 2_000;

/** Undefined: the state is too large. */
export function toSnapshot(state: RunState): Snapshot | undefined {
  if (itemsOf(state) > MAX_ITEMS) return undefined;
  const plain = toPlain(state);
  if (roughLength(plain) > MAX_STATE) return undefined;
  return { position: state.position, format: SNAPSHOT_FORMAT, state: JSON.stringify(plain) };
}

/** Undefined: another version has made it, or it is damaged. */
export function fromSnapshot({ position, format, state: json }: Snapshot): RunState | undefined {
  if (format !== SNAPSHOT_FORMAT) return undefined;
  try {
    const state = fromPlain(JSON.parse(json) as Plain);
    return state.position === position ? state : undefined;
  } catch {
    return undefined;
  }
}

function itemsOf({ output, exchanges, mail }: RunState): number {
  let items = output.length + (exchanges?.length ?? 0) + (mail?.keys.size ?? 0);
  for (const { parts } of output) items += parts.length;
  return items;
}

type Plain = ReturnType<typeof toPlain>;

/** The state without maps and sets, and without a second place for an object of the output. */
function toPlain(state: RunState) {
  const { output, waits, emitters, mail } = state;
  return {
    ...state,
    waits: waits && [...waits],
    emitters: emitters && {
      ...emitters,
      copied: [...emitters.copied],
      drafts: [...emitters.drafts].map(([key, { attempt, messages }]) => {
        return [key, attempt, messages.map((message) => output.lastIndexOf(message))] as const;
      }),
    },
    mail: mail && {
      ...mail,
      keys: [...mail.keys],
      offers: [...mail.offers],
      refusals: [...mail.refusals],
      settled: [...mail.settled],
    },
  };
}

function fromPlain(plain: Plain): RunState {
  const { output, waits, emitters, mail } = plain;
  return {
    ...plain,
    waits: waits && new Map(waits),
    emitters: emitters && {
      ...emitters,
      copied: new Map(emitters.copied),
      drafts: new Map(
        emitters.drafts.map(([key, attempt, places]) => {
          return [key, { attempt, messages: places.flatMap((place) => output[place] ?? []) }];
        }),
      ),
    },
    mail: mail && {
      ...mail,
      keys: new MessageKeys(undefined, mail.keys),
      offers: new Map(mail.offers),
      refusals: new Map(mail.refusals),
      settled: new Set(mail.settled),
    },
  };
}
