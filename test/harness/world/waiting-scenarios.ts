import { AgentError, CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import * as z from "zod";
import type { ScriptedMessage } from "./client.ts";
import type { Scenario } from "./scenario.ts";
import { agents, numberSchema } from "./scenario.ts";

/* Agents that wait for time, messages and declined or withdrawn questions, and what a client does with them. */

/** The messages of a script are sent one after the other. Two with the same number are the same message. */
function mail(number: number, when: ScriptedMessage["when"], data: ScriptedMessage["data"] = { value: number }) {
  return { name: "mail", idempotencyKey: `mail ${number}`, data, when };
}

function codeOf(error: unknown): string {
  if (!CadenzaError.is(error)) throw error;
  return error.code;
}

function has(log: readonly Entry[], type: Entry["type"]): boolean {
  return log.some((entry) => entry.type === type);
}

export const waitingScenarios: readonly Scenario[] = [
  {
    name: "a sleep",
    ends: "completed: before|after",
    register: agents(async function* ({ context, work }) {
      yield "before";
      await context.sleep("20s");
      yield await work("work", "after");
    }),
  },
  {
    name: "sleeps side by side",
    ends: "completed: short|middle|long|0 ms",
    register: agents(async function* ({ context }) {
      const nap = async (ms: number, text: string): Promise<void> => {
        await context.sleep(ms, { name: text });
        await context.emit(text);
      };
      await Promise.all([nap(9_000, "long"), nap(2_000, "short"), nap(5_000, "middle")]);
      await Promise.all([context.sleep(0), context.sleep("0ms")]);
      yield "0 ms";
    }),
  },
  {
    name: "a sleep in a sub-run",
    ends: "completed: slept",
    register: agents(
      async function* ({ context }) {
        const { output } = await context.run("child", "Go.");
        yield `${output[0]?.parts[0]?.content}`;
      },
      {
        async *child({ context }) {
          await context.sleep("20s");
          yield "slept";
        },
      },
    ),
  },
  {
    name: "sub-runs that wait side by side, below a sub-run",
    ends: 'completed: slept,{"value":1},5,worked|end',
    register: agents(
      async function* ({ context, work }) {
        const { output } = await context.run("child", "Go.");
        yield `${output[0]?.parts[0]?.content}`;
        yield await work("last", "end");
      },
      {
        async *child({ context }) {
          const all = await Promise.all(
            ["sleeper", "receiver", "asker", "worker"].map(async (name) => context.run(name, "Go.")),
          );
          yield all.map(({ output }) => output[0]?.parts[0]?.content).join();
        },
        async *sleeper({ context }) {
          await context.sleep("20s");
          yield "slept";
        },
        async *receiver({ context }) {
          yield JSON.stringify(await context.receive("mail", { timeoutMs: 9_000, default: { value: 1 } }));
        },
        async *asker({ context }) {
          yield String((await context.ask("Number?", { schema: numberSchema })).number);
        },
        async *worker({ work }) {
          yield await work("work", "worked", 3_000);
        },
      },
    ),
    answer: () => ({ number: 5 }),
  },
  {
    name: "messages that come before, while and after they are asked for",
    ends: 'completed: {"value":1}|{"value":2}|none|{"value":3}',
    register: agents(async function* ({ context, work }) {
      await work("first", 1, 20);
      yield JSON.stringify(await context.receive("mail"));
      yield JSON.stringify(await context.receive("mail"));
      yield String(await context.receive("mail", { timeoutMs: 20_000, default: "none" }));
      await work("last", 1, 20);
      yield JSON.stringify(await context.receive("mail"));
    }),
    messages: [
      mail(1, (_state, log) => has(log, "intent")),
      mail(1, () => true),
      mail(2, ({ waits }) => waits?.has("receive:mail#2") === true),
      mail(2, () => true),
      mail(3, (_state, log) => log.some((entry) => entry.type === "taken" && entry.position === null)),
    ],
  },
  {
    name: "receives side by side",
    ends: 'completed: {"value":1} {"value":2}',
    register: agents(async function* ({ context }) {
      const all = await Promise.all([context.receive("mail"), context.receive("mail")]);
      yield all.map((one) => JSON.stringify(one)).join(" ");
    }),
    messages: [mail(1, () => true), mail(2, ({ waits }) => waits !== null && waits.size > 0)],
  },
  {
    name: "a receive that times out, and one that does not wait",
    ends: "completed: receive_timeout|receive_timeout|nothing",
    register: agents(async function* ({ context }) {
      yield await context.receive("mail", { timeoutMs: 20_000 }).then(String, codeOf);
      yield await context.receive("mail", { timeoutMs: 0 }).then(String, codeOf);
      yield String(await context.receive("mail", { timeoutMs: 0, default: "nothing" }));
    }),
  },
  {
    name: "a message that does not match its schema",
    ends: "completed: message_rejected|2",
    register: agents(async function* ({ context }) {
      const schema = z.object({ value: z.number() });
      yield await context.receive("mail", { schema }).then(String, codeOf);
      yield String((await context.receive("mail", { schema })).value);
    }),
    messages: [mail(1, () => true, "one"), mail(2, () => true)],
  },
  {
    name: "a declined question",
    ends: "completed: answer_declined # 5 answer",
    register: agents(async function* ({ context }) {
      yield await context.ask("Sure?", { schema: numberSchema }).then(String, codeOf);
      const { value, how } = await context.ask("Number?", { schema: numberSchema, details: true });
      yield `${value.number} ${how}`;
    }),
    answer: () => ({ number: 5 }),
    decline: ({ message }) => (message.parts[0]?.content === "Sure?" ? { reason: "no" } : undefined),
  },
  {
    name: "a declined question of a sub-run",
    ends: "completed: failed",
    register: agents(
      async function* ({ context }) {
        yield (await context.run("child", "Go.")).status;
      },
      {
        async *child({ context }) {
          await context.ask("Sure?");
          yield "never";
        },
      },
    ),
    decline: () => ({}),
  },
  {
    name: "a withdrawn question",
    ends: "completed: slept|withdrawn|end",
    register: agents(async function* ({ context, work }) {
      const controller = new AbortController();
      const asked = context.ask("Well?", { signal: controller.signal }).then(
        () => "answered",
        (error: AgentError) => error.code,
      );
      await context.sleep(20_000);
      yield "slept";
      controller.abort(new AgentError("withdrawn", "There was no answer."));
      yield await asked;
      yield await work("last", "end");
    }),
    answer: () => undefined,
  },
  {
    name: "a sleep and a receive that are aborted at their end",
    ends: 'completed: {"value":1}|end',
    register: agents(async function* ({ context, work }) {
      const controller = new AbortController();
      const { signal } = controller;
      const received = context.receive("mail", { signal }).catch(() => undefined);
      const slept = context.sleep(20_000, { signal }).catch(() => undefined);
      await context.sleep(20_000);
      controller.abort();
      await slept;
      yield JSON.stringify((await received) ?? (await context.receive("mail")));
      yield await work("last", "end");
    }),
    messages: [mail(1, (_state, log) => has(log, "step"))],
  },
  {
    name: "a sub-run of a sub-run that asks",
    ends: "completed: 5",
    register: agents(
      async function* ({ context }) {
        const { output } = await context.run("child", "Go.");
        yield `${output[0]?.parts[0]?.content}`;
      },
      {
        async *child({ context }) {
          const { output } = await context.run("grandchild", "Go.");
          yield `${output[0]?.parts[0]?.content}`;
        },
        async *grandchild({ context }) {
          yield String((await context.ask("Number?", { schema: numberSchema })).number);
        },
      },
    ),
    answer: () => ({ number: 5 }),
  },
  {
    name: "answers, a decline and a message that another process takes",
    ends: 'completed: 5|{"value":1} # answer_declined|5',
    elsewhere: true,
    register: agents(
      async function* ({ context }) {
        yield String((await context.ask("Number?", { schema: numberSchema })).number);
        yield JSON.stringify(await context.receive("mail"));
        yield await context.ask("Sure?").then(String, codeOf);
        const { output } = await context.run("child", "Go.");
        yield `${output[0]?.parts[0]?.content}`;
      },
      {
        async *child({ context }) {
          yield String((await context.ask("Number?", { schema: numberSchema })).number);
        },
      },
    ),
    answer: () => ({ number: 5 }),
    decline: ({ message }) => (message.parts[0]?.content === "Sure?" ? { reason: "no" } : undefined),
    messages: [mail(1, ({ waits }) => waits !== null && waits.size > 0)],
  },
];
