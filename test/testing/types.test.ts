import type { Message, Run } from "cadenza";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import type {
  CadenzaMatchers,
  Cassette,
  CrashReport,
  Drive,
  DriveEvent,
  FakeClock,
  InterruptionReport,
  StoreCheck,
} from "cadenza/testing";
import {
  createFakeClock,
  drive,
  everyCrash,
  everyInterruption,
  matchers,
  record,
  replay,
  storeContract,
} from "cadenza/testing";
import { expect, expectTypeOf, it } from "vitest";

type DriveEventOf<Type extends DriveEvent["type"]> = Extract<DriveEvent, { readonly type: Type }>;

const agent = defineAgent("agent", () => "x");

it("the kit's results have precise types", () => {
  expectTypeOf(drive).returns.toEqualTypeOf<Drive>();
  expectTypeOf<Drive["next"]>().returns.resolves.toEqualTypeOf<DriveEvent>();
  expectTypeOf<Drive["finish"]>().returns.resolves.toEqualTypeOf<Run>();
  expectTypeOf<Drive["clock"]>().toEqualTypeOf<FakeClock>();
  expectTypeOf<Drive["answer"]>().parameter(0).toEqualTypeOf<unknown>();
  expectTypeOf<DriveEvent["type"]>().toEqualTypeOf<"part" | "message" | "generic" | "await" | "end">();
  expectTypeOf<DriveEventOf<"end">["status"]>().toEqualTypeOf<"completed" | "failed" | "cancelled">();
  expectTypeOf(everyInterruption).returns.resolves.toEqualTypeOf<InterruptionReport>();
  expectTypeOf(everyCrash).returns.resolves.toEqualTypeOf<CrashReport>();
  expectTypeOf<CrashReport["results"][number]["kind"]>().toEqualTypeOf<"none" | "crash" | "lost reply" | "replay">();
  expectTypeOf(record).returns.resolves.toEqualTypeOf<Cassette>();
  expectTypeOf(replay).returns.resolves.toEqualTypeOf<Run>();
  expectTypeOf<keyof typeof matchers>().toEqualTypeOf<keyof CadenzaMatchers>();
  expectTypeOf(storeContract).toExtend<readonly StoreCheck[]>();
});

it("the compiler takes valid arguments and refuses others", () => {
  // Checked by the compiler, and never called.
  const written = async (t: Drive): Promise<void> => {
    new AgentRuntime({ clock: createFakeClock() });
    drive(agent, "x", {
      steps: {
        plan: { via: "Brussels" },
        "fetch:*": ({ name, attempt }) => `${name} ${attempt}`,
        save: new Error("no"),
      },
      agents: {
        hotel: "Room 12",
        train: agent,
        "*": async function* (input: readonly Message[]) {
          yield* input;
        },
      },
    });
    expectTypeOf(await t.until("await")).toEqualTypeOf<DriveEventOf<"await">>();
    expectTypeOf(await t.until("end")).toEqualTypeOf<DriveEventOf<"end">>();
    await t.clock.advance("1.5h");
    // @ts-expect-error a duration has a known unit
    await t.clock.advance("1 fortnight");
    // @ts-expect-error there is no such type of event
    await t.until("message.part");
    // @ts-expect-error a number is no input
    drive(agent, 5);
    await record(new MemoryStore(), t.run);
  };
  expect(written).toBeTypeOf("function");
  expect(Object.keys(matchers)).toContain("toHaveCompleted");
});
