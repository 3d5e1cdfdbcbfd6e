import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import * as ai from "ai";
import type { Message } from "cadenza";
import { AgentError, AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import { createAgUiNodeListener } from "cadenza/ag-ui";
import { aiSdk } from "cadenza/ai-sdk";
import { durable } from "cadenza/store";
import * as z from "zod";
import { FakeClock } from "../../harness/clock.ts";
import { answer, pretend } from "../ai-sdk/models.ts";

const place = z.object({ city: z.string() });
const approval = z.object({ approved: z.boolean() });

function locate(id: string, of: string) {
  return { content: `Where is ${of}?`, tool_call_id: id, tool_name: "locate", tool_input: { of } };
}

function state(value: object) {
  return { name: "state", content_type: "application/json", content: JSON.stringify(value) };
}

function wordsOf(message: Message | undefined): string {
  return message?.parts.map(({ content }) => content ?? "").join("") ?? "";
}

/** A server with an agent that does what the user says. */
export class DeskServer {
  /** It is behind that of the pages: they take every deadline for past. */
  readonly clock: FakeClock;
  readonly runtime: AgentRuntime;
  readonly url: string;
  readonly #server: ReturnType<typeof createServer>;
  /** Lets the input `slow` go on. */
  goOn: () => void = () => {};

  static async start(): Promise<DeskServer> {
    const clock = new FakeClock();
    const runtime = new AgentRuntime({ clock, store: durable(new MemoryStore()) });
    const server = createServer(createAgUiNodeListener(runtime)).listen(0, "127.0.0.1");
    await once(server, "listening");
    return new DeskServer(clock, runtime, server);
  }

  private constructor(clock: FakeClock, runtime: AgentRuntime, server: ReturnType<typeof createServer>) {
    this.clock = clock;
    this.runtime = runtime;
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/desk`;
    const opened = new Promise<void>((resolve) => {
      this.goOn = resolve;
    });
    runtime.register("echo", { durable: true }, (given) => given);
    runtime.register("desk", { durable: true }, async function* (input, context) {
      const { ask, emit, step, run, usage, session, metadata, run_id } = context;
      const said = wordsOf(input.at(-1));
      switch (said) {
        case "Hello":
          yield "Hello ";
          yield "Ada.";
          return;
        case "Again":
          yield `After ${(await session.history()).length} messages.`;
          return;
        case "Think":
          yield { content: "", metadata: { kind: "trajectory", message: "Hmm." } };
          yield "Thought.";
          return;
        case "Show":
          await step("look", async (looking) => void (await looking.emit("Looked. ")));
          await run("echo", "Hello");
          yield { name: "chart.png", content_type: "image/png", content: "aGk=", content_encoding: "base64" };
          yield { content: "Said.", metadata: { kind: "citation", url: "https://example.com" } };
          yield { name: "progress", value: 3 };
          usage.add({ inputTokens: 3, outputTokens: 2 });
          return;
        case "Where":
          yield "Looking. ";
          yield `In ${(await ask(locate(`${run_id}-1`, "Ada"), { schema: place })).city}.`;
          return;
        case "Both": {
          const both = ["Ada", "Bob"].map((of) => ask(locate(`${run_id}-${of}`, of), { schema: place }));
          yield `In ${(await Promise.all(both)).map(({ city }) => city).join(" and ")}.`;
          return;
        }
        case "Meanwhile": {
          const asked = ask(locate(`${run_id}-1`, "Ada"), { schema: place });
          await emit("A moment. ");
          yield `In ${(await asked).city}.`;
          return;
        }
        case "Words":
          yield `It is ${JSON.stringify(await ask(locate(`${run_id}-1`, "words")))}.`;
          return;
        case "Fails":
          try {
            yield `In ${(await ask(locate(`${run_id}-1`, "nowhere"), { schema: place })).city}.`;
          } catch (error) {
            if (!CadenzaError.is(error)) throw error;
            yield `Not found: ${error.reason}`;
          }
          return;
        case "Model": {
          const sdk = aiSdk(context);
          const model = sdk.model(
            pretend("v3", ({ prompt }) =>
              prompt.some(({ role }) => role === "tool")
                ? answer("There you are.")
                : answer("", { id: `${run_id}-1`, name: "locate", input: { of: "Ada" } }),
            ),
          );
          const tools = sdk.tools({ locate: ai.tool({ inputSchema: z.object({ of: z.string() }) }) } as never);
          const stopWhen = ai.stepCountIs(3) as never;
          // What the model says is output of the run.
          await ai.streamText({ model, tools: tools as never, prompt: said, stopWhen }).consumeStream();
          return;
        }
        case "Refund":
          yield (await ask("Refund 40 €?", { kind: "approval", schema: approval })).approved ? "Refunded." : "Refused.";
          return;
        case "Two": {
          const both = ["A?", "B?"].map((question) => ask(question, { kind: "approval", schema: approval }));
          yield (await Promise.all(both)).map(({ approved }) => approved).join();
          return;
        }
        case "Name":
          yield `Hello ${wordsOf((await ask("Who are you?")) as Message)}.`;
          return;
        case "Decline":
          await ask("Refund 40 €?", { schema: approval });
          return;
        case "Late":
          yield (await ask("Refund 40 €?", { schema: approval, timeoutMs: 1_000, default: { approved: false } }))
            .approved
            ? "Refunded."
            : "Refused in the end.";
          return;
        case "Full":
          await ask("Refund 40 €?", { schema: approval });
          throw new AgentError("no_seat", "The train is full.");
        case "Fail":
          yield "Half ";
          throw new AgentError("no_seat", "The train is full.");
        case "State":
          yield state({ step: 1, seats: ["1A"] });
          yield "Booked. ";
          yield state({ step: 2, seats: ["1A", "1B"] });
          return;
        case "Given":
          yield JSON.stringify((metadata as { readonly state?: unknown }).state);
          return;
        case "Slow":
          yield "One ";
          await step("wait", () => opened);
          yield "two.";
          return;
        default:
          yield `You said ${said}.`;
      }
    });
  }

  /** Resolves when the newest run has ended. */
  async ended(): Promise<void> {
    const [run] = await this.runtime.listRuns();
    if (run === undefined) throw new Error("There is no run.");
    for await (const event of this.runtime.events(run.run_id, { until: "end" })) void event;
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await this.runtime.close({ drainMs: 0 });
  }
}
