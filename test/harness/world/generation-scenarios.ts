import type { Scenario } from "./scenario.ts";
import { agents, isAwaiting, numberSchema } from "./scenario.ts";

/* Agents that continue as new, and what a client does with them. */

export const generationScenarios: readonly Scenario[] = [
  {
    name: "generations with steps",
    ends: "completed: 2 after 32|end",
    register: agents(async function* ({ context, work }) {
      const sum = Number(context.carry ?? 0) + (await work("one", context.generation));
      yield `${await work("two", context.generation)} after ${sum}${context.generation}`;
      if (context.generation === 1) return context.continueAsNew(sum);
      yield "end";
      return undefined;
    }),
  },
  {
    name: "generations with questions",
    ends: "completed: got 15",
    register: agents(async function* ({ context, work }) {
      const { number } = await context.ask(`Number ${context.generation}?`, { schema: numberSchema });
      const sum = Number(context.carry ?? 0) + number;
      await work("between", 1);
      if (context.generation < 3) return context.continueAsNew(sum);
      yield `got ${sum}`;
      return undefined;
    }),
    answer: () => ({ number: 5 }),
  },
  {
    name: "generations that receive what was sent before",
    ends: "completed: 1,2,3",
    register: agents(async function* ({ context, work }) {
      const { value } = (await context.receive("mail")) as { value: number };
      const got = [...((context.carry as number[] | undefined) ?? []), await work("note", value)];
      if (got.length < 3) return context.continueAsNew(got);
      yield got.join();
      return undefined;
    }),
    messages: [1, 2, 3].map((value) => ({
      name: "mail",
      idempotencyKey: `mail ${value}`,
      data: { value },
      when: () => true,
    })),
  },
  {
    name: "generations, of which one leaves a sub-run and a step",
    ends: "completed: end",
    register: agents(
      async function* ({ context, work }) {
        if (context.generation === 1) {
          void context.run("child", "Go.").catch(() => {});
          void work("aside", 1, 30).catch(() => {});
          await work("main", 1, 5);
          return context.continueAsNew("left");
        }
        yield await work("last", "end");
        return undefined;
      },
      {
        async *child({ context }) {
          yield "below";
          await context.sleep("10h");
        },
      },
    ),
  },
  {
    name: "generations, and a question that is withdrawn",
    ends: "completed: end",
    register: agents(async function* ({ context, work }) {
      if (context.generation === 1) {
        context.ask("Never?").catch(() => {});
        await work("main", 1, 3);
        return context.continueAsNew();
      }
      await context.sleep("1s");
      yield "end";
      return undefined;
    }),
    answer: () => undefined,
  },
  {
    name: "generations of a sub-run",
    ends: "completed: 3 # below",
    register: agents(
      async function* ({ context }) {
        const { output } = await context.run("child", "Go.");
        yield `${output.map(({ parts }) => parts.map(({ content }) => content).join("")).join()}`;
        yield { parts: [{ content: "below" }] };
      },
      {
        async *child({ context, work }) {
          if ((await work("count", context.generation)) < 3) {
            yield `${context.generation}`;
            return context.continueAsNew();
          }
          yield "3";
          return undefined;
        },
      },
    ),
  },
  {
    name: "generations of a chat",
    ends: "completed: heard 3",
    register: agents(async function* ({ context }) {
      const { number } = await context.ask("Next?", { schema: numberSchema });
      const before = await context.session.history();
      if (context.generation < 3) {
        yield `said ${number}, ${before.length} before`;
        return context.continueAsNew();
      }
      yield `heard ${context.generation}`;
      return undefined;
    }),
    answer: () => ({ number: 7 }),
    session: { id: "00000000-0000-4000-8000-0000000000ff", history: ["hello"] },
  },
  {
    name: "generations, and a cancel of the last one",
    ends: "cancelled: finally",
    register: agents(async function* ({ context, work }) {
      await work("one", 1);
      if (context.generation < 3) return context.continueAsNew();
      try {
        await context.ask("Well?");
      } finally {
        yield "finally";
      }
      return undefined;
    }),
    answer: () => undefined,
    cancelWhen: isAwaiting,
  },
];
