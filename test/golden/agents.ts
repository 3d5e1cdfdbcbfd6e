import type { AgentFunction, AgentOptions, AwaitResume } from "cadenza";
import { AgentError, awaitMessage, CadenzaError } from "cadenza";
import * as z from "zod";

/*
 * The agents whose logs are kept here. They must not change, since every later version has to read their logs.
 * A new feature gets an agent of its own.
 */

export interface GoldenAgent {
  readonly fn: AgentFunction;
  /** What a client does with each question. */
  readonly answers?: Readonly<Record<string, AwaitResume | "cancel" | "decline" | "nothing">>;
  /** The messages that are sent to the run. */
  readonly messages?: readonly { readonly name: string; readonly data: unknown }[];
  /** The client is one of a process without the code, and gives this answer first, which does not fit. */
  readonly unfitElsewhere?: AwaitResume;
  /** The run that is kept is a fork of the first one, and has this input. */
  readonly forkedWith?: string;
  /** What the run may use. */
  readonly budget?: AgentOptions["budget"];
  /** The session of the run has earlier messages. */
  readonly inSession?: true;
}

export const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const text = (content: string): AwaitResume => ({
  type: "message",
  message: { role: "user", parts: [{ content_type: "text/plain", content, content_encoding: "plain" }] },
});

/** The code of the error that a promise rejects with. */
async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    return JSON.stringify(await promise);
  } catch (error) {
    return CadenzaError.is(error) ? error.code : String(error);
  }
}

/** The agent that sub-runs are of. */
export const helper: AgentFunction = async function* (input, context) {
  const said = await context.step("listen", () => input[0]?.parts[0]?.content ?? "");
  const answer = await context.ask(`What about ${said}?`);
  yield `${said}: ${JSON.stringify(answer)}`;
};

/** The agent that sub-runs are of that are shown. It shows a sub-run itself. */
export const speaker: AgentFunction = async function* (_input, context) {
  yield "I ask. ";
  yield { asked: true };
  const said = await context.step("say", async ({ emit }) => {
    for (const token of ["One ", "moment."]) await emit(token);
    return "moment";
  });
  yield { parts: [{ content: said }, { content: "it was" }] };
  yield { name: "file.txt", content: "an artifact" };
  await context.run("helper", "tea", { show: true });
};

