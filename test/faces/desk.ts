import type { Message, RuntimeOptions } from "cadenza";
import { AgentError, AgentRuntime, CadenzaError, defineAgent } from "cadenza";
import type { HttpOptions } from "cadenza/http";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import * as z from "zod";
import { FakeClock } from "../harness/clock.ts";
import { lastingStore } from "../harness/store-proxy.ts";

const approval = z.object({ approved: z.boolean() });

/** A promise that a test resolves. */
class Gate {
  readonly opened: Promise<void>;
  open!: () => void;

  constructor() {
    this.opened = new Promise((resolve) => {
      this.open = resolve;
    });
  }
}

/** An agent that does what its input says, on a server that may be started again. */
export class Desk {
  readonly clock: FakeClock;
  readonly store: Store;
  /** Lets the input `slow` go on. */
  gate = new Gate();
  runtime: AgentRuntime;
  /** How its faces are served, beside their paths. */
  readonly host: Pick<HttpOptions, "authorize">;
  readonly #options: RuntimeOptions;

  constructor(options: RuntimeOptions = {}, host: Desk["host"] = {}, beside?: Desk) {
    this.#options = options;
    this.host = host;
    this.clock = beside?.clock ?? new FakeClock();
    this.store = beside?.store ?? lastingStore(this.clock);
    this.runtime = this.#start();
  }

  /** Another process of the same store. */
  another(): Desk {
    return new Desk(this.#options, this.host, this);
  }

  /** A server that dies, and another one that takes its place. */
  async restart(): Promise<void> {
    const { runtime } = this;
    this.runtime = this.#start();
    await runtime.close({ drainMs: 0 });
    await this.clock.settle();
  }

  #start(): AgentRuntime {
    const store = durable(this.store, { scanMs: 50 });
    return new AgentRuntime({ ...this.#options, clock: this.clock, store, agents: [this.#agent()] });
  }

  #agent() {
    const gate = (): Gate => this.gate;
    return defineAgent("desk", { durable: true }, async function* (input, { ask, step }) {
      const said = wordsOf(input.at(-1));
      switch (said) {
        case "stream":
          yield "One ";
          yield "two ";
          yield "three.";
          return;
        case "ask": {
          yield "Looking. ";
          const { approved } = await ask("Refund 40 €?", { name: "approval", kind: "approval", schema: approval });
          yield approved ? "Refunded." : "Refused.";
          return;
        }
        case "several": {
          const asked = ["Refund 40 €?", "Send a letter?"].map((words) => ask(words, { schema: approval }));
          const [refund, letter] = await Promise.all(asked);
          yield `${refund?.approved ? "Refunded" : "Refused"}, ${letter?.approved ? "sent" : "not sent"}.`;
          return;
        }
        case "words":
          yield `Hello ${wordsOf((await ask("Who are you?")) as Message)}.`;
          return;
        case "decline":
          try {
            await ask("Refund 40 €?", { schema: approval });
          } catch (error) {
            if (!CadenzaError.is(error)) throw error;
            yield `Not answered: ${error.code}.`;
          }
          return;
        case "deadline": {
          const { approved } = await ask("Refund 40 €?", {
            schema: approval,
            timeoutMs: 60_000,
            default: { approved: false },
          });
          yield approved ? "Refunded." : "Refused in the end.";
          return;
        }
        case "fail":
          yield "Half ";
          throw new AgentError("no_seat", "The train is full.");
        case "slow":
          yield "One ";
          await step("wait", () => gate().opened.then(() => "done"));
          yield "two.";
          return;
        case "again":
          yield "First. ";
          await step(
            "model",
            async ({ emit, attempt }) => {
              await emit("One ");
              await emit("two ");
              if (attempt === 1) await gate().opened;
              if (attempt < 3) throw new Error("The model broke off.");
              await emit("three. ");
            },
            { retry: { attempts: 3 } },
          );
          yield "Last.";
          return;
        case "artifacts":
          yield "Here: ";
          yield { name: "chart.png", content_type: "image/png", content: "aGk=", content_encoding: "base64" };
          yield { total: 3 };
          yield "Done.";
          return;
        default:
          yield `You said ${said}.`;
      }
    });
  }
}

function wordsOf(message: Message | undefined): string {
  return message?.parts.map(({ content }) => content ?? "").join("") ?? "";
}
