import { isLongerThan } from "./rough-length.ts";
import type { RunState } from "./state.ts";
import { Inbox, MessageKeys } from "./state.ts";

/** A folded state as a store keeps it: the beginning of a log need not be read again. It can be deleted at any time. */
export interface Snapshot {
  /** How many entries of the log are in it. */
  readonly position: number;
  /** The number of the format of the library that has made it. */
  readonly format: number;
  /** JSON. */
  readonly state: string;
}

/**
 * Raised with each change of what a state holds, of how `evolve` folds, and of the kinds of entries: what another version
 * has made is not used.
 */
const SNAPSHOT_FORMAT = 1;

/** About how many characters a state may have that is kept. A larger one takes as long to read as the log. */
const MAX_STATE = 262_144;
/** How many members its lists may have together. */
const MAX_MEMBERS = 4_000;

/** Undefined: the state is too large. */
export function toSnapshot(state: RunState): Snapshot | undefined {
  // Both are bounded: the owner of a run has other work.
  if (membersOf(state) > MAX_MEMBERS) return undefined;
  const plain = toPlain(state);
  if (isLongerThan(MAX_STATE, plain)) return undefined;
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

function membersOf({ output, exchanges, waits, emitters, mail }: RunState): number {
  const ofEmitters = emitters === null ? 0 : emitters.copied.size + emitters.drafts.size;
  const ofMail = mail === null ? 0 : mail.inbox.size + mail.keys.size + mail.settled.size;
  return output.length + (exchanges?.length ?? 0) + (waits?.size ?? 0) + ofEmitters + ofMail;
}

type Plain = ReturnType<typeof toPlain>;

/** The state without maps and sets. A message of a draft is told by its place in the output. */
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
      inbox: [...mail.inbox],
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
      inbox: new Inbox(mail.inbox),
      keys: new MessageKeys(undefined, mail.keys),
      offers: new Map(mail.offers),
      refusals: new Map(mail.refusals),
      settled: new Set(mail.settled),
    },
  };
}
