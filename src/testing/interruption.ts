import type { DriveEvent } from "./drive-event.ts";
import { describeDriveEvent } from "./drive-event.ts";
import type { Operation } from "./operation.ts";
import type { Delivery } from "./supply.ts";

/**
 * One way to disturb an agent. `at` is the number of the last thing that the agent had done, counted from 1; 0 for
 * none.
 */
export type Interruption =
  | { readonly kind: "none" }
  /** The run is cancelled after something that the agent did, or while one of its operations is at work. */
  | { readonly kind: "cancel"; readonly at: number; readonly during: OperationPlace | undefined }
  /** A step, a sub-agent or an `emit` throws. */
  | { readonly kind: "fail"; readonly at: number; readonly during: OperationPlace | undefined }
  /** A question gets the same answer twice, and then another answer. */
  | { readonly kind: "answer twice"; readonly at: number }
  /** A question gets its answer only when the agent does nothing more without it. */
  | { readonly kind: "answer late"; readonly at: number }
  /** A question expires, or a receive gets no message in time. */
  | { readonly kind: "expire"; readonly at: number; readonly during?: OperationPlace }
  /** The messages come before the agent begins. */
  | { readonly kind: "message early"; readonly at: 0; readonly deliveries: readonly Delivery[] }
  /** A receive gets its message only when the agent does nothing more without it. */
  | { readonly kind: "message late"; readonly at: number; readonly during: OperationPlace };

/** An operation as it is identified in every execution of the agent. */
export interface OperationPlace {
  readonly id: string;
  readonly label: string;
  /** How many things the agent had done when it began. */
  readonly at: number;
  /** Of a sleep or a receive: whether the test has a message for it, and whether it has a deadline. */
  readonly wait?: { readonly isSent: boolean; readonly expires: boolean };
}

/** The error that an agent is made to fail with. */
export class InjectedError extends Error {
  override readonly name = "InjectedError";
}

/** What identifies an operation in every execution of the same agent. */
export function operationId({ run_id, key }: Operation): string {
  return `${run_id}/${key}`;
}

/** An interruption in words: `cancelled after yield 2 (part "Looking for trains…")`. */
export function describeInterruption(interruption: Interruption, driveEvents: readonly DriveEvent[]): string {
  if (interruption.kind === "none") return "not interrupted";
  const { kind, at } = interruption;
  const driveEvent = driveEvents[at - 1];
  const what = driveEvent === undefined ? "" : ` (${describeDriveEvent(driveEvent)})`;
  switch (kind) {
    case "cancel":
      if (interruption.during !== undefined) return `cancelled during ${interruption.during.label}, ${after(at, what)}`;
      return `cancelled ${after(at, what)}`;
    case "fail":
      return `${interruption.during?.label ?? "emit"} failed, ${after(at, what)}`;
    case "answer twice":
      return `answered twice at yield ${at}${what}`;
    case "answer late":
      return `answered as late as possible at yield ${at}${what}`;
    case "message early":
      return "got its messages before it began";
    case "message late":
      return `${interruption.during.label} got its message as late as possible, ${after(at, what)}`;
    case "expire":
      if (interruption.during !== undefined)
        return `${interruption.during.label} got no message in time, ${after(at, what)}`;
      return `not answered in time at yield ${at}${what}`;
  }
}

function after(at: number, what: string): string {
  return at === 0 ? "before its first yield" : `after yield ${at}${what}`;
}
