import { AgentError, awaitMessage, CadenzaError } from "cadenza";
import * as z from "zod";
import { body } from "./bodies.ts";
import { generationScenarios } from "./generation-scenarios.ts";
import type { Scenario } from "./scenario.ts";
import { agents, isAwaiting, numberSchema } from "./scenario.ts";
import { waitingScenarios } from "./waiting-scenarios.ts";

/* Agents that use one feature each, and what a client does with them. */

const SESSION = "00000000-0000-4000-8000-00000000feed";

export const scenarios: readonly Scenario[] = [
  {
    name: "steps one after the other",
    ends: "completed: 1|2|3",
    register: agents(async function* ({ work }) {
      yield String(await work("one", 1));
      yield String(await work("two", 2));
      yield String(await work("three", 3));
    }),
  },
  {
    name: "steps at the same time",
    ends: "completed: a,b,c,d|after",
    register: agents(async function* ({ work }) {
      const all = await Promise.all([work("s", "a", 30), work("s", "b", 10), work("t", "c", 20), work("t", "d", 0)]);
      yield all.join();
      yield await work("last", "after");
    }),
  },
  {
    name: "steps that race",
    ends: "completed: fast|then slow",
    register: agents(async function* ({ work }) {
      const slow = work("slow", "slow", 400);
      yield await Promise.race([slow, work("fast", "fast", 1)]);
      yield `then ${await slow}`;
    }),
  },
  {
    name: "a step that is tried again",
    ends: "completed: at last|gave up: no",
    register: agents(async function* ({ context, process }) {
      const flaky = context.step(
        "flaky",
        async (s) => {
          const tried = await body(process, context, s, s.attempt, 3);
          if (tried < 3) throw new Error("not yet");
          return "at last";
        },
        { retry: { attempts: 5, backoffMs: 50 } },
      );
      yield await flaky;
      const hopeless = context.step(
        "hopeless",
        async (s) => {
          await body(process, context, s, 0, 1);
          throw new TypeError("no");
        },
        { retry: { attempts: 2 } },
      );
      yield await hopeless.catch((error: Error) => `gave up: ${error.message}`);
    }),
  },
  {
    name: "a step that takes too long",
    ends: "completed: in time # done|gave up: step_timeout",
    register: agents(async function* ({ context, process }) {
      const keys = new Set<string>();
      const slow = context.step(
        "slow",
        async (s) => {
          keys.add(s.idempotencyKey);
          await body(process, context, s, undefined, s.attempt === 1 ? 500 : 3);
          await s.emit(s.attempt === 1 ? "too late" : "in time");
          return keys.size === 1 ? "done" : "two keys";
        },
        { timeoutMs: 100, retry: { attempts: 3, backoffMs: 50 } },
      );
      yield await slow;
      const hopeless = context.step("hopeless", (s) => body(process, context, s, "late", 900), { timeoutMs: 20 });
      yield await hopeless.catch((error: unknown) => `gave up: ${CadenzaError.is(error) && error.code}`);
    }),
  },
  {
    name: "a step that runs at most once",
    ends: "completed: paid or unsure|end",
    register: agents(async function* ({ work }) {
      // The step may have been interrupted: the agent ends the same way in both cases.
      yield await work("pay", "paid or unsure", 20, { once: true }).catch(() => "paid or unsure");
      yield "end";
    }),
  },
  {
    name: "a streamed model answer",
    ends: "completed: before #  token 1| token 2| token 3 # after 3",
    register: agents(async function* ({ context, process }) {
      yield "before";
      const whole = await context.step("model", async (s) => {
        await body(process, context, s, 0, 2);
        for (const n of [1, 2, 3]) {
          await s.emit(` token ${n}`);
          await process.wait(5);
        }
        return 3;
      });
      yield `after ${whole}`;
    }),
  },
  {
    name: "a step that emits a message and an object",
    ends: "completed: whole # part|end",
    register: agents(async function* ({ context, process, work }) {
      await context.step("shows", async (s) => {
        await body(process, context, s, 0, 0);
        await s.emit({ progress: 1 });
      });
      await context.step("tells", async (s) => {
        await s.emit({ parts: [{ content: "whole" }] });
        await s.emit(null);
      });
      yield "part";
      await work("work", 1);
      yield "end";
    }),
  },
  {
    name: "questions one after the other",
    ends: 'completed: got 5 # and 5 # last {"number":5}',
    register: agents(async function* ({ context, work }) {
      const first = await context.ask("First?", { schema: numberSchema });
      yield `got ${first.number}`;
      await work("between", 1);
      const second = await context.ask("Second?", { schema: numberSchema });
      yield `and ${second.number}`;
      const last: unknown = yield awaitMessage("Last?");
      yield `last ${JSON.stringify(last)}`;
    }),
    answer: () => ({ number: 5 }),
  },
  {
    name: "several questions at once",
    ends: "completed: first 6|5,6,6",
    register: agents(async function* ({ context }) {
      const first = context.ask("A?", { schema: numberSchema }).then(async (answer) => {
        await context.emit(`first ${answer.number}`);
        return 5;
      });
      const others = [context.ask("B?", { schema: numberSchema }), context.ask("C?", { schema: numberSchema })];
      const [a, b, c] = await Promise.all([first, ...others]);
      yield [a, b, c].map((one) => (typeof one === "number" ? one : one?.number)).join();
    }),
    answer: () => ({ number: 6 }),
  },
  {
    name: "a question and a step at the same time",
    ends: "completed: step|5",
    register: agents(async function* ({ context, work }) {
      const asked = context.ask("Number?", { schema: numberSchema });
      yield await Promise.race([asked, work("quick", "step", 3)]);
      yield String((await asked).number);
    }),
    answer: (_request, log) => (log.some(({ type }) => type === "step") ? { number: 5 } : undefined),
  },
  {
    name: "a question that a step outruns",
    ends: "completed: step",
    register: agents(async function* ({ context, work }) {
      yield await Promise.race([context.ask("Number?"), work("quick", "step", 3)]);
    }),
    answer: () => undefined,
  },
  {
    name: "a deadline with a default",
    ends: "completed: default|later",
    register: agents(async function* ({ context, work }) {
      yield await context.ask("Quick?", { schema: z.string(), timeoutMs: 20_000, default: "default" });
      yield await work("then", "later");
    }),
    answer: () => undefined,
  },
  {
    name: "a deadline without a default",
    ends: "failed: asked # cleaned up",
    register: agents(async function* ({ context }) {
      yield "asked";
      try {
        await context.ask("Quick?", { timeoutMs: 20_000 });
      } finally {
        yield "cleaned up";
      }
    }),
    answer: () => undefined,
  },
  {
    name: "a cancel while a step runs",
    ends: "cancelled: begun|stopped run_cancelled|finally",
    register: agents(async function* ({ work }) {
      yield "begun";
      try {
        await work("long", 1, 5_000);
      } catch (error) {
        yield `stopped ${(error as { code: string }).code}`;
      } finally {
        yield "finally";
      }
    }),
    cancelWhen: (_state, log) => log.some(({ type }) => type === "intent"),
  },
  {
    name: "a cancel while a question is open",
    ends: "cancelled: one|two # finally",
    register: agents(async function* ({ context, work }) {
      yield "one";
      await work("before", 1);
      yield "two";
      try {
        await context.ask("Well?");
      } finally {
        yield "finally";
      }
    }),
    answer: () => undefined,
    cancelWhen: isAwaiting,
  },
  {
    name: "a cancel at once",
    ends: "cancelled: ",
    register: agents(async function* ({ work }) {
      await work("long", 1, 5_000);
      yield "never";
    }),
    cancelWhen: () => true,
  },
  {
    name: "a cancel after an answer",
    ends: "cancelled: 5|finally",
    register: agents(async function* ({ context, work }) {
      try {
        yield String((await context.ask("Number?", { schema: numberSchema })).number);
        await work("long", 1, 5_000);
      } finally {
        yield "finally";
      }
    }),
    cancelWhen: (_state, log) => log.some((entry) => entry.type === "intent" && entry.key === "long#1"),
  },
  {
    name: "a sub-run with steps",
    ends: "completed: completed: child 7|end",
    register: agents(
      async function* ({ context, work }) {
        const { status, output } = await context.run("child", "Go.");
        yield `${status}: ${output[0]?.parts[0]?.content}`;
        yield await work("last", "end");
      },
      {
        async *child({ work, context }) {
          context.usage.add({ input_tokens: 3, output_tokens: 4 });
          yield `child ${await work("inner", 7, 10)}`;
        },
      },
    ),
  },
  {
    name: "a sub-run that asks",
    ends: "completed: 5+5|end 1",
    register: agents(
      async function* ({ context, work }) {
        const { output } = await context.run("child", "Go.");
        yield `${output[0]?.parts[0]?.content}`;
        yield `end ${await work("last", 1)}`;
      },
      {
        async *child({ context, work }) {
          const first = await context.ask("Number?", { schema: numberSchema });
          await work("between", 1);
          const second = await context.ask("Another?", { schema: numberSchema });
          yield `${first.number}+${second.number}`;
        },
      },
    ),
    answer: () => ({ number: 5 }),
  },
  {
    name: "a sub-run that is shown",
    ends: "completed: before # child # model 1|model 2|model 3 # whole # end 7",
    register: agents(
      async function* ({ context, work }) {
        yield "before";
        const { output } = await context.run("child", "Go.", { show: true });
        const { output: unseen } = await context.run("child", "Go.");
        yield `end ${output.length + unseen.length + (await work("last", 1))}`;
      },
      {
        async *child({ context, process }) {
          yield "child";
          yield { progress: 1 };
          await context.step("model", async (s) => {
            await body(process, context, s, 0, 2);
            for (const n of [1, 2, 3]) {
              await s.emit(`model ${n}`);
              await process.wait(5);
            }
          });
          yield { parts: [{ content: "whole" }] };
        },
      },
    ),
  },
  {
    name: "a sub-run that is shown, that asks, and that shows its own",
    // In another process its question may come before what it has emitted.
    isUnordered: true,
    ends: "completed: Let me see. # leaf 1|leaf 2 # So 5 # end",
    register: agents(
      async function* ({ context }) {
        await context.run("child", "Go.", { show: true });
        yield "end";
      },
      {
        async *child({ context }) {
          yield "Let me see.";
          const { number } = await context.ask("Number?", { schema: numberSchema });
          await context.run("leaf", "Go.", { show: true });
          yield `So ${number}`;
        },
        async *leaf({ work }) {
          yield "leaf 1";
          await work("inner", 1, 10);
          yield "leaf 2";
        },
      },
    ),
    answer: () => ({ number: 5 }),
  },
  {
    name: "sub-runs at the same time, one of which has a deadline",
    isUnordered: true,
    ends: "completed: late,5",
    register: agents(
      async function* ({ context }) {
        const runs = await Promise.all([context.run("waits", "Go."), context.run("asks", "Go.")]);
        yield runs.map(({ output }) => output[0]?.parts[0]?.content).join();
      },
      {
        async *waits({ context }) {
          yield await context.ask("Now?", { schema: z.string(), timeoutMs: 20_000, default: "late" });
        },
        async *asks({ context }) {
          yield String((await context.ask("Number?", { schema: numberSchema })).number);
        },
      },
    ),
    answer: ({ message }) => (message.parts[0]?.content === "Now?" ? undefined : { number: 5 }),
  },
  {
    name: "a cancel while a sub-run is in progress",
    ends: "cancelled: finally",
    register: agents(
      async function* ({ context }) {
        try {
          await context.run("child", "Go.");
        } finally {
          yield "finally";
        }
      },
      {
        async *child({ work }) {
          yield "child";
          await work("long", 1, 5_000);
        },
      },
    ),
    cancelWhen: (_state, log) => log.some(({ type }) => type === "intent"),
  },
  {
    name: "a session with history and state",
    ends: "completed: earlier|null then 1 # 1",
    session: { id: SESSION, history: ["earlier"] },
    register: agents(async function* ({ context, work }) {
      const history = await context.session.history();
      yield history.map(({ parts }) => parts[0]?.content).join();
      const before = await context.session.getState();
      await context.session.setState({ count: await work("count", 1) });
      const after = (await context.session.getState()) as { count: number };
      yield `${JSON.stringify(before)} then ${after.count}`;
      yield String((await context.ask("Sure?", { schema: numberSchema })).number);
    }),
    answer: () => ({ number: 1 }),
  },
  {
    name: "usage of agents and steps",
    ends: "completed: 11",
    register: agents(async function* ({ context, work, process }) {
      context.usage.add({ input_tokens: 1, output_tokens: 0 });
      await Promise.all(
        ["a", "b"].map(async (name) => {
          await work(name, 1, 3);
          context.usage.add({ input_tokens: 1, output_tokens: 1 });
        }),
      );
      await work("then", 1);
      context.usage.add({ input_tokens: 1, output_tokens: 1 });
      await context.step("inside", async (s) => {
        await body(process, context, s, 0, 3);
        context.usage.add({ input_tokens: 2, output_tokens: 2 });
      });
      yield String(context.usage.total?.total_tokens);
    }),
  },
  {
    name: "time, chance and ids",
    ends: "completed: true true true|true true true",
    register: agents(async function* ({ context, work }) {
      for (const name of ["first", "second"]) {
        const uuid = context.uuid();
        const chance = context.random();
        const now = context.now();
        const kept = await work(name, { uuid, chance, now }, 7);
        yield `${kept.uuid === uuid} ${kept.chance === chance} ${kept.now === now}`;
      }
    }),
  },
  {
    name: "objects, messages and artifacts",
    ends: "completed: joined|parts # whole|message # artifact # end",
    register: agents(async function* ({ work }) {
      yield "joined";
      yield { progress: 1 };
      yield "parts";
      yield { parts: [{ content: "whole" }, { content: "message" }] };
      await work("between", 1);
      yield null;
      yield { name: "file.txt", content: "artifact" };
      yield null;
      yield ["end"];
    }),
  },
  {
    name: "errors thrown in steps",
    ends: 'completed: Error: broke|E42: known {"at":1}|caught',
    register: agents(async function* ({ context, process, work }) {
      const breaks = (name: string, error: Error) =>
        context.step(name, async (s) => {
          await body(process, context, s, 0, 2);
          throw error;
        });
      yield await breaks("plain", new Error("broke")).catch((error: Error) => `${error.name}: ${error.message}`);
      yield await breaks("known", new AgentError("E42", "known", { at: 1 })).catch(
        (error: AgentError) => `${error.code}: ${error.message} ${JSON.stringify(error.data)}`,
      );
      try {
        await Promise.all([work("slow", 1, 50), breaks("fails", new Error("one of them"))]);
      } catch {
        yield "caught";
      }
    }),
  },
  {
    name: "an error meant for the client",
    ends: "failed: before|finally",
    register: agents(async function* ({ work }) {
      try {
        yield "before";
        await work("one", 1);
        throw new AgentError("no_seats", "There are no seats.", { train: 7 });
      } finally {
        yield "finally";
      }
    }),
  },
  {
    name: "a run that takes too long",
    ends: "failed: begun|stopped run_timeout",
    timeoutMs: 60_000,
    register: agents(async function* ({ work }) {
      yield "begun";
      try {
        await work("short", 1);
        await work("endless", 1, 10_000_000);
      } catch (error) {
        yield `stopped ${(error as { code: string }).code}`;
      }
    }),
  },
  {
    name: "steps that the agent does not wait for",
    ends: "completed: end",
    register: agents(async function* ({ work }) {
      void work("aside", 1, 3);
      void work("beside", 1, 3);
      await work("main", 1, 3);
      yield "end";
    }),
  },
  ...waitingScenarios,
  ...generationScenarios,
];