export const agents: Readonly<Record<string, GoldenAgent>> = {
  "steps-in-a-row": {
    async *fn(_input, context) {
      yield await context.step("one", () => "1");
      yield await context.step("one", () => "2");
      const three = await context.step("two", ({ key }) => ({ key, list: [1, null, "x"] }));
      return JSON.stringify(three);
    },
  },
  "steps-side-by-side": {
    async *fn(_input, context) {
      const list = await Promise.all(["a", "b", "c"].map((name) => context.step("work", () => name)));
      yield list.join();
    },
  },
  "steps-that-race": {
    async *fn(_input, context) {
      const slow = context.step("slow", () => wait(15).then(() => "slow"));
      yield await Promise.race([slow, context.step("fast", () => "fast")]);
      yield await slow;
    },
  },
  "steps-that-fail": {
    async *fn(_input, context) {
      try {
        await context.step("break", () => {
          throw new AgentError("broken", "It is broken.", { part: 7 });
        });
      } catch (error) {
        yield AgentError.is(error) ? `${error.code} ${error.message} ${JSON.stringify(error.data)}` : String(error);
      }
      const never = context.step("try", () => Promise.reject(new RangeError("no")), { retry: { attempts: 2 } });
      yield await never.catch((error: Error) => `${error.name}: ${error.message}`);
    },
  },
  "a-fork": {
    forkedWith: "Again",
    answers: {
      "ask#1": text("Ann"),
      "run:speaker#1/run:helper#1/ask#1": { milk: true },
      "run:helper#1/ask#1": { milk: false },
    },
    messages: [{ name: "word", data: "hello" }],
    async fn([message], { step, ask, receive, run, uuid, usage, emit }) {
      await emit("Hm. ");
      const word = await receive("word");
      const name = await ask("Name?");
      const shown = run("speaker", "Speak.", { show: true });
      await step("draw", () => {
        usage.add({ input_tokens: 3, output_tokens: 4 });
        return uuid();
      });
      await shown;
      await step("pay", async ({ idempotencyKey }) => {
        if (message?.parts[0]?.content !== "Again") throw new AgentError("broken", "Not now.");
        await wait(2);
        return idempotencyKey;
      });
      const { run_id } = await run("helper", "Help.");
      return `${JSON.stringify(word)} ${JSON.stringify(name)} ${run_id.length} ${uuid()}`;
    },
  },
  "a-message-that-is-rejected": {
    messages: [
      { name: "word", data: 5 },
      { name: "word", data: "hello" },
    ],
    async *fn(_input, { receive }) {
      const schema = z.string("expected a text");
      yield await receive("word", { schema }).catch((error: CadenzaError) => `${error.code} `);
      yield await receive("word", { schema });
    },
  },
  "steps-that-are-tried-again": {
    async *fn(_input, context) {
      const fetch = ({ attempt }: { readonly attempt: number }): string => {
        if (attempt < 3) throw new AgentError("busy", `Busy at attempt ${attempt}.`);
        return "Fetched.";
      };
      yield await context.step("fetch", fetch, { retry: { attempts: 3 } });
    },
  },
  "a-step-that-streams": {
    async *fn(_input, context) {
      yield "It says: ";
      const whole = await context.step("model", async ({ emit }) => {
        for (const token of ["Good ", "morning", "."]) await emit(token);
        return "Good morning.";
      });
      yield `That was ${whole.length} characters.`;
    },
  },
  "a-step-at-most-once": {
    async fn(_input, context) {
      await context.step("pay", () => "paid", { once: true }).catch(() => undefined);
      return "Done either way.";
    },
  },
  "a-question-with-a-schema": {
    async *fn(_input, context) {
      const { seats } = await context.ask("How many?", { schema: z.object({ seats: z.number() }) });
      yield `${seats} seats`;
    },
    answers: { "ask#1": { seats: 2 } },
  },
  "a-question-by-yield": {
    async *fn() {
      const answer = yield awaitMessage("Anything else?");
      yield JSON.stringify(answer);
    },
    answers: { "await#1": text("No.") },
  },
  "a-question-in-a-message": {
    async *fn(_input, context) {
      yield "Looking… ";
      yield "found. ";
      const { ok } = await context.ask("Book it?", { schema: z.object({ ok: z.boolean() }) });
      yield null;
      yield ok ? "Booked." : "Not booked.";
    },
    answers: { "ask#1": { ok: true } },
  },
  "questions-in-a-queue": {
    async *fn(_input, context) {
      const answers = await Promise.all([context.ask("First?"), context.ask("Second?"), context.ask("Third?")]);
      yield JSON.stringify(answers);
    },
    answers: { "ask#1": { is: 1 }, "ask#2": text("two"), "ask#3": { is: 3 } },
  },
  "a-question-that-expires": {
    async *fn(_input, context) {
      yield JSON.stringify(await context.ask("In time?", { timeoutMs: 1, default: { in_time: false } }));
    },
    answers: { "ask#1": "nothing" },
  },
  "a-question-that-is-withdrawn": {
    async *fn(_input, context) {
      const answer = context.ask("Faster than this?");
      const step = context.step("slow", () => wait(15).then(() => "the step"));
      yield String(await Promise.race([answer, step]));
    },
    answers: { "ask#1": "nothing" },
  },
  "a-sub-run-that-asks": {
    async *fn(_input, context) {
      const run = await context.run("helper", "tea");
      yield `${run.status}: ${run.output[0]?.parts[0]?.content}`;
    },
    answers: { "run:helper#1/ask#1": { milk: false } },
  },
  "a-sub-run-that-is-shown": {
    async *fn(_input, context) {
      yield "They say: ";
      const { status } = await context.run("speaker", "tea", { show: true });
      yield `That was ${status}.`;
    },
    answers: { "run:speaker#1/run:helper#1/ask#1": { milk: true } },
  },
  "a-session": {
    async *fn(_input, context) {
      const history = await context.session.history();
      yield history.map(({ parts }) => parts[0]?.content).join();
      await context.session.setState({ count: history.length });
      yield JSON.stringify(await context.session.getState());
    },
    inSession: true,
  },
  "time-and-chance": {
    async *fn(_input, context) {
      const before = [context.now(), context.random(), context.uuid()];
      const recorded = await context.step("look", () => before);
      yield JSON.stringify(recorded) === JSON.stringify(before) ? "the same" : "others";
    },
  },
  "all-that-can-be-shown": {
    async *fn(_input, context) {
      yield "a part";
      yield null;
      yield { parts: [{ content: "a message" }, { content: "of two parts" }] };
      yield { some: "object" };
      yield { name: "file.txt", content: "an artifact" };
      context.usage.add({ input_tokens: 3, output_tokens: 4 });
      await context.step("bill", () => context.usage.add({ input_tokens: 10, output_tokens: 20 }));
      yield "the end";
    },
  },
  "a-cancelled-run": {
    async *fn(_input, context) {
      try {
        await context.step("begin", () => true);
        await context.ask("Go on?");
      } finally {
        yield "cleaned up";
      }
    },
    answers: { "ask#1": "cancel" },
  },
  "a-failed-run": {
    async *fn(_input, context) {
      yield await context.step("begin", () => "begun");
      throw new AgentError("out_of_stock", "There is none left.", { item: "tea" });
    },
  },
  sleeps: {
    async *fn(_input, context) {
      await context.sleep(15, { name: "short" });
      yield "awake";
      await Promise.all([context.sleep("10ms"), context.sleep(5), context.sleep(new Date(0))]);
      yield "awake again";
    },
  },
  "messages-to-a-run": {
    async *fn(_input, context) {
      yield JSON.stringify(await context.receive("mail"));
      yield await codeOf(context.receive("mail", { schema: z.object({ n: z.number() }) }));
      yield JSON.stringify(await context.receive("mail", { timeoutMs: 0, default: "none" }));
      yield await codeOf(context.receive("other", { timeoutMs: 5 }));
    },
    messages: [
      { name: "mail", data: { n: 1 } },
      { name: "mail", data: { n: "two" } },
    ],
  },
  "questions-that-are-declined": {
    async *fn(_input, context) {
      yield await codeOf(context.ask("Go on?", { name: "approval", kind: "approval", default: { ok: true } }));
      yield awaitMessage("And now?");
      yield "answered";
    },
    answers: { "ask#1": "decline", "await#1": "decline" },
  },
  "waits-that-a-signal-ends": {
    async *fn(_input, context) {
      const controller = new AbortController();
      const { signal } = controller;
      const waits = [
        context.ask("Faster than this?", { signal }),
        context.sleep("1h", { signal }),
        context.receive("mail", { signal, timeoutMs: 3_600_000 }),
      ];
      await context.step("slow", () => wait(15));
      controller.abort(new Error("enough"));
      yield (await Promise.all(waits.map(codeOf))).join();
      yield await context.step("go on", () => "Done.");
    },
    answers: { "ask#1": "nothing" },
  },
  "a-budget-that-is-exceeded": {
    budget: { totalTokens: 25 },
    async *fn(_input, context) {
      try {
        yield `${context.usage.remaining}`;
        await context.step("call", () => context.usage.add({ inputTokens: 7, outputTokens: 3 }));
        yield ` ${context.usage.remaining}`;
        await context.ask("Go on?");
        yield `${context.usage.remaining}`;
        context.usage.add({ inputTokens: 9, outputTokens: 7 });
        await context.step("never", () => "never");
      } finally {
        yield " over";
      }
    },
    answers: { "ask#1": text("Yes.") },
  },
  "answers-from-another-process": {
    async *fn(_input, context) {
      const { value, by, how } = await context.ask("How many?", {
        schema: z.object({ seats: z.number() }),
        details: true,
      });
      yield `${value.seats} seats, ${JSON.stringify(by)}, ${how}`;
    },
    answers: { "ask#1": { seats: 2 } },
    unfitElsewhere: { seats: "many" },
  },
};
