export { type Declined, decline } from "./testing/answer.ts";
export { type Cassette, record } from "./testing/cassette.ts";
export type { Difference } from "./testing/comparison.ts";
export { CrashReport, type CrashResult } from "./testing/crash-report.ts";
export { type AnswerOptions, Drive, drive, type NextOptions } from "./testing/drive.ts";
export { DriveError } from "./testing/drive-error.ts";
export type {
  AwaitDriveEvent,
  DriveEvent,
  EndDriveEvent,
  GenericDriveEvent,
  MessageDriveEvent,
  PartDriveEvent,
} from "./testing/drive-event.ts";
export type { AgentStandIn, DriveOptions, DriveSession } from "./testing/drive-options.ts";
export type { Duration, Instant } from "./testing/duration.ts";
export { type CrashOptions, everyCrash } from "./testing/every-crash.ts";
export { everyInterruption, type InterruptionOptions } from "./testing/every-interruption.ts";
export { createFakeClock, type FakeClock, type FakeClockOptions } from "./testing/fake-clock.ts";
export { InterruptionReport, type InterruptionResult } from "./testing/interruption-report.ts";
export { type CadenzaMatchers, type MatcherResult, matchers } from "./testing/matchers.ts";
export type { Operation } from "./testing/operation.ts";
export type { Answers } from "./testing/rehearsal.ts";
export { CassetteMismatch, type ReplayOptions, replay } from "./testing/replay.ts";
export type { StepStandIn, StepStandInScope } from "./testing/staged-context.ts";
export type { Messages, TestMessage } from "./testing/supply.ts";
